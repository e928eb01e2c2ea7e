"""The Skills extension of MCP as a host uses it: over standard streams and over HTTP."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from deploy.stack.ports import free_port
from tests.support.program.program import ForkServer, Skillbus
from tests.support.samples.library import write_skill, write_topics
from tests.support.servers.mcp import Agent, agent, ask, over_http, over_stdio, read_bytes
from tests.support.servers.open_streams import LISTEN, LISTEN_HEADERS
from workers.http.tokens import TokenScope, TokenStore

IDENTIFIER = "io.modelcontextprotocol/skills"
BINARY = bytes(range(256))
SKILLS = [
    "skill://crafts/bee-keeping/SKILL.md",
    "skill://crafts/bicycle-repair/SKILL.md",
    "skill://crafts/bread-baking/SKILL.md",
    "skill://crafts/bread-baking/rye/SKILL.md",
    "skill://crafts/cheese-ripening/SKILL.md",
    "skill://crafts/garden-frost/SKILL.md",
    "skill://crafts/kiln-firing/SKILL.md",
    "skill://crafts/map-projection/SKILL.md",
    "skill://crafts/star-charts/SKILL.md",
    "skill://crafts/tide-tables/SKILL.md",
    "skill://crafts/tools/@pdf/pdf-processing/SKILL.md",
    "skill://crafts/violin-setup/SKILL.md",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Skills with files, one inside another, one of another name, one that breaks the format."""
    root = write_topics(tmp_path_factory.mktemp("skills") / "crafts")
    kiln = write_skill(root, "kiln-firing", license="MIT", metadata='{version: "1.0", owner: null}')
    (kiln / "references").mkdir()
    (kiln / "references" / "CONES.md").write_text("# Cones\n")
    (kiln / "cone.bin").write_bytes(BINARY)
    write_skill(root, "bread-baking/rye", "Feed a rye starter")
    write_skill(root, "tools/pdf", "Fill in PDF forms", name="pdf-processing")
    write_skill(root, "Odd Name", "Carve a spoon from green wood")
    write_skill(root.parent / "vault", "hidden", "Open the vault at night")
    return root


@pytest.fixture(scope="module")
def home(fork_server: ForkServer, folder: Path) -> Skillbus:
    base = folder.parent
    (base / "home").mkdir()
    (base / "home" / "skillbus.toml").write_text('[policy.sources]\nvault = "withhold"\n')
    skillbus = Skillbus(fork_server, base / "home")
    skillbus("sync", str(folder))
    skillbus("sync", str(base / "vault"))
    return skillbus


@pytest.fixture(scope="module")
def address(fork_server: ForkServer, home: Skillbus) -> Iterator[tuple[str, str]]:
    """`/mcp` of a `skillbus serve`, and a token of the lowest scope."""
    tokens = TokenStore(home.home.parent / "tokens.json")
    secret = tokens.add("host", TokenScope.READ)
    served = Skillbus(fork_server, home.home, SKILLBUS_GATEWAY__TOKENS_FILE=str(tokens.path))
    listen = f"127.0.0.1:{free_port(set())}"
    with served.serving("--listen", listen) as process:
        yield f"http://{listen}/mcp", secret
    assert "Traceback" not in process.text("err")


@pytest.fixture(scope="module", params=["stdio", "http"])
def host(
    request: pytest.FixtureRequest, home: Skillbus, address: tuple[str, str]
) -> Iterator[Agent]:
    opened = over_stdio(home.home) if request.param == "stdio" else over_http(*address)
    with agent(opened) as connected:
        yield connected


def test_a_host_lists_verifies_and_loads_skills(host: Agent) -> None:
    async def work(client: Client) -> None:
        capabilities = client.server_capabilities
        assert capabilities.extensions == {IDENTIFIER: {"directoryRead": True}}
        assert capabilities.resources is not None
        page = await ask(client, "skills/list")
        assert page["resultType"] == "complete"
        assert page["ttlMs"] > 0
        assert page["cacheScope"] == "private"
        assert [skill["uri"] for skill in page["skills"]] == SKILLS
        assert [one["skill_id"] for one in page["_meta"]["skillbus/leftOut"]] == ["crafts:Odd Name"]
        assert "vault" not in json.dumps(page)
        kiln = page["skills"][6]
        assert kiln["frontmatter"] == {
            "name": "kiln-firing",
            "description": "Fire stoneware in an electric kiln from bisque to glaze",
            "license": "MIT",
            "metadata": {"version": "1.0", "owner": None},
        }
        bread = [one["uri"] for one in page["skills"][2]["resources"]]
        assert bread == [SKILLS[2], SKILLS[3]]
        for skill in page["skills"]:
            got = await ask(client, "skills/get", uri=skill["uri"])
            assert got["skill"] == skill
            assert got["resultType"] == "complete"
            for file in skill["resources"]:
                content = await read_bytes(client, file["uri"])
                assert len(content) == file["size"]
                assert "sha256:" + hashlib.sha256(content).hexdigest() == file["digest"]
        (kiln_file,) = (await client.read_resource(SKILLS[6])).contents
        assert kiln_file.mime_type == "text/markdown"
        assert await read_bytes(client, "skill://crafts/kiln-firing/cone.bin") == BINARY
        listed = await ask(client, "resources/directory/read", uri="skill://crafts/kiln-firing")
        assert [(one["name"], one["mimeType"]) for one in listed["resources"]] == [
            ("SKILL.md", "text/markdown"),
            ("cone.bin", "application/octet-stream"),
            ("references", "inode/directory"),
        ]

    host(work)


