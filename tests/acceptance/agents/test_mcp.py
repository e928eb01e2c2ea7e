"""`skillbus mcp`: an agent's client over real standard streams."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from config.bundle_settings import PolicySettings
from config.settings import Settings
from skills.token_count import count_tokens
from tests.support.program.program import ROOT, ForkServer, Skillbus, clean_environment, wait_for
from tests.support.samples.library import write_skill, write_topics
from tests.support.servers.mcp import Agent, agent, in_process, over_stdio, resource_text, text_of

TASK = "fire stoneware in an electric kiln"
KILN = "c:kiln-firing"
ODD = "c:glass/blowing 100% 吹玻璃"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve skills, one broken; a source of one letter makes ids look like Windows paths."""
    root = write_topics(tmp_path_factory.mktemp("mcp") / "c")
    write_skill(root, "glass/blowing 100% 吹玻璃", "Blow a glass vase")
    (root / "broken").mkdir()
    (root / "broken" / "SKILL.md").write_bytes(b"")
    return root


@pytest.fixture(scope="module")
def home(fork_server: ForkServer, folder: Path) -> Skillbus:
    skillbus = Skillbus(fork_server, folder.parent / "home")
    skillbus("sync", str(folder), code=4)
    return skillbus


@pytest.fixture(scope="module")
def own(home: Skillbus) -> Iterator[Agent]:
    """An agent that keeps one process for all of these tests."""
    with agent(over_stdio(home.home)) as kept:
        yield kept


async def found(client: Client, **more: Any) -> list[str]:
    """The ids of the skills for a task."""
    result = await client.call_tool("find_skills", {"task": TASK} | more)
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    assert result.structured_content["status"] == "SKILL_HIT"
    return [skill["skill_id"] for skill in result.structured_content["skills"]]


def test_what_the_server_says_of_itself(own: Agent) -> None:
    async def look(client: Client) -> None:
        assert client.server_info is not None
        assert client.server_info.name == "skillbus"
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["find_skills", "read_skill", "report_outcome"]
        for name, tool in tools.items():
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is (name != "report_outcome")
            assert tool.annotations.idempotent_hint is (name != "report_outcome")
            assert tool.annotations.destructive_hint is False
            assert tool.annotations.open_world_hint is False
            assert tool.input_schema["additionalProperties"] is False
            assert tool.output_schema is not None
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "skillbus://skills/{skill_id}"
        with pytest.raises(MCPError, match="no prompts"):
            await client.get_prompt("any")

    own(look)


def test_an_agent_finds_skills_and_reads_on(own: Agent) -> None:
    async def work(client: Client) -> None:
        messages: list[tuple[float, str | None]] = []

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            del total
            messages.append((progress, message))

        found = await client.call_tool(
            "find_skills", {"task": TASK, "budget": 900, "top": 2}, progress_callback=tell
        )
        assert not found.is_error, text_of(found)
        data = found.structured_content
        assert data is not None
        assert data["status"] == "SKILL_HIT"
        assert data["skills"][0]["skill_id"] == KILN
        assert text_of(found) == f"{data['text']}\nquery_id: {data['query_id']}\n"
        assert 'lines="' in data["text"]
        assert count_tokens(json.dumps(data, ensure_ascii=False)) <= 900
        assert [progress for progress, _ in messages] == sorted(
            progress for progress, _ in messages
        )
        assert messages[0][1] == "asked"
        assert str(messages[-1][1]).startswith("done: ")

        whole = await client.call_tool("read_skill", {"skill_id": KILN})
        assert "Prepare the kiln firing" in text_of(whole)
        assert "not orders" in text_of(whole)
        line = await client.call_tool("read_skill", {"skill_id": KILN, "lines": "2"})
        assert "name: kiln-firing" in text_of(line)
        assert "Prepare" not in text_of(line)

        for source, status in (("c", "SKILL_HIT"), ("d", "NO_SKILL_HIT")):
            filtered = await client.call_tool(
                "find_skills", {"task": TASK, "filters": {"source": [source]}}
            )
            assert not filtered.is_error
            assert filtered.structured_content is not None
            assert filtered.structured_content["status"] == status
        assert f"none has source {source!r}" in text_of(filtered)

    own(work)


