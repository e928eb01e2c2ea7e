"""A client that stops waiting has its query ended, at whatever moment it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
from anyio import to_thread
from mcp import Client

from config.errors import SetupError, TransientError
from config.settings import Settings
from skills.events import QueryAsked
from tests.support.mcp import text_of
from workers.mcp.query_calls import Asking
from workers.mcp.server import create_server
from workers.mcp.skill_reader import Shelf
from workers.mcp.ways import Standing, Way

T = TypeVar("T")


class SlowWay:
    """Takes its time to accept a query, and never answers it."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.open: list[str] = []

    def ask(self, asked: QueryAsked, owner: str) -> str:
        time.sleep(self.seconds)
        self.open.append(f"{owner}: {asked.task}")
        return self.open[-1]

    def look(self, query_id: str) -> Standing:
        return Standing("accepted", ("understand",))

    def cancel(self, query_id: str) -> None:
        self.open.remove(query_id)


async def _in_thread(function: Callable[[], T], abandon: bool = False) -> T:
    return await to_thread.run_sync(function, abandon_on_cancel=abandon)


@pytest.mark.parametrize("seconds", [0.0, 0.2])
def test_who_leaves_before_or_after_it_is_accepted(seconds: float) -> None:
    way = SlowWay(seconds)
    told: list[str] = []

    async def tell(progress: int, total: int | None, message: str) -> None:
        told.append(message)

    async def leave() -> None:
        with anyio.move_on_after(0.1):
            await Asking(_in_thread, 30.0, tell).answer(way, QueryAsked(task="x"), "ada")

    anyio.run(leave)
    assert way.open == []
    assert told[0] == "asked"


def test_a_query_that_is_not_answered_in_time_is_ended() -> None:
    way = SlowWay()

    async def tell(progress: int, total: int | None, message: str) -> None:
        pass

    async def wait() -> None:
        with pytest.raises(TransientError, match="no answer within"):
            await Asking(_in_thread, 0.05, tell).answer(way, QueryAsked(task="x"), "")

    anyio.run(wait)
    assert way.open == []


def test_an_agent_is_not_told_of_settings(tmp_path: Path) -> None:
    def find_way() -> Way:
        raise SetupError("password of redis://hidden.example:6379")

    async def said() -> str:
        settings = Settings(home=tmp_path)
        async with Client(create_server(settings, find_way, Shelf(settings))) as client:
            result = await client.call_tool("find_skills", {"task": "true a wheel"})
        assert result.is_error
        return text_of(result)

    text = anyio.run(said)
    assert "a setting of this deployment is wrong" in text
    assert "hidden.example" not in text
