"""Backends: which one is opened, how `serve` is called, and how the end of an event is awaited."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import workers.backend.distributed
import workers.backend.selector
import workers.processes.warm_up
from config.errors import (
    NotFoundError,
    PermanentError,
    SkillbusError,
    TransientError,
    UsageError,
)
from config.settings import Settings
from graph.records import SafetyRecord
from skills.events import QueryAsked, SourceChanged
from tests.support.samples.library import write_skill
from tests.support.samples.tiny import settle, tiny_backend
from workers.backend.distributed import DistributedBackend
from workers.backend.factory import open_backend
from workers.backend.protocol import Backend, EventStatus
from workers.backend.selector import BackendSelector
from workers.backend.serve import ServeBackend
from workers.backend.serve_client import ServeClient
from workers.cli.waiting import wait_for_event
from workers.http.routes.operations.health import _get_reasons


class FakeClient:
    """Records requests and gives prepared responses; it is alive until closed."""

    def __init__(self, **responses: Any) -> None:
        self.responses = responses
        self.requests: list[str] = []
        self.alive = True

    def get(self, path: str) -> Any:
        return self._answer(f"GET {path}")

    def post(self, path: str, body: Any) -> Any:
        return self._answer(f"POST {path}")

    def delete(self, path: str) -> Any:
        return self._answer(f"DELETE {path}")

    def _answer(self, request: str) -> Any:
        self.requests.append(request)
        response = self.responses[request.partition(" ")[0]]
        if isinstance(response, Exception):
            raise response
        return response

    def is_alive(self) -> bool:
        return self.alive

    def close(self) -> None:
        self.alive = False


def serve_backend(home: Path, client: FakeClient) -> ServeBackend:
    return ServeBackend(Settings(home=home), cast(ServeClient, client))


def test_queries_are_sent_to_serve(tmp_path: Path) -> None:
    client = FakeClient(
        GET={"id": "q", "state": "accepted", "stages": ["encode"]},
        POST={"id": "q"},
        DELETE=NotFoundError("no query"),
    )
    with serve_backend(tmp_path, client) as backend:
        assert backend.submit_query(QueryAsked(task="bake bread"), "test") == "q"
        status = backend.get_query_status("q")
        assert (status.state, status.stages, status.bundle) == ("accepted", ("encode",), None)
        backend.cancel_query("q")  # an unknown query has ended
    assert client.requests == ["POST /v1/queries", "GET /v1/queries/q", "DELETE /v1/queries/q"]
    assert not client.alive


def test_a_look_at_an_answer_counts_no_use_of_its_skills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(tmp_path / "crafts", "kiln-firing", "Fire stoneware in a kiln")
    used: list[Sequence[str]] = []
    with tiny_backend(tmp_path / "home") as backend:
        backend.submit(SourceChanged(source_id="crafts", root=str(tmp_path / "crafts")), "test")
        settle(backend)
        monkeypatch.setattr(backend.services.usage_counter, "record", used.append)
        for record_use in (False, True):
            request = QueryAsked(task="Fire stoneware in a kiln", record_use=record_use)
            assert backend.answer_query(request, "test")["status"] == "SKILL_HIT"
            assert used == ([["crafts:kiln-firing"]] if record_use else [])


def test_the_catalog_is_opened_only_when_it_is_read(tmp_path: Path) -> None:
    backend = serve_backend(tmp_path, FakeClient(POST={"status": "SKILL_HIT"}))
    assert backend.answer_query(QueryAsked(task="bread"), "test") == {"status": "SKILL_HIT"}
    with pytest.raises(UsageError, match="no library in"):
        _ = backend.graph


def test_a_reader_without_serve_needs_a_library(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no library in"):
        open_backend(Settings(home=tmp_path), writable=False)


def test_a_process_follows_serve_as_it_starts_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[ServeBackend] = []
    own = cast(Any, type("Own", (), {"start": lambda _: None, "stop": lambda _: None}))()
    monkeypatch.setattr(
        workers.backend.selector, "find_serve", lambda _: running[-1] if running else None
    )
    monkeypatch.setattr(workers.backend.selector, "open_store_backend", lambda *_, **__: own)
    selector = BackendSelector(Settings(home=tmp_path))
    assert selector.select() is own
    client = FakeClient()
    running.append(serve_backend(tmp_path, client))
    assert selector.select() is running[0]
    running.clear()
    client.alive = False
    assert selector.select() is own
    selector.close()


class FakeBackend:
    """An event with prepared states, and a problem."""

    def __init__(self, *states: EventStatus, problem: str = "", wait_reason: str = "") -> None:
        self._states = list(states)
        self._problem = problem
        self._wait_reason = wait_reason

    def get_event_status(self, event_id: str) -> EventStatus:
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]

    def get_problem(self) -> str:
        return self._problem

    def get_wait_reason(self) -> str:
        return self._wait_reason


def wait(backend: FakeBackend, **options: Any) -> dict[str, Any]:
    return wait_for_event(cast(Backend, backend), "e", **options)


def test_the_outcome_of_an_event_is_awaited() -> None:
    looks: list[int] = []
    backend = FakeBackend(EventStatus("accepted"), EventStatus("done", outcome={"removed": 2}))
    outcome = wait(backend, on_poll=lambda: looks.append(1), is_complete=lambda: len(looks) > 3)
    assert (outcome, len(looks)) == ({"removed": 2}, 4)


def test_a_failed_event_raises_its_reason() -> None:
    with pytest.raises(PermanentError, match="no such folder"):
        wait(FakeBackend(EventStatus("failed", "no such folder")))


def test_what_is_waited_for_is_noted_once(capsys: pytest.CaptureFixture[str]) -> None:
    accepted = EventStatus("accepted")
    backend = FakeBackend(accepted, accepted, EventStatus("done"), wait_reason="no worker yet")
    wait(backend)
    assert capsys.readouterr().err == "no worker yet\n"


def test_a_worker_that_starts_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now, alive = 0.0, False
    monkeypatch.setattr(time, "monotonic", lambda: now)
    backend = object.__new__(DistributedBackend)
    backend._last_worker_seen = now
    backend.coordinator = cast(
        Any, SimpleNamespace(alive_workers=lambda: ["w"] if alive else [], task_error="")
    )
    assert (backend.get_problem(), backend.get_wait_reason()) == ("", "")
    now = 29.0
    assert backend.get_problem() == ""
    assert "waiting up to 30 seconds for a worker" in backend.get_wait_reason()
    now = 31.0
    assert backend.get_problem() == "no worker is running; start one with `skillbus worker`"
    alive = True
    assert (backend.get_problem(), backend.get_wait_reason()) == ("", "")


def test_stalled_processing_ends_the_wait() -> None:
    with pytest.raises(TransientError, match="disk full; try the next sync"):
        wait(
            FakeBackend(EventStatus("accepted"), problem="disk full"),
            stalled_hint="try the next sync",
        )


def test_a_backend_is_warming_until_the_library_is_read(tmp_path: Path) -> None:
    with tiny_backend(tmp_path / "home") as backend:
        assert not backend.warming
        with backend.services.library._lock:
            thread = backend.start_warm_up()
            assert backend.warming
            assert _get_reasons(backend) == ["models and library are not loaded yet"]
        thread.join(60)
        assert not backend.warming
        assert _get_reasons(backend) == []


@pytest.mark.parametrize(
    ("error", "ready"), [(TransientError("locked"), True), (PermanentError("damaged"), False)]
)
def test_a_warm_up_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: SkillbusError, ready: bool
) -> None:
    """After a transient error the first query loads the library."""

    def fail() -> None:
        raise error

    with tiny_backend(tmp_path / "home") as backend:
        monkeypatch.setattr(backend, "warm_up", fail)
        backend.start_warm_up().join(60)
        assert (not backend.warming, not _get_reasons(backend)) == (ready, ready)


def test_a_warm_process_has_the_safety_records_of_all_skills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"kiln-firing": "Fire stoneware in a kiln", "sourdough": "Bake bread with wild yeast"}
    for name, description in texts.items():
        write_skill(tmp_path / "crafts", name, description)
    with tiny_backend(tmp_path / "home") as backend:
        backend.submit(SourceChanged(source_id="crafts", root=str(tmp_path / "crafts")), "test")
        settle(backend)
    read: list[str] = []
    with tiny_backend(tmp_path / "home") as backend:
        graph = backend.services.graph
        original = graph.get_safety_records

        def keep_read(ids: Sequence[str]) -> list[SafetyRecord]:
            read.extend(ids)
            return original(ids)

        monkeypatch.setattr(graph, "get_safety_records", keep_read)
        # A query for a skill reads its candidates, which in a small library are all.
        monkeypatch.setattr(workers.processes.warm_up, "rank_skills", lambda _: None)
        backend.warm_up()
        assert set(read) == {f"crafts:{name}" for name in texts}
        read.clear()
        request = QueryAsked(task="Fire stoneware in a kiln")
        assert backend.answer_query(request, "test")["status"] == "SKILL_HIT"
        assert read == []


def test_only_a_backend_that_was_warmed_up_undoes_the_freeze_of_its_process(tmp_path: Path) -> None:
    """A preloaded process, which others are forked from, has frozen what it loaded."""
    thresholds = gc.get_threshold()
    gc.freeze()
    with tiny_backend(tmp_path / "home"):
        pass
    assert gc.get_freeze_count() > 0
    try:
        with tiny_backend(tmp_path / "home") as backend:
            backend.warm_up()
            assert gc.get_threshold() > thresholds
        assert gc.get_freeze_count() == 0
        assert gc.get_threshold() == thresholds
    finally:
        gc.freeze()
