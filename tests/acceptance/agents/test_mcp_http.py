"""MCP over streamable HTTP, through the door of a real gateway: tokens, limits, many agents."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import pytest
import uvicorn
from mcp import Client

from config.settings import Settings
from deploy.stack.ports import free_port
from tests.support.program.program import ROOT, ForkServer, Skillbus, wait_for
from tests.support.servers.mcp import over_http, resource_text, text_of
from workers.backend.embedded import EmbeddedBackend
from workers.backend.store_backend import StoreBackend
from workers.http.access import LOOPBACK_HOSTS, AccessRules
from workers.http.app import create_gateway
from workers.http.tokens import TokenScope, TokenStore

TASK = "fire stoneware in an electric kiln"
KILN = "crafts:kiln-firing"
MODES = ("auto", "legacy")
BURST = 60
LIST_TOOLS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
PROTOCOL = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return TokenStore(tmp_path_factory.mktemp("mcp-http") / "tokens.json")


@pytest.fixture(scope="module")
def secrets(tokens: TokenStore) -> dict[str, str]:
    scopes = {
        "ada": TokenScope.READ,
        "bob": TokenScope.WRITE,
        "eve": TokenScope.READ,
        "ann": TokenScope.ADMIN,
    }
    return {name: tokens.add(name, scope) for name, scope in scopes.items()}


@pytest.fixture(scope="module")
def url(
    fork_server: ForkServer, library: Skillbus, tokens: TokenStore, secrets: dict[str, str]
) -> Iterator[str]:
    """`skillbus serve --listen` on the library; no secret may be in what it writes."""
    served = Skillbus(
        fork_server,
        library.home,
        SKILLBUS_GATEWAY__TOKENS_FILE=str(tokens.path),
        SKILLBUS_GATEWAY__BURST=str(BURST),
        SKILLBUS_GATEWAY__REQUESTS_A_MINUTE="120",
        SKILLBUS_GATEWAY__BODY_BYTES="30000",
        SKILLBUS_LOG_LEVEL="info",
    )
    address = f"127.0.0.1:{free_port(set())}"
    with served.serving("--listen", address) as process:
        yield f"http://{address}/mcp"
    written = process.text("err") + process.text("out")
    assert '"path": "/mcp"' in written
    assert "Traceback" not in written
    for secret in secrets.values():
        assert secret not in written


def bearer(secret: str) -> dict[str, str]:
    return PROTOCOL | {"Authorization": f"Bearer {secret}"}


async def work(client: Client) -> str:
    """Find a skill, read on, read it as a resource, and be refused; the first answer's text."""
    messages: list[str | None] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message)

    assert len((await client.list_tools()).tools) == 3
    found = await client.call_tool(
        "find_skills", {"task": TASK, "budget": 900}, progress_callback=tell
    )
    assert not found.is_error, text_of(found)
    assert found.structured_content is not None
    assert found.structured_content["skills"][0]["skill_id"] == KILN
    assert messages[0] == "asked"
    assert str(messages[-1]).startswith("done: ")
    read = await client.call_tool("read_skill", {"skill_id": KILN})
    assert "Prepare the kiln firing" in text_of(read)
    resource = await client.read_resource("skillbus://skills/crafts%3Akiln-firing")
    assert "Prepare the kiln firing" in resource_text(resource)
    wrong = await client.call_tool("read_skill", {"skill_id": "../../etc/passwd"})
    assert wrong.is_error
    return str(found.structured_content["text"])


def test_many_agents_at_once_with_tokens_of_any_scope(url: str, secrets: dict[str, str]) -> None:
    texts: list[str] = []

    async def one(name: str, mode: str) -> None:
        async with over_http(url, secrets[name], mode) as client:
            texts.append(await work(client))

    async def all_of_them() -> None:
        async with anyio.create_task_group() as group:
            for name in ("ada", "bob", "ann"):
                for mode in MODES:
                    group.start_soon(one, name, mode)

    anyio.run(all_of_them)
    assert len(texts) == 6
    assert len(set(texts)) == 1