def test_an_agent_reports_what_helped(home: Skillbus, own: Agent) -> None:
    async def work(client: Client) -> None:
        found = await client.call_tool("find_skills", {"task": TASK})
        assert found.structured_content is not None
        query_id = found.structured_content["query_id"]
        for arguments, text in (
            ({"skill_id": KILN, "outcome": "helped", "by": "verifier"}, "helped: stored"),
            ({"outcome": "missing"}, "missing: stored"),
            (
                {"skill_id": KILN, "outcome": "rejected", "reason": "wrong_step"},
                "rejected: stored",
            ),
        ):
            result = await client.call_tool("report_outcome", {"query_id": query_id, **arguments})
            assert not result.is_error, text_of(result)
            assert text_of(result) == text
        for arguments, text in (
            ({"query_id": "unknown", "skill_id": KILN, "outcome": "used"}, "no answered query"),
            ({"query_id": query_id, "skill_id": "c:none", "outcome": "used"}, "no skill 'c:none'"),
            ({"query_id": query_id, "outcome": "used"}, "a skill is required"),
            ({"query_id": query_id, "skill_id": KILN, "outcome": "liked"}, "outcome"),
            ({"query_id": query_id, "skill_id": KILN, "outcome": "rejected"}, "needs a reason"),
        ):
            result = await client.call_tool("report_outcome", arguments)
            assert result.is_error
            assert text in text_of(result)
            assert "pydantic" not in text_of(result)

    own(work)
    rows = [json.loads(line) for line in home("outcomes", "export").out.splitlines()]
    assert [(row["skill_id"], row["outcome"], row["by"]) for row in rows] == [
        (KILN, "helped", "verifier"),
        ("", "missing", "agent"),
        (KILN, "rejected", "agent"),
    ]
    home("outcomes", "forget", "--owner", "")


def test_what_is_wrong_is_said_and_the_server_goes_on(own: Agent) -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("find_skills", {}, "task"),
        ("find_skills", {"task": ""}, "at least 1 character"),
        ("find_skills", {"task": "  "}, "describe what"),
        ("find_skills", {"task": TASK, "budget": 0}, "greater than or equal to 200"),
        ("find_skills", {"task": TASK, "budget": 50}, "greater than or equal to 200"),
        ("find_skills", {"task": TASK, "budget": "many"}, "integer"),
        ("find_skills", {"task": TASK, "budget": 200}, "give at least"),
        ("find_skills", {"task": TASK, "top": 0}, "top"),
        ("find_skills", {"task": TASK, "buget": 900}, "buget"),
        ("find_skills", {"task": TASK, "filters": {"colour": ["red"]}}, "filters.colour"),
        ("find_skills", {"task": TASK, "filters": {"source": "c"}}, "filters.source"),
        ("find_skills", {"task": "x" * 300_000}, "limit"),
        ("read_skill", {"skill_id": "c:nothing"}, "no skill 'c:nothing'"),
        ("read_skill", {"skill_id": "c:broken"}, "could not be read"),
        ("read_skill", {"skill_id": KILN, "lines": "9000"}, "beyond the end"),
        ("read_skill", {"skill_id": KILN, "lines": "9-3"}, 'write lines as "36-42, 60"'),
        ("read_skill", {"skill_id": KILN, "lines": "a-b"}, 'write lines as "36-42, 60"'),
        ("read_skill", {"skill_id": KILN, "lines": "1\0"}, 'write lines as "36-42, 60"'),
        ("read_skill", {"skill_id": KILN, "budget": 200_001}, "200000"),
        ("read_skill", {"skill_id": "\0"}, "not a valid skill id"),
        ("read_skill", {"skill_id": "x" * 2001}, "2000 characters"),
        ("drop_skills", {}, "Unknown tool"),
    ]

    async def err(client: Client) -> None:
        for name, arguments, said in wrong:
            result = await client.call_tool(name, arguments)
            assert result.is_error, (name, arguments)
            assert said in text_of(result), (name, arguments, text_of(result))
            assert "Traceback" not in text_of(result)
        least = await client.call_tool("find_skills", {"task": TASK, "budget": 200})
        budget = int(text_of(least).rpartition(" ")[2])
        again = await client.call_tool("find_skills", {"task": TASK, "budget": budget})
        assert not again.is_error

    own(err)


