"""Time limits on threads are deadlines, and what fails is isolated, retried and never lost."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from config.errors import PermanentError, TransientError
from graph.records import SkillState
from search.skill_analysis import SkillAnalysis, analyse_skill
from skills.events import QueryAsked, SourceChanged
from skills.record import ParsedSkill
from tasks import policies
from tasks.ingest.next_tasks import send_unembedded
from tests.support.program.program import wait_for
from tests.support.samples.library import TOPICS, write_skill, write_topics
from tests.support.samples.tiny import TinyEncoder, settle, tiny_backend
from workers.backend.embedded import EmbeddedBackend

IDS = {f"crafts:{name}" for name in TOPICS}
POISON = "crafts:tide-tables"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_topics(tmp_path / "crafts")


def _limit(monkeypatch: pytest.MonkeyPatch, name: str, **changes: Any) -> None:
    """Give one kind of task another policy."""
    policy = dataclasses.replace(policies.POLICIES[name], **changes)
    monkeypatch.setitem(policies.POLICIES, name, policy)


def _sync(backend: EmbeddedBackend, root: Path) -> str:
    return backend.submit(SourceChanged(source_id="crafts", root=str(root)), "tests")


def _states(backend: EmbeddedBackend) -> dict[str, SkillState]:
    return {entry.skill_id: entry.state for entry in backend.services.graph.get_entries()}


def _poison(texts: Sequence[str]) -> None:
    if any("tide tables" in text for text in texts):
        raise ZeroDivisionError("this text breaks the encoder")


def _poison_analysis(monkeypatch: pytest.MonkeyPatch, poison: Callable[[], None]) -> None:
    """Call `poison` before the analysis of one of the skills."""

    def analyse(parsed: ParsedSkill) -> SkillAnalysis:
        if parsed.record.name == "tide-tables":
            poison()
        return analyse_skill(parsed)

    monkeypatch.setattr("tasks.ingest.preparation.prepare.analyse_skill", analyse)


def test_a_poisonous_skill_fails_alone(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poison() -> None:
        raise ZeroDivisionError("this text breaks the analysis")

    _poison_analysis(monkeypatch, poison)
    with tiny_backend(tmp_path / "home") as backend:
        _sync(backend, root)
        settle(backend)
        (entry,) = backend.services.graph.get_entries([POISON])
        assert entry.state is SkillState.FAILED
        assert "ZeroDivisionError: this text breaks the analysis" in entry.reason
        assert {name for name, state in _states(backend).items() if state == "published"} == (
            IDS - {POISON}
        )
    monkeypatch.undo()
    with tiny_backend(tmp_path / "home") as backend:
        write_skill(root, "tide-tables", "Read tide tables anew")
        _sync(backend, root)
        settle(backend)
        assert set(_states(backend).values()) == {SkillState.PUBLISHED}


def test_a_skill_that_breaks_the_encoder_is_found_by_words(tmp_path: Path, root: Path) -> None:
    home = tmp_path / "home"
    workers, passages = {"reconcile_seconds": 0.5}, {"milliseconds": 0}
    encoder = TinyEncoder(_poison)
    with tiny_backend(home, encoder, workers=workers, passages=passages) as backend:
        graph = backend.services.graph
        _sync(backend, root)
        wait_for(lambda: POISON in backend.services.coordinator.task_error)
        assert "ZeroDivisionError" in backend.services.coordinator.task_error
        wait_for(lambda: graph.get_counts()["embedded"] == len(TOPICS) - 1)
        assert graph.get_counts()["with_vectors"] == len(TOPICS) - 1
        assert not graph.get_entries([POISON])[0].has_vectors
        bundle = backend.answer_query(QueryAsked(task="tide times of a harbour"), "tests")
        assert bundle["skills"][0]["skill_id"] == POISON
        assert "ranked by words: their vectors are not computed yet" in bundle["degraded"][0]
        wait_for(lambda: backend.journal.count_dead_letters() == 2)
        assert send_unembedded(backend.services) == {"embed_skills": 0, "embed_sections": 0}
        write_skill(root, "tide-tables", "Read the times of high water", name="high-water")
        _sync(backend, root)
        wait_for(lambda: graph.get_counts()["embedded"] == len(TOPICS))
    with tiny_backend(home) as backend:
        settle(backend)
        bundle = backend.answer_query(QueryAsked(task="tide times of a harbour"), "tests")
        assert bundle["degraded"] == []


def test_a_skill_that_poisons_embedding_leaves_others_embedded(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    armed = False

    def poison(texts: Sequence[str]) -> None:
        if armed:
            _poison(texts)

    home = tmp_path / "home"
    write_skill(root, "tide-tables", body="## Steps\n\n1. Read the tide tables twice.\n")
    with tiny_backend(home, TinyEncoder(poison)) as backend:
        graph = backend.services.graph
        mark = graph.mark_embedded
        monkeypatch.setattr(graph, "mark_embedded", lambda keys: None)
        _sync(backend, root)
        wait_for(lambda: graph.get_counts()["published"] == len(TOPICS))
        monkeypatch.setattr(backend.services.index, "get_cached_vectors", lambda hashes: {})
        armed = True
        wait_for(lambda: POISON in backend.services.coordinator.task_error)
        assert "ZeroDivisionError" in backend.services.coordinator.task_error
        monkeypatch.setattr(graph, "mark_embedded", mark)
        backend.send_maintenance()
        wait_for(lambda: graph.get_counts()["embedded"] == len(TOPICS) - 1)
    with tiny_backend(home) as backend:
        settle(backend)


def test_ingest_beyond_its_time_is_tried_alone_then_reported(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _limit(monkeypatch, policies.INGEST.name, time_limit=5.0, max_retries=1)
    tries = 0

    def slow() -> None:
        nonlocal tries
        tries += 1
        time.sleep(5.5)

    _poison_analysis(monkeypatch, slow)
    with tiny_backend(tmp_path / "home") as backend:
        _sync(backend, root)
        settle(backend)
        states = _states(backend)
        assert {name for name, state in states.items() if state == "published"} == IDS - {POISON}
        (entry,) = backend.services.graph.get_entries([POISON])
        assert entry.state is SkillState.FAILED
        assert "DeadlineExceededError: read: not done within 5 s" in entry.reason
        assert tries == 2, "in the batch, then alone: what took its time is not begun again"


def test_what_may_pass_waits_for_the_reconciler(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _limit(monkeypatch, policies.EMBED_SKILLS.name, max_retries=1, retry_backoff=0.01)
    broken = True

    def busy(texts: Sequence[str]) -> None:
        if broken:
            raise TransientError("the disk is full")

    settings = {"reconcile_seconds": 0.5}
    with tiny_backend(tmp_path / "home", TinyEncoder(busy), workers=settings) as backend:
        _sync(backend, root)
        wait_for(lambda: backend.services.coordinator.task_error == "the disk is full")
        assert set(_states(backend).values()) == {SkillState.PUBLISHED}
        assert backend.services.graph.get_counts()["with_vectors"] == 0
        broken = False
        settle(backend)
        wait_for(lambda: backend.services.coordinator.task_error == "")


def test_plan_beyond_its_time_goes_on_later(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _limit(monkeypatch, policies.PLAN.name, time_limit=1e-9, max_retries=1, retry_backoff=0.01)
    home = tmp_path / "home"
    with tiny_backend(home) as backend:
        event_id = _sync(backend, root)
        wait_for(lambda: "plan: not done within" in backend.services.coordinator.task_error)
        assert backend.services.journal.get_job(event_id).state == "accepted"
    monkeypatch.undo()
    with tiny_backend(home) as backend:
        settle(backend)
        assert backend.services.journal.get_job(event_id).state == "done"
        assert set(_states(backend)) == IDS


def test_plan_that_breaks_fails_its_event(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("no such day")

    monkeypatch.setattr("tasks.sources.directory.scan", broken)
    with tiny_backend(tmp_path / "home") as backend:
        event_id = _sync(backend, root)
        wait_for(lambda: backend.services.journal.get_job(event_id).state == "failed")
        assert "ZeroDivisionError: no such day" in backend.services.journal.get_job(event_id).reason


def test_a_query_beyond_its_time_fails_with_a_reason(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tiny_backend(tmp_path / "home") as backend:
        _sync(backend, root)
        settle(backend)
    _limit(monkeypatch, policies.QUERY.name, time_limit=1e-9, max_retries=1, retry_backoff=0.01)
    with tiny_backend(tmp_path / "home", workers={"query_seconds": 60}) as backend:
        query_id = backend.submit_query(QueryAsked(task="fire a kiln"), "tests")
        wait_for(lambda: backend.services.journal.get_job(query_id).state == "failed")
        assert "not done within" in backend.services.journal.get_job(query_id).reason
        with pytest.raises((PermanentError, TransientError), match="not done within"):
            backend.answer_query(QueryAsked(task="fire a kiln"), "tests")


def test_a_deadline_tells_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    deadline = policies.Deadline(0.01)
    deadline.check("early")
    now[0] += 0.02
    assert deadline.remaining() == 0.0
    with pytest.raises(policies.DeadlineExceededError, match=r"late: not done within 0\.01 s"):
        deadline.check("late")