def test_a_session_is_the_one_that_is_named_and_belongs_to_a_token(
    url: str, secrets: dict[str, str]
) -> None:
    async def find(client: Client, **more: Any) -> Any:
        return await client.call_tool("find_skills", {"task": TASK} | more)

    def has_kiln(result: Any) -> bool:
        assert not result.is_error, text_of(result)
        return KILN in [skill["skill_id"] for skill in result.structured_content["skills"]]

    async def ask(name: str) -> None:
        async with over_http(url, secrets[name]) as client:
            assert has_kiln(await find(client))
            assert has_kiln(await find(client))
            assert has_kiln(await find(client, session="shared name"))
            assert not has_kiln(await find(client, session="shared name"))
            assert (await find(client, resend=True)).is_error

    for name in ("ada", "bob"):
        anyio.run(ask, name)


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer x"}, {"Authorization": "Basic YTpi"}]
)
def test_without_a_token_nothing_is_served(url: str, headers: dict[str, str]) -> None:
    for method, body in (("POST", LIST_TOOLS), ("GET", None), ("DELETE", None)):
        answer = httpx.request(method, url, timeout=60, json=body, headers=PROTOCOL | headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.headers["content-type"] == "application/problem+json"
        assert "tools" not in answer.text


def test_the_example_client_asks_with_its_token(url: str, secrets: dict[str, str]) -> None:
    client = [sys.executable, str(ROOT / "examples" / "clients" / "ask_mcp.py"), TASK]
    environment = {"PATH": os.environ["PATH"], "SKILLS_URL": url, "SKILLS_TOKEN": secrets["bob"]}
    run = subprocess.run(
        client, env=environment, capture_output=True, text=True, timeout=200, check=True
    )
    assert run.stdout.startswith(
        "tools: find_skills, read_skill, report_outcome\n# Skills for this task\n"
    )
    assert KILN in run.stdout


def test_a_token_that_is_revoked_is_refused_from_then_on(url: str, tokens: TokenStore) -> None:
    secret = tokens.add("gone", TokenScope.READ)
    assert httpx.post(url, timeout=60, json=LIST_TOOLS, headers=bearer(secret)).status_code == 200
    tokens.revoke("gone")
    assert httpx.post(url, timeout=60, json=LIST_TOOLS, headers=bearer(secret)).status_code == 401


def test_a_web_page_cannot_reach_it_by_another_name(url: str, secrets: dict[str, str]) -> None:
    allowed = bearer(secrets["ada"])
    rebound = httpx.post(
        url, timeout=60, json=LIST_TOOLS, headers=allowed | {"Host": "skills.evil.example"}
    )
    assert rebound.status_code == 421
    for origin in ("http://evil.example", "null"):
        foreign = httpx.post(url, timeout=60, json=LIST_TOOLS, headers=allowed | {"Origin": origin})
        assert foreign.status_code == 403
    own = url.removesuffix("/mcp")
    assert (
        httpx.post(url, timeout=60, json=LIST_TOOLS, headers=allowed | {"Origin": own}).status_code
        == 200
    )


def test_only_a_client_over_its_limit_is_slowed(url: str, secrets: dict[str, str]) -> None:
    with httpx.Client(timeout=60, headers=bearer(secrets["eve"])) as eve:
        answers = [eve.post(url, json=LIST_TOOLS)]
        while answers[-1].status_code == 200 and len(answers) < 100 * BURST:
            answers.append(eve.post(url, json=LIST_TOOLS))
        slowed = answers[-1]
    assert len(answers) > BURST
    assert slowed.status_code == 429
    assert int(slowed.headers["retry-after"]) >= 1
    assert (
        httpx.post(url, timeout=60, json=LIST_TOOLS, headers=bearer(secrets["ann"])).status_code
        == 200
    )


def test_what_is_no_request_of_the_protocol_is_refused(url: str, secrets: dict[str, str]) -> None:
    with httpx.Client(timeout=60, headers=bearer(secrets["ann"])) as client:
        for body in (b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"jsonrpc": "1.0"}', b"[" * 5000):
            for version in ({}, {"MCP-Protocol-Version": "2026-07-28"}):
                answer = client.post(url, content=body, headers=version)
                assert 400 <= answer.status_code < 500, (body[:20], answer.status_code)
        for large in (b" " * 30_001, iter([b" " * 10_001] * 3)):
            assert client.post(url, content=large).status_code == 413


def test_there_is_no_session_to_be_taken_over_or_held(url: str, secrets: dict[str, str]) -> None:
    with httpx.Client(timeout=60, headers=bearer(secrets["ann"])) as client:
        for method in ("GET", "DELETE"):
            answer = client.request(method, url, headers={"Mcp-Session-Id": "0" * 32})
            assert answer.status_code == 405
            assert answer.headers["allow"] == "POST"
        answer = client.post(url, json=LIST_TOOLS, headers={"Mcp-Session-Id": "0" * 32})
        assert answer.status_code == 200
        assert "mcp-session-id" not in answer.headers
        listen = LIST_TOOLS | {"method": "subscriptions/listen"}
        assert "error" in _said(client.post(url, json=listen))


def _said(answer: httpx.Response) -> dict[str, Any]:
    """The message of an answer, sent as JSON or as an event."""
    data: dict[str, Any] = json.loads(answer.text.rpartition("data: ")[2])
    return data


@contextlib.contextmanager
def silent(library: Skillbus, tokens: TokenStore) -> Iterator[tuple[str, StoreBackend]]:
    """A gateway behind which no process answers queries: its runtime is not started."""
    backend = EmbeddedBackend(Settings(home=library.home), writable=False)
    gateway = create_gateway(backend, AccessRules(tokens, hosts=LOOPBACK_HOSTS))
    with socket.socket(proto=socket.IPPROTO_TCP) as port:
        port.bind(("127.0.0.1", 0))
        config = uvicorn.Config(gateway, log_level="warning", lifespan="off", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server._serve([port])))
        thread.start()
        wait_for(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{port.getsockname()[1]}/mcp", backend
        finally:
            server.should_exit = True
            thread.join()
            backend.stop()


def test_who_leaves_in_the_middle_of_a_call_has_the_query_ended(
    library: Skillbus, tokens: TokenStore, secrets: dict[str, str]
) -> None:
    with silent(library, tokens) as (url, backend):

        def open_queries() -> int:
            return backend.journal.count_open_jobs("query")

        async def leave(mode: str) -> None:
            async with over_http(url, secrets["ada"], mode) as client:
                with anyio.move_on_after(120):
                    async with anyio.create_task_group() as group:
                        group.start_soon(client.call_tool, "find_skills", {"task": TASK})
                        while not await anyio.to_thread.run_sync(open_queries):
                            await anyio.sleep(0.01)
                        group.cancel_scope.cancel()

        for mode in MODES:
            anyio.run(leave, mode)
            wait_for(lambda: open_queries() == 0)
        # One whose connection breaks.
        call = {"name": "find_skills", "arguments": {"task": TASK}}
        body = json.dumps(LIST_TOOLS | {"method": "tools/call", "params": call}).encode()
        headers = bearer(secrets["ada"]) | {"Host": "127.0.0.1", "Content-Length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        host, _, number = url.removeprefix("http://").removesuffix("/mcp").partition(":")
        with socket.create_connection((host, int(number))) as broken:
            broken.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
            wait_for(lambda: open_queries() == 1)
        wait_for(lambda: open_queries() == 0)