TRAVERSAL = [
    "../../etc/passwd",
    "/etc/passwd",
    "c:../../../../etc/passwd",
    "c:kiln-firing/../../../home/serve.sock",
    "c:kiln-firing/SKILL.md",
    "c:kiln-firing/",
    "c:./kiln-firing",
    "CRAFTS:kiln-firing",
    "c:kiln-firing\0",
    "c:%2e%2e/x",
    "file:///etc/passwd",
    "c:",
    "*",
    "'; DROP TABLE entries; --",
]


def test_nothing_outside_the_catalog_can_be_read(own: Agent) -> None:
    async def read(client: Client) -> None:
        kiln = await client.read_resource(f"skillbus://skills/{quote(KILN, '')}")
        assert kiln.contents[0].mime_type == "text/markdown"
        assert "Prepare the kiln firing" in resource_text(kiln)
        for skill_id in TRAVERSAL:
            result = await client.call_tool("read_skill", {"skill_id": skill_id})
            assert result.is_error
            assert "root:" not in text_of(result)
            for encoded in (quote(skill_id, ""), quote(skill_id, "/"), quote(quote(skill_id, ""))):
                with pytest.raises(MCPError):
                    await client.read_resource(f"skillbus://skills/{encoded}")
        for uri in ("file:///etc/passwd", "skillbus://skills/", "skillbus://etc/passwd", "x"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)

    own(read)


def test_skills_are_listed_as_resources_that_can_be_read(own: Agent) -> None:
    async def read(client: Client) -> None:
        listed = (await client.list_resources()).resources
        assert KILN in [one.name for one in listed]
        assert "c:broken" not in [one.name for one in listed]
        (odd,) = (one for one in listed if one.name == ODD)
        read_odd = await client.read_resource(odd.uri)
        assert "1. Prepare the blowing 100% 吹玻璃." in resource_text(read_odd)
        after = await client.list_resources(cursor=KILN)
        assert [one.name for one in after.resources] == [
            one.name for one in listed if one.name > KILN
        ]
        for cursor in ("\0", "x" * 3000):
            with pytest.raises(MCPError):
                await client.list_resources(cursor=cursor)

    own(read)


def test_what_the_policy_withholds_is_neither_listed_nor_read(home: Skillbus) -> None:
    policy = PolicySettings(sources={"c": "withhold"})

    async def run() -> None:
        async with in_process(Settings(home=home.home, policy=policy)) as client:
            result = await client.call_tool("read_skill", {"skill_id": KILN})
            assert result.is_error
            assert "withheld by policy: nothing of its source is sent" in text_of(result)
            with pytest.raises(MCPError, match="withheld by policy"):
                await client.read_resource(f"skillbus://skills/{quote(KILN, '')}")
            assert (await client.list_resources()).resources == []

    anyio.run(run)


def test_without_a_library_it_says_what_to_do(tmp_path: Path) -> None:
    async def run() -> None:
        async with in_process(Settings(home=tmp_path / "none")) as client:
            asked = (("find_skills", {"task": TASK}), ("read_skill", {"skill_id": KILN}))
            for name, arguments in asked:
                result = await client.call_tool(name, arguments)
                assert result.is_error
                assert "run `skillbus sync DIR` first" in text_of(result)
            with pytest.raises(MCPError, match="skillbus sync DIR"):
                await client.list_resources()

    anyio.run(run)


def test_a_running_serve_answers_and_one_that_ended_is_done_without(
    own: Agent, home: Skillbus, folder: Path
) -> None:
    def asked() -> int:
        with home.client() as client:
            text = client.get("/metrics").text
        found = [
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("skillbus_queries_total{")
        ]
        return int(sum(found))

    async def read(client: Client) -> None:
        read = await client.call_tool("read_skill", {"skill_id": "c:glass-engraving"})
        assert not read.is_error, text_of(read)

    with home.serving():
        own(found)
        assert asked() == 1
        write_skill(folder, "glass-engraving", "Engrave a glass vase")
        wait_for(lambda: home.skills().get("c:glass-engraving", {}).get("state") == "published")
        own(read)
    assert "c:glass-engraving" in own(lambda client: found(client, task="engrave a glass vase"))


