"""A client that stops waiting has its query ended, at whatever moment it leaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import anyio
import pytest
from anyio import to_thread
from mcp import Client

from config.errors import MisconfiguredError, TransientError
from config.settings import Settings
from skills.access import UNRESTRICTED, Reader
from skills.events import QueryAsked
from tests.support.servers.mcp import text_of
from workers.backend.factory import open_skill_reader
from workers.backend.protocol import Backend, QueryStatus
from workers.mcp.query_runner import QueryRunner
from workers.mcp.server import create_server

T = TypeVar("T")


class SlowBackend:
    """Takes its time to accept a query, and never answers it."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.open: list[str] = []
        self.begun = threading.Event()

    def submit_query(
        self, request: QueryAsked, origin: str, owner: str = "", reader: Reader = UNRESTRICTED
    ) -> str:
        self.begun.set()
        time.sleep(self.seconds)
        self.open.append(f"{owner}: {request.task}")
        return self.open[-1]

    def get_query_status(self, query_id: str) -> QueryStatus:
        return QueryStatus("accepted", ("understand",))

    def cancel_query(self, query_id: str) -> None:
        self.open.remove(query_id)


async def _in_thread(function: Callable[[], T], abandon: bool = False) -> T:
    return await to_thread.run_sync(function, abandon_on_cancel=abandon)


async def ignore_progress(progress: int, total: int | None, message: str) -> None:
    pass


@pytest.mark.parametrize("seconds", [0.0, 0.2])
def test_who_leaves_before_or_after_it_is_accepted(seconds: float) -> None:
    backend = SlowBackend(seconds)
    messages: list[str] = []

    async def report_progress(progress: int, total: int | None, message: str) -> None:
        messages.append(message)

    async def ask() -> None:
        await QueryRunner(_in_thread, 60.0, report_progress).run(
            cast(Backend, backend), QueryAsked(task="x"), "ada", UNRESTRICTED
        )

    async def leave() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            while not (backend.begun.is_set() if seconds else messages):
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()

    anyio.run(leave)
    assert backend.open == []
    assert messages[:1] == ["asked"]


def test_a_query_that_is_not_answered_in_time_is_ended() -> None:
    backend = SlowBackend()

    async def wait() -> None:
        with pytest.raises(TransientError, match="no answer within"):
            await QueryRunner(_in_thread, 0.05, ignore_progress).run(
                cast(Backend, backend), QueryAsked(task="x"), "", UNRESTRICTED
            )

    anyio.run(wait)
    assert backend.open == []


class LateBackend(SlowBackend):
    """Answers a query at the moment that it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = False

    def get_query_status(self, query_id: str) -> QueryStatus:
        return QueryStatus("done" if self.answered else "accepted", ())

    def cancel_query(self, query_id: str) -> None:
        self.answered = True


def test_a_query_that_ends_while_it_is_cancelled_is_answered() -> None:
    async def ask() -> QueryStatus:
        return await QueryRunner(_in_thread, 0.05, ignore_progress).run(
            cast(Backend, LateBackend()), QueryAsked(task="x"), "", UNRESTRICTED
        )

    assert anyio.run(ask).state == "done"


def test_an_agent_is_not_shown_settings(tmp_path: Path) -> None:
    def select_backend() -> Backend:
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
