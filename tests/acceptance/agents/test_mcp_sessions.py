"""Sessions over MCP: one for each connection over standard streams, or the id that is given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from deploy.stack.ports import free_port
from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.samples.library import write_topics
from tests.support.servers.mcp import Agent, agent, over_http, over_stdio, text_of

TASK = "fire stoneware in an electric kiln"
KILN = "crafts:kiln-firing"


@pytest.fixture(scope="module")
def home(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Skillbus:
    base = tmp_path_factory.mktemp("mcp-sessions")
    skillbus = Skillbus(fork_server, base / "home")
    skillbus("sync", str(write_topics(base / "crafts")))
    return skillbus


@pytest.fixture
def own(home: Skillbus) -> Iterator[Agent]:
    with agent(over_stdio(home.home)) as connected:
        yield connected


async def find(client: Client, **more: Any) -> Any:
    return await client.call_tool("find_skills", {"task": TASK} | more)


def skills(result: Any) -> list[str]:
    assert not result.is_error, text_of(result)
    return [skill["skill_id"] for skill in result.structured_content["skills"]]


def test_a_connection_is_a_session(own: Agent, home: Skillbus) -> None:
    async def ask(client: Client) -> None:
        assert KILN in skills(await find(client))
        again = await find(client)
        assert again.structured_content["status"] == "SKILL_HIT"
        assert KILN not in skills(again)
        assert "Sent earlier in this session" in text_of(again)
        assert KILN in skills(await find(client, resend=True))

    own(ask)
    with agent(over_stdio(home.home)) as other:
        assert KILN in skills(other(find))


def test_an_id_that_is_given_is_another_session(own: Agent) -> None:
    async def ask(client: Client) -> None:
        assert KILN in skills(await find(client))
        assert KILN in skills(await find(client, session="sub-agent"))
        assert KILN not in skills(await find(client, session="sub-agent"))
        wrong = await find(client, session=" no ")
        assert wrong.is_error
        assert "session" in text_of(wrong)

    own(ask)


def test_an_obstacle_is_answered(own: Agent) -> None:
    async def ask(client: Client) -> None:
        await find(client, brief=True)
        answer = await find(client, obstacle="the stoneware cracked while it was prepared")
        assert not answer.is_error
        assert answer.structured_content["status"] == "SKILL_HIT"

    own(ask)


def test_over_http_a_session_is_the_one_that_is_named(home: Skillbus, tmp_path: Path) -> None:
    """The endpoint keeps no connections; tokens keep sessions apart."""
    port = free_port()
    tokens = {
        name: home("tokens", "add", name, "--scope", "read").out.strip() for name in ("ann", "bob")
    }
    with home.serving("--listen", f"127.0.0.1:{port}"):
        url = f"http://127.0.0.1:{port}/mcp"
        for name, token in tokens.items():
            with agent(over_http(url, token)) as connected:
                assert KILN in skills(wait_for(lambda: connected(find))), name
                assert KILN in skills(connected(find)), name

                async def named(client: Client) -> Any:
                    return await find(client, session="shared name")

                assert KILN in skills(connected(named)), name
                assert KILN not in skills(connected(named)), name

                async def lost(client: Client) -> Any:
                    return await find(client, resend=True)

                assert connected(lost).is_error