def test_a_connection_is_a_session(own: Agent, home: Skillbus) -> None:
    async def ask(client: Client) -> None:
        await found(client)
        assert KILN not in await found(client)
        again = await client.call_tool("find_skills", {"task": TASK})
        assert "Sent earlier in this session" in text_of(again)
        assert KILN in await found(client, resend=True)
        assert KILN in await found(client, session="sub-agent")
        assert KILN not in await found(client, session="sub-agent")
        wrong = await client.call_tool("find_skills", {"task": TASK, "session": " no "})
        assert wrong.is_error
        assert "session" in text_of(wrong)
        await found(client, session="stuck", brief=True)
        await found(client, session="stuck", obstacle="the stoneware cracked while it was prepared")

    own(ask)
    with agent(over_stdio(home.home)) as other:
        assert KILN in other(found)


class Wire:
    """A process to which lines are written as they are."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._number = 0

    def tell(self, line: str | dict[str, Any]) -> None:
        text = line if isinstance(line, str) else json.dumps({"jsonrpc": "2.0"} | line)
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, **params: Any) -> int:
        self._number += 1
        self.tell({"id": self._number, "method": method, "params": params})
        return self._number

    def call(self, tool: str, **arguments: Any) -> int:
        return self.ask("tools/call", name=tool, arguments=arguments)

    def until(self, number: int) -> list[dict[str, Any]]:
        """What is said up to the answer with this number."""
        assert self.process.stdout is not None
        messages: list[dict[str, Any]] = []
        while not messages or messages[-1].get("id") != number:
            messages.append(json.loads(self.process.stdout.readline()))
        return messages


@pytest.fixture
def wire(home: Skillbus, tmp_path: Path) -> Iterator[Wire]:
    """A process that tells what it imports, and ends well when its input does."""
    with (
        (tmp_path / "errors").open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "workers.cli", "mcp"],
            cwd=ROOT,
            env={**clean_environment(), "SKILLBUS_HOME": str(home.home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
        ) as process,
    ):
        yield Wire(process)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait(120) == 0


def test_on_the_wire(home: Skillbus, wire: Wire, tmp_path: Path) -> None:
    """An older client, line by line, next to a `serve` that hangs for a while."""
    client = {"name": "test", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    with home.serving() as served:
        first = wire.until(wire.ask("initialize", **hello))[0]
        assert first["result"]["serverInfo"]["name"] == "skillbus"
        wire.tell({"method": "notifications/initialized"})
        served.send(signal.SIGSTOP)
        left = wire.call("find_skills", task=TASK)
        wire.tell({"method": "notifications/cancelled", "params": {"requestId": left}})
        assert len(wire.until(wire.ask("tools/list"))[-1]["result"]["tools"]) == 3
        served.send(signal.SIGCONT)

        wire.tell("not JSON")
        wire.tell('{"jsonrpc": "2.0", "id": 7000}')
        for arguments in ({"skill_id": "\ud800"}, {"skill_id": KILN, "lines": "1\ud800"}):
            wire.call("read_skill", **arguments)
        messages = wire.until(wire.call("find_skills", task=TASK))
    assert messages[-1]["result"]["structuredContent"]["skills"][0]["skill_id"] == KILN
    for answer in messages[:-1]:
        assert "error" in answer or answer["result"]["isError"]
        assert answer.get("id") != left
    # What is loaded for the first answer has neither models nor workers in it.
    lines = (tmp_path / "errors").read_text("utf-8").splitlines()
    imported = [line.rpartition("|")[2].strip() for line in lines if "import time:" in line]
    before = imported[: imported.index("workers.mcp.stdio") + 1]
    assert not {"torch", "sentence_transformers", "sklearn"}.intersection(before)