def test_what_is_not_served_is_an_error_of_the_protocol(host: Agent) -> None:
    unknown = "skill://crafts/none/SKILL.md"
    wrong = (
        ("skills/get", unknown),
        ("skills/get", "skill://crafts/kiln-firing"),
        ("skills/get", "skill://crafts/kiln-firing/cone.bin"),
        ("skills/get", "skill://crafts/Odd%20Name/SKILL.md"),
        ("skills/get", "skill://vault/hidden/SKILL.md"),
        ("skills/get", "https://example.org/SKILL.md"),
        ("resources/read", unknown),
        ("resources/read", "skill://vault/hidden/SKILL.md"),
        ("resources/read", "skill://crafts/kiln-firing/%2e%2e/%2e%2e/home/skillbus.toml"),
        ("resources/read", "skill://crafts/kiln-firing/../../home/skillbus.toml"),
        ("resources/read", "SKILL://crafts/kiln-firing/SKILL.md"),
        ("resources/read", "skill://crafts/kiln-firing"),
        ("resources/directory/read", unknown),
        ("resources/directory/read", SKILLS[6]),
        ("resources/directory/read", "skill://crafts"),
        ("resources/directory/read", "skill://vault/hidden"),
    )

    async def work(client: Client) -> None:
        for method, uri in wrong:
            with pytest.raises(MCPError) as refused:
                await ask(client, method, uri=uri)
            assert refused.value.error.code == INVALID_PARAMS, (method, uri)
            assert str(Path.cwd()) not in refused.value.error.message
        for cursor in ("a" * 3_000, "crafts:\0"):
            with pytest.raises(MCPError, match="invalid cursor"):
                await ask(client, "skills/list", cursor=cursor)
        with pytest.raises(MCPError) as refused:
            await ask(client, "skills/get")
        assert refused.value.error.code == INVALID_PARAMS

    host(work)


def test_search_names_what_a_host_can_load(host: Agent) -> None:
    async def work(client: Client) -> None:
        for task, uri in (
            ("fire stoneware in an electric kiln", SKILLS[6]),
            ("fill in PDF forms", SKILLS[10]),
            ("carve a spoon from green wood", None),
        ):
            found = await client.call_tool("find_skills", {"task": task, "budget": 3000})
            assert found.structured_content is not None
            best = found.structured_content["skills"][0]
            assert best.get("uri") == uri
            if uri:
                assert (await ask(client, "skills/get", uri=uri))["skill"]["uri"] == uri

    host(work)


def test_a_host_is_notified_of_changes_until_the_server_stops(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    """A server that stops ends streams at once, and not after the time that it gives requests."""
    root = tmp_path / "crafts"
    for name in ("kiln-firing", "star-charts", "tide-tables"):
        write_skill(root, name)
    home = Skillbus(fork_server, tmp_path / "home")
    home("sync", str(root))
    listen = f"127.0.0.1:{free_port(set())}"
    watched = "skill://crafts/kiln-firing/SKILL.md"
    other = "skill://crafts/star-charts/SKILL.md"
    gone = "skill://crafts/tide-tables/SKILL.md"

    def change() -> None:
        write_skill(root, "kiln-firing", "Fire a kiln slowly")
        (root / "tide-tables" / "SKILL.md").unlink()

    async def work() -> None:
        async with (
            Client(streamable_http_client(f"http://{listen}/mcp")) as client,
            client.listen(
                resources_list_changed=True, resource_subscriptions=[watched, other, gone]
            ) as stream,
        ):
            before = (await ask(client, "skills/get", uri=watched))["skill"]
            change()
            seen: set[str] = set()
            with anyio.fail_after(60):
                async for event in stream:
                    if isinstance(event, ResourcesListChanged):
                        seen.add("list")
                    if isinstance(event, ResourceUpdated):
                        seen.add(event.uri)
                    if seen == {"list", watched, gone}:
                        break
            after = (await ask(client, "skills/get", uri=watched))["skill"]
            assert after["frontmatter"]["description"] == "Fire a kiln slowly"
            assert after["resources"] != before["resources"]
            with pytest.raises(MCPError):
                await ask(client, "skills/get", uri=gone)

    lines: list[str] = []
    ready = threading.Event()

    def listen_to() -> None:
        with httpx.stream(
            "POST", f"http://{listen}/mcp", json=LISTEN, headers=LISTEN_HEADERS, timeout=60
        ) as response:
            for line in response.iter_lines():
                lines.append(line)
                ready.set()

    with home.serving("--listen", listen):
        anyio.run(work)
        thread = threading.Thread(target=listen_to)
        thread.start()
        assert ready.wait(60), lines
        started = time.monotonic()
    assert time.monotonic() - started < 4.5
    thread.join(10)
    assert not thread.is_alive()
    assert any("subscriptions/acknowledged" in line for line in lines)
