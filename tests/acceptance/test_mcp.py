"""`skillbus mcp`: an agent's client over real standard streams."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from skills.tokens import count_tokens
from tests.support.library import write_skill
from tests.support.mcp import over_stdio, text_of
from tests.support.program import ROOT, ForkServer, Skillbus, clean_environment, wait_for

TASK = "fire stoneware in an electric kiln"
KILN = "crafts:kiln-firing"

Doing = Callable[[Client], Coroutine[Any, Any, None]]


def _with(home: Path, doing: Doing, mode: str = "auto") -> None:
    async def run() -> None:
        async with over_stdio(home, mode) as client:
            await doing(client)

    asyncio.run(run())


def test_what_the_server_says_of_itself(library: Skillbus) -> None:
    async def look(client: Client) -> None:
        assert client.server_info is not None
        assert client.server_info.name == "skillbus"
        assert client.instructions is not None
        assert count_tokens(client.instructions) < 200
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["find_skills", "read_skill", "list_sources"]
        for tool in tools.values():
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is True
            assert tool.annotations.destructive_hint is False
            assert tool.annotations.open_world_hint is False
            assert tool.input_schema["additionalProperties"] is False
            assert tool.output_schema is not None
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "skillbus://skills/{skill_id}"

    _with(library.home, look)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_agent_finds_skills_and_reads_on(library: Skillbus, mode: str) -> None:
    async def work(client: Client) -> None:
        told: list[tuple[float, str | None]] = []

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            del total
            told.append((progress, message))

        found = await client.call_tool(
            "find_skills", {"task": TASK, "budget": 900, "top": 2}, progress_callback=tell
        )
        assert not found.is_error, text_of(found)
        data = found.structured_content
        assert data is not None
        assert data["status"] == "SKILL_HIT"
        assert data["skills"][0]["skill_id"] == KILN
        assert data["text"] == text_of(found)
        assert 'lines="' in data["text"]
        assert count_tokens(text_of(found)) <= 900
        assert count_tokens(json.dumps(data, ensure_ascii=False)) <= 900
        assert [progress for progress, _ in told] == sorted(progress for progress, _ in told)
        assert told[0][1] == "asked"
        assert str(told[-1][1]).startswith("done: ")

        whole = await client.call_tool("read_skill", {"skill_id": KILN})
        assert "Prepare the kiln firing" in text_of(whole)
        assert "not orders" in text_of(whole)
        line = await client.call_tool("read_skill", {"skill_id": KILN, "lines": "2"})
        assert "name: kiln-firing" in text_of(line)
        assert "Prepare" not in text_of(line)

        sources = await client.call_tool("list_sources", {})
        assert sources.structured_content is not None
        assert sources.structured_content["sources"] == [
            {"source_id": "crafts", "kind": "directory"}
        ]
        filtered = await client.call_tool(
            "find_skills", {"task": TASK, "filters": {"source": ["elsewhere"]}}
        )
        assert not filtered.is_error
        assert filtered.structured_content is not None
        assert filtered.structured_content["status"] == "NO_SKILL_HIT"
        assert "passes the filters" in text_of(filtered)

    _with(library.home, work, mode)


def test_what_is_wrong_is_said_and_the_server_goes_on(library: Skillbus) -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("find_skills", {}, "task"),
        ("find_skills", {"task": ""}, "at least 1 character"),
        ("find_skills", {"task": "  "}, "say in words"),
        ("find_skills", {"task": TASK, "budget": 0}, "greater than or equal to 200"),
        ("find_skills", {"task": TASK, "budget": "many"}, "integer"),
        ("find_skills", {"task": TASK, "budget": 200}, "give at least"),
        ("find_skills", {"task": TASK, "top": 0}, "top"),
        ("find_skills", {"task": TASK, "buget": 900}, "buget"),
        ("find_skills", {"task": TASK, "filters": {"colour": ["red"]}}, "filters.colour"),
        ("find_skills", {"task": "x" * 300_000}, "limit"),
        ("read_skill", {"skill_id": "crafts:nothing"}, "no skill 'crafts:nothing'"),
        ("read_skill", {"skill_id": "crafts:broken"}, "could not be read"),
        ("read_skill", {"skill_id": KILN, "lines": "9000"}, "beyond the end"),
        ("read_skill", {"skill_id": KILN, "lines": "a-b"}, 'write lines as "36-42, 60"'),
        ("read_skill", {"skill_id": KILN, "passages": [99]}, "numbered 0 to"),
        ("read_skill", {"skill_id": KILN, "budget": 200_001}, "200000"),
        ("read_skill", {"skill_id": "\0"}, "no id of a skill"),
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
        assert not (
            await client.call_tool("find_skills", {"task": TASK, "budget": budget})
        ).is_error

    _with(library.home, err)


TRAVERSAL = [
    "../../etc/passwd",
    "/etc/passwd",
    "crafts:../../../../etc/passwd",
    "crafts:kiln-firing/../../../home/serve.sock",
    "crafts:kiln-firing/SKILL.md",
    "crafts:kiln-firing/",
    "crafts:./kiln-firing",
    "CRAFTS:kiln-firing",
    "crafts:kiln-firing\0",
    "crafts:%2e%2e/x",
    "file:///etc/passwd",
    "crafts:",
    "*",
    "'; DROP TABLE entries; --",
]


def test_nothing_outside_the_catalog_can_be_read(library: Skillbus) -> None:
    async def read(client: Client) -> None:
        (content,) = (await client.read_resource(f"skillbus://skills/{quote(KILN, '')}")).contents
        assert content.mime_type == "text/markdown"
        assert "Prepare the kiln firing" in content.text  # type: ignore[union-attr]  # no blob
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

    _with(library.home, read)


def test_ids_with_slashes_and_odd_letters(fork_server: ForkServer, tmp_path: Path) -> None:
    # A source of one letter makes the id look like a path on a Windows drive.
    write_skill(tmp_path / "c", "glass/blowing 100% 吹玻璃", "Blow a glass vase")
    skillbus = Skillbus(fork_server, tmp_path / "home")
    skillbus("sync", str(tmp_path / "c"))
    (skill_id,) = skillbus.skills()
    assert skill_id == "c:glass/blowing 100% 吹玻璃"

    async def read(client: Client) -> None:
        (content,) = (
            await client.read_resource(f"skillbus://skills/{quote(skill_id, '')}")
        ).contents
        assert "1. Prepare the blowing 100% 吹玻璃." in content.text  # type: ignore[union-attr]

    _with(skillbus.home, read)


def test_what_the_policy_withholds_cannot_be_read_either(library: Skillbus) -> None:
    async def run() -> None:
        policy = {"SKILLBUS_POLICY__SOURCES": '{"crafts": "withhold"}'}
        async with over_stdio(library.home, **policy) as client:
            result = await client.call_tool("read_skill", {"skill_id": KILN})
            assert result.is_error
            assert "withheld by policy: nothing of its source is sent" in text_of(result)
            with pytest.raises(MCPError, match="withheld by policy"):
                await client.read_resource(f"skillbus://skills/{quote(KILN, '')}")

    asyncio.run(run())


def test_without_a_library_it_says_what_to_do(tmp_path: Path) -> None:
    async def ask(client: Client) -> None:
        for name, arguments in (("find_skills", {"task": TASK}), ("list_sources", {})):
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert "run `skillbus sync DIR` first" in text_of(result)

    _with(tmp_path / "none", ask)


def test_who_stops_waiting_does_not_hold_up_the_next(library: Skillbus) -> None:
    async def leave(client: Client) -> None:
        # The first query waits for the models, which takes seconds.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.call_tool("find_skills", {"task": TASK})
        started = time.monotonic()
        assert (await client.list_tools()).tools
        assert time.monotonic() - started < 2
        found = await client.call_tool("find_skills", {"task": TASK})
        assert not found.is_error, text_of(found)

    _with(library.home, leave)


def test_a_running_serve_answers_and_one_that_ended_is_done_without(
    fork_server: ForkServer, folder: Path, tmp_path: Path
) -> None:
    skillbus = Skillbus(fork_server, tmp_path / "home")
    skillbus("sync", str(folder))

    def asked() -> int:
        with skillbus.client() as client:
            text = client.get("/metrics").text
        found = [
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("skillbus_queries_total{")
        ]
        return int(sum(found))

    async def work(client: Client) -> None:
        with skillbus.serving():
            found = await client.call_tool("find_skills", {"task": TASK})
            assert not found.is_error, text_of(found)
            assert asked() == 1
            write_skill(folder, "glass-blowing", "Blow a glass vase")
            await asyncio.to_thread(wait_for, lambda: "crafts:glass-blowing" in skillbus.skills())
            read = await client.call_tool("read_skill", {"skill_id": "crafts:glass-blowing"})
            assert not read.is_error, text_of(read)
        found = await client.call_tool("find_skills", {"task": "blow a glass vase"})
        assert not found.is_error, text_of(found)
        assert "crafts:glass-blowing" in text_of(found)

    _with(skillbus.home, work)


def _initialise(protocol: str = "2025-06-18") -> str:
    return json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": protocol,
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        }
    )


def _call(number: int, **arguments: Any) -> str:
    return json.dumps(
        {
            "jsonrpc": "2.0",
            "id": number,
            "method": "tools/call",
            "params": {"name": "read_skill", "arguments": arguments},
        }
    )


def test_initialize_is_answered_before_models_are_loaded_and_only_the_protocol_is_written(
    library: Skillbus, tmp_path: Path
) -> None:
    lines = [
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        "not JSON",
        '{"jsonrpc": "2.0", "id": 7}',
        _call(3, skill_id="\ud800"),
        _call(4, skill_id=KILN, lines="1\ud800"),
        _call(2, skill_id=KILN),
    ]
    errors = (tmp_path / "errors").open("w+", encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "workers.cli", "mcp"],
        cwd=ROOT,
        env={**clean_environment(), "SKILLBUS_HOME": str(library.home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        encoding="utf-8",
    )
    with errors, process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(_initialise() + "\n")
        process.stdin.flush()
        first = json.loads(process.stdout.readline())
        assert first["result"]["serverInfo"]["name"] == "skillbus"
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        told = []
        while not told or told[-1].get("id") != 2:
            told.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait(30) == 0
        errors.seek(0)
        err = errors.read()
    assert "Prepare the kiln" in told[-1]["result"]["content"][0]["text"]
    for answer in told[:-1]:
        assert "error" in answer or answer["result"]["isError"]
    # What is loaded for the first answer has neither models nor workers in it.
    imported = [
        line.rpartition("|")[2].strip() for line in err.splitlines() if "import time:" in line
    ]
    before = imported[: imported.index("workers.mcp_server.stdio") + 1]
    assert not {"torch", "sentence_transformers", "sklearn"}.intersection(before)
