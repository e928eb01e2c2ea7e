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

from config.errors import MisconfiguredError, TransientError
from config.settings import Settings
from skills.events import QueryAsked
from tests.support.servers.mcp import text_of
from workers.backend.factory import open_skill_reader
from workers.backend.protocol import QueryStatus
from workers.mcp.query_runner import QueryBackend, QueryRunner
from workers.mcp.server import create_server

T = TypeVar("T")


class SlowBackend:
    """Takes its time to accept a query, and never answers it."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.open: list[str] = []

    def submit_query(self, request: QueryAsked, origin: str, owner: str = "") -> str:
        time.sleep(self.seconds)
        self.open.append(f"{owner}: {request.task}")
        return self.open[-1]

    def get_query_status(self, query_id: str) -> QueryStatus:
        return QueryStatus("accepted", ("understand",))

    def cancel_query(self, query_id: str) -> None:
        self.open.remove(query_id)


async def _in_thread(function: Callable[[], T], abandon: bool = False) -> T:
    return await to_thread.run_sync(function, abandon_on_cancel=abandon)


@pytest.mark.parametrize("seconds", [0.0, 0.2])
def test_who_leaves_before_or_after_it_is_accepted(seconds: float) -> None:
    backend = SlowBackend(seconds)
    messages: list[str] = []

    async def report_progress(progress: int, total: int | None, message: str) -> None:
        messages.append(message)

    async def leave() -> None:
        with anyio.move_on_after(0.1):
            await QueryRunner(_in_thread, 30.0, report_progress).run(
                backend, QueryAsked(task="x"), "ada"
            )

    anyio.run(leave)
    assert backend.open == []
    assert messages[0] == "asked"


def test_a_query_that_is_not_answered_in_time_is_ended() -> None:
    backend = SlowBackend()

    async def report_progress(progress: int, total: int | None, message: str) -> None:
        pass

    async def wait() -> None:
        with pytest.raises(TransientError, match="no answer within"):
            await QueryRunner(_in_thread, 0.05, report_progress).run(
                backend, QueryAsked(task="x"), ""
            )

    anyio.run(wait)
    assert backend.open == []


def test_an_agent_is_not_shown_settings(tmp_path: Path) -> None:
    def select_backend() -> QueryBackend:
        raise MisconfiguredError("password of redis://hidden.example:6379")

    async def said() -> str:
        settings = Settings(home=tmp_path)
        reader = open_skill_reader(settings)
        async with Client(create_server(settings, select_backend, reader)) as client:
            result = await client.call_tool("find_skills", {"task": "true a wheel"})
        assert result.is_error
        return text_of(result)

    text = anyio.run(said)
    assert "a setting of this deployment is wrong" in text
    assert "hidden.example" not in text
