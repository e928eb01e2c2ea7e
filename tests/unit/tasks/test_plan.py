"""Plan: what a sync would do, batches of about the same work, and what events change."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import TransientError
from config.settings import LimitSettings, Settings
from graph.records import Publication, SkillState, Source
from skills.events import (
    Event,
    QueryFailed,
    SkillRemoved,
    SkillUpserted,
    SourceChanged,
    SourceRemoved,
    new_event,
)
from skills.record import RevisionKey
from tasks.ingest.diff import _batch_paths, make_skill_id, preview_sync
from tasks.ingest.plan import plan
from tasks.journal.protocol import trace_of
from tasks.policies import FETCH, LINK, PLAN, Deadline
from tasks.sources.directory import DirectoryReader, scan
from tasks.sources.protocol import SourceReader, SourceScan
from tasks.sources.readers import open_reader
from tasks.sources.skill_folder import read_skill_folder
from tests.support.samples.planning import PlanServices

LIMITS = LimitSettings()


def put(path: Path, text: str = "---\nname: x\n---\nBody.\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    moment = time.time() - 100
    os.utime(path, (moment, moment))


class Services(PlanServices):
    """What plan needs, and what comes after it."""

    def publish_waiting(self) -> None:
        """What ingest would do, without parsing."""
        roots = {source.source_id: Path(source.root) for source in self.graph.list_sources()}
        for entry in self.graph.list_awaiting_ingest(1000):
            folder = read_skill_folder(roots[entry.source_id], entry.path, LIMITS)
            key = RevisionKey(entry.skill_id, self.graph.allocate_sequence(1)[0])
            self.graph.publish(
                [Publication(key, entry.source_id, entry.path, folder.content_hash, "x", "")]
            )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "skills"
    folder.mkdir()
    return folder.resolve()


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with Services.opened(tmp_path) as services:
        yield services


def everything(root: Path, *paths: str) -> SourceChanged:
    return SourceChanged(source_id="team", root=str(root), paths=paths)


# -- identity and batches


def test_the_root_has_a_path_of_its_own() -> None:
    assert make_skill_id("team", "") == "team:."
    assert make_skill_id("team", "a/b") == "team:a/b"


@given(st.lists(st.integers(0, 300_000), max_size=150))
@settings(max_examples=100, deadline=None)
def test_batches_keep_order_and_are_bounded(sizes: list[int]) -> None:
    paths = [f"skill-{number}" for number in range(len(sizes))]
    found = SourceScan(sizes=dict(zip(paths, sizes, strict=True)))
    chunks = list(_batch_paths(paths, found))
    assert [path for chunk in chunks for path in chunk] == paths
    for chunk in chunks:
        assert 1 <= len(chunk) <= 32
        # Only the last of a batch may lead over the bound.
        assert sum(found.sizes[path] for path in chunk[:-1]) < 192_000


# -- preview


def test_a_preview_without_a_library_calls_everything_new(root: Path) -> None:
    put(root / "a" / "SKILL.md")
    put(root / "b" / "SKILL.md")
    assert preview_sync(None, everything(root), LIMITS) == {
        "new": ["team:a", "team:b"],
        "changed": [],
        "removed": [],
        "refused": [],
    }


def test_a_preview_tells_kinds_apart_and_writes_nothing(
    root: Path, services: Services, tmp_path: Path
) -> None:
    for name in ("kept", "edited", "touched", "gone"):
        put(root / name / "SKILL.md")
    services.run(everything(root))
    services.publish_waiting()
    put(root / "edited" / "SKILL.md", "other text")
    os.utime(root / "touched" / "SKILL.md")
    (root / "gone" / "SKILL.md").unlink()
    put(root / "new" / "SKILL.md")
    put(tmp_path / "outside" / "SKILL.md")
    (root / "link").symlink_to(tmp_path / "outside")
    before = services.graph.get_entries(), services.graph.get_file_signatures("team")
    assert preview_sync(services.graph, everything(root), LIMITS) == {
        "new": ["team:new"],
        "changed": ["team:edited"],
        "removed": ["team:gone"],
        "refused": ["team:link"],
    }
    assert (services.graph.get_entries(), services.graph.get_file_signatures("team")) == before


# -- events


def test_a_whole_sync_asks_for_each_skill_once(root: Path, services: Services) -> None:
    for number in range(40):
        put(root / f"s{number}" / "SKILL.md")
    job = services.run(everything(root))
    assert job.state == "done"
    assert job.outcome == {"found": 40, "changed": 40, "removed": 0}
    assert len(services.ingested()) == len(set(services.ingested())) == 40
    assert len(services.sent) == services.coordinator.announced == 2
    assert services.graph.get_counts()["waiting"] == 40


def test_an_unchanged_library_asks_for_nothing(root: Path, services: Services) -> None:
    put(root / "a" / "SKILL.md")
    services.run(everything(root))
    services.publish_waiting()
    for touched in (False, True):
        if touched:
            os.utime(root / "a" / "SKILL.md")
        assert services.run(everything(root)).outcome == {"found": 1, "changed": 0, "removed": 0}
        assert services.sent == []


def test_a_skill_that_breaks_the_parser_does_not_hold_up_its_source(
    root: Path, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        put(root / name / "SKILL.md")
    services.run(everything(root))
    services.publish_waiting()
    key = RevisionKey("team:a", services.graph.allocate_sequence(1)[0])
    services.graph.record_failures([(key, "team", "a", "ingest failed unexpectedly: KeyError")])

    def break_down(*_: object) -> None:
        raise KeyError

    monkeypatch.setattr("tasks.ingest.diff.parse_skill", break_down)
    put(root / "b" / "SKILL.md", "other")
    assert services.run(everything(root)).state == "done"
    assert services.ingested() == ["team:b"]
    monkeypatch.undo()
    services.run(everything(root))
    assert "team:a" in services.ingested(), "by a version that can read it"


def test_an_edit_a_removal_and_a_newcomer(root: Path, services: Services) -> None:
    for name in ("a", "b"):
        put(root / name / "SKILL.md")
    services.run(everything(root))
    services.publish_waiting()
    put(root / "a" / "SKILL.md", "other")
    (root / "b").rename(root / "c")
    assert services.run(everything(root)).outcome == {"found": 2, "changed": 2, "removed": 1}
    assert services.ingested() == ["team:a", "team:c"]
    assert (LINK.name, []) in services.sent
    assert services.states() == {"a": "published", "b": "removed", "c": "pending"}


def test_paths_limit_what_is_looked_at(root: Path, services: Services) -> None:
    for name in ("a", "b", "deep/c"):
        put(root / name / "SKILL.md")
    services.run(everything(root))
    services.publish_waiting()
    for name in ("a", "b", "deep/c"):
        put(root / name / "SKILL.md", "other")
    services.run(everything(root, "a/SKILL.md"))
    assert services.ingested() == ["team:a"]
    services.publish_waiting()
    put(root / "b" / "scripts" / "run.py")
    services.run(everything(root, "b/scripts/run.py", "b/scripts"))
    assert services.ingested() == ["team:b"]
    services.publish_waiting()
    services.run(everything(root, "deep"))
    assert services.ingested() == ["team:deep/c"]


def test_paths_in_any_number_and_form_are_looked_at_once(
    root: Path, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "deep/c"):
        put(root / name / "SKILL.md")
    services.run(everything(root))
    services.publish_waiting()
    looked: list[str] = []
    scan = DirectoryReader.scan

    def scanned(reader: DirectoryReader, start: str) -> SourceScan:
        looked.append(start)
        return scan(reader, start)

    monkeypatch.setattr(DirectoryReader, "scan", scanned)
    forms = ["./" * count + "deep" for count in range(1, 200)]
    assert services.run(everything(root, *forms, "deep//c", "deep/c/SKILL.md", "a")).state == "done"
    assert looked == ["a", "deep"]
    looked.clear()
    services.run(everything(root, "a", "./", *forms, ".", "SKILL.md", "none/x"))
    assert looked == [""]
    assert services.states() == {"a": "published", "deep/c": "published"}


def test_a_new_skill_in_the_folder_of_another_takes_its_files_away(
    root: Path, services: Services
) -> None:
    for name in ("a/SKILL.md", "a/in/notes.txt", "b/SKILL.md"):
        put(root / name)
    services.run(everything(root))
    services.publish_waiting()
    put(root / "a" / "in" / "SKILL.md")
    services.run(everything(root, "a/in/SKILL.md"))
    assert services.ingested() == ["team:a", "team:a/in"]
    services.publish_waiting()
    services.run(everything(root))
    assert services.ingested() == []


@pytest.mark.parametrize("paths", [(), ("a", "b/SKILL.md")])
def test_a_folder_without_skills_becomes_no_source(
    root: Path, services: Services, paths: tuple[str, ...]
) -> None:
    job = services.run(everything(root, *paths))
    assert (job.state, job.outcome["found"]) == ("done", 0)
    assert services.graph.list_sources() == []


def test_a_path_that_went_takes_its_skills_along(root: Path, services: Services) -> None:
    for name in ("a", "deep/b", "deep/c"):
        put(root / name / "SKILL.md")
    services.run(everything(root))
    services.publish_waiting()
    for name in ("b", "c"):
        (root / "deep" / name / "SKILL.md").unlink()
    assert services.run(everything(root, "deep")).outcome["removed"] == 2
    assert services.states() == {"a": "published", "deep/b": "removed", "deep/c": "removed"}


def test_a_path_out_of_the_root_fails_the_event_only(root: Path, services: Services) -> None:
    put(root / "a" / "SKILL.md")
    job = services.run(everything(root, "../elsewhere"))
    assert job.state == "failed"
    assert "leads out" in job.reason
    assert services.graph.get_entries() == []


def test_a_root_that_is_away_removes_nothing(root: Path, services: Services) -> None:
    put(root / "a" / "SKILL.md")
    services.run(everything(root))
    services.publish_waiting()
    root.rename(root.with_name("moved"))
    job = services.run(everything(root))
    assert job.state == "failed"
    assert "does not exist" in job.reason
    assert services.states() == {"a": "published"}


def test_a_source_id_of_another_root_is_refused(
    root: Path, services: Services, tmp_path: Path
) -> None:
    put(root / "a" / "SKILL.md")
    services.run(everything(root))
    other = tmp_path / "other"
    put(other / "b" / "SKILL.md")
    job = services.run(everything(other))
    assert job.state == "failed"
    assert "team" in job.reason
    assert list(services.states()) == ["a"]


def test_an_event_is_carried_out_once(root: Path, services: Services) -> None:
    put(root / "a" / "SKILL.md")
    job = services.run(everything(root))
    services.plan(job.id)
    assert services.sent == []


def test_a_link_out_of_the_root_is_a_failed_entry(
    root: Path, services: Services, tmp_path: Path
) -> None:
    put(tmp_path / "outside" / "SKILL.md")
    (root / "link").symlink_to(tmp_path / "outside")
    put(root / "a" / "SKILL.md")
    services.run(everything(root))
    [entry] = services.graph.get_entries(["team:link"])
    assert entry.state is SkillState.FAILED
    assert "out of the source" in entry.reason
    assert services.ingested() == ["team:a"]


def test_skills_and_sources_are_removed_on_request(root: Path, services: Services) -> None:
    for name in ("a", "b"):
        put(root / name / "SKILL.md")
    services.run(everything(root))
    services.publish_waiting()
    assert services.run(SkillRemoved(skill_id="team:a")).outcome == {"removed": 1}
    assert services.states() == {"a": "removed", "b": "published"}
    job = services.run(SkillRemoved(skill_id="team:absent"))
    assert (job.state, "team:absent" in job.reason) == ("failed", True)
    [run] = services.journal.list_task_runs(trace_of(job.event))
    assert (run.outcome, run.error, run.reason) == ("failed", "PermanentError", job.reason)
    assert services.run(SourceRemoved(source_id="team")).outcome == {"removed": 1}
    assert services.graph.list_sources() == []
    job = services.run(SourceRemoved(source_id="team"))
    assert (job.state, "sources list" in job.reason) == ("failed", True)


def test_a_source_is_removed_though_an_ingest_publishes_a_skill_of_it_meanwhile(
    root: Path, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root / "a" / "SKILL.md")
    services.run(everything(root))
    remove = services.graph.remove

    def remove_and_publish(keys: Sequence[RevisionKey]) -> list[str]:
        monkeypatch.undo()
        removed = remove(keys)
        key = RevisionKey("team:a", services.graph.allocate_sequence(1)[0])
        services.graph.publish([Publication(key, "team", "a", "hash", "x", "")])
        return removed

    monkeypatch.setattr(services.graph, "remove", remove_and_publish)
    removal = new_event(SourceRemoved(source_id="team"), "skillbus/test")
    services.accept(removal)
    with pytest.raises(TransientError, match="still has 1 skills"):
        services.plan()
    services.plan()
    assert services.journal.get_job(removal.id).state == "done"
    assert (services.graph.list_sources(), services.states()) == ([], {"a": "removed"})


def test_a_cursor_moves_only_behind_the_requests(
    root: Path, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root / "a" / "SKILL.md")
    services.graph.save_source(Source("team", "directory", str(root)))

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(services.graph, "update_file_signatures", broken)
    with pytest.raises(KeyboardInterrupt):
        services.run(everything(root))
    assert services.graph.get_counts()["waiting"] == 1
    assert services.graph.get_file_signatures("team") == {}
    assert scan(root, "", LIMITS).signatures["a"]


# -- skills by name


def expected_skills(*skill_ids: str) -> list[Event]:
    return [new_event(SkillUpserted(skill_id=one), "skillbus/test") for one in skill_ids]


def carry_out(services: Services, events: list[Event]) -> list[Any]:
    for event in events:
        services.journal.add_job(event, "event")
    services.sent.clear()
    plan(services, Deadline(60), [event.id for event in events])  # type: ignore[arg-type]  # the part it needs
    return [services.journal.get_job(event.id) for event in events]


def test_a_skill_is_read_anew_by_its_id_alone(root: Path, services: Services) -> None:
    for name in ("a", "deep/b"):
        put(root / name / "SKILL.md")
    services.run(everything(root))
    services.publish_waiting()
    for name in ("a", "deep/b"):
        put(root / name / "SKILL.md", "other")
    [job] = carry_out(services, expected_skills("team:deep/b"))
    assert (job.state, job.outcome["changed"]) == ("done", 1)
    assert services.ingested() == ["team:deep/b"]


def test_a_withdrawn_skill_comes_back_when_it_is_upserted(root: Path, services: Services) -> None:
    put(root / "SKILL.md")
    services.run(everything(root))
    services.publish_waiting()
    services.run(SkillRemoved(skill_id="team:."))
    whole = [new_event(everything(root), "skillbus/test") for _ in range(2)]
    jobs = carry_out(services, [whole[0], *expected_skills("team:."), whole[1]])
    assert [job.state for job in jobs] == ["done"] * 3
    assert services.ingested() == ["team:."]


def test_many_upserts_are_one_reading_and_each_has_its_end(root: Path, services: Services) -> None:
    for name in ("a", "b"):
        put(root / name / "SKILL.md")
    services.graph.save_source(Source("team", "directory", str(root)))
    whole = new_event(everything(root, "c"), "skillbus/test")
    events = [*expected_skills("team:a", "team:b", "team:absent", "team:a"), whole]
    jobs = carry_out(services, events)
    assert [job.state for job in jobs] == ["done", "done", "failed", "done", "done"]
    assert "no skill team:absent" in jobs[2].reason
    assert services.ingested() == ["team:a", "team:b"]
    assert len(services.sent) == 1


def test_a_removal_between_upserts_keeps_its_place(root: Path, services: Services) -> None:
    for name in ("a", "b"):
        put(root / name / "SKILL.md")
    services.run(everything(root))
    services.publish_waiting()
    removal = new_event(SkillRemoved(skill_id="team:a"), "skillbus/test")
    jobs = carry_out(services, [*expected_skills("team:a"), removal, *expected_skills("team:b")])
    assert [job.state for job in jobs] == ["done"] * 3
    assert services.states() == {"a": "removed", "b": "published"}


def test_a_source_that_is_not_known_needs_its_root(services: Services, root: Path) -> None:
    put(root / "a" / "SKILL.md")
    [job] = carry_out(services, expected_skills("team:a"))
    assert job.state == "failed"
    assert "no source 'team'" in job.reason
    assert "no source 'team'" in services.run(SourceChanged(source_id="team")).reason
    services.run(everything(root))
    services.publish_waiting()
    put(root / "b" / "SKILL.md")
    assert services.run(SourceChanged(source_id="team")).outcome["found"] == 2
    assert services.ingested() == ["team:b"]


def test_answers_change_nothing(services: Services) -> None:
    job = services.run(QueryFailed(query_id="x", reason="y"))
    assert (job.state, "not change the library" in job.reason) == ("failed", True)


def test_one_fetch_is_sent_for_the_events_of_all_git_sources(services: Services) -> None:
    events = [new_event(SourceChanged(source_id=name), "skillbus/test") for name in ("a", "b")]
    for name in ("a", "b"):
        services.graph.save_source(Source(name, "git", f"https://example.org/{name}.git"))
    services.accept(*events)
    services.plan()
    assert services.sent == [(FETCH.name, [events[0].id])]
    assert services.journal.count_open_jobs("event") == 2


class EndingDeadline(Deadline):
    """A deadline that ends when the test says so."""

    ended = False

    def remaining(self) -> float:
        """Return no time once it has ended."""
        return 0.0 if self.ended else super().remaining()


def test_a_source_that_takes_too_long_does_not_hold_up_the_others(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("slow", "quick"):
        put(tmp_path / name / "skill" / "SKILL.md")
        changed = SourceChanged(source_id=name, root=str(tmp_path / name))
        services.accept(new_event(changed, "skillbus/test"))
    deadline = EndingDeadline(60)

    def open_slowly(source: Source, settings: Settings) -> AbstractContextManager[SourceReader]:
        deadline.ended = deadline.ended or source.source_id == "slow"
        return open_reader(source, settings)

    monkeypatch.setattr("tasks.ingest.plan.open_reader", open_slowly)
    for _ in range(2):
        deadline.ended = False
        with pytest.raises(TransientError, match="plan: not done within"):
            plan(services, deadline, services.journal.list_open_jobs("event"))  # type: ignore[arg-type]
    assert services.ingested() == ["quick:skill"]
    assert len(services.journal.list_open_jobs("event")) == 1


def test_the_time_of_the_last_sync_stays_while_the_next_one_fails(
    root: Path, services: Services
) -> None:
    put(root / "a" / "SKILL.md")
    services.run(everything(root))
    [synced] = services.graph.list_sources()
    services.accept(new_event(everything(root, "a"), "skillbus/test"))
    deadline = EndingDeadline(60)
    deadline.ended = True
    with pytest.raises(TransientError):
        plan(services, deadline, services.journal.list_open_jobs("event"))  # type: ignore[arg-type]
    assert services.graph.list_sources() == [synced]
    assert synced.last_success


def test_an_event_stays_open_if_the_stores_are_closed_while_it_is_carried_out(
    root: Path, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root / "a" / "SKILL.md")

    def stop(source: Source, settings: Settings) -> AbstractContextManager[SourceReader]:
        services.stopping.set()
        services.graph.close()
        return open_reader(source, settings)

    monkeypatch.setattr("tasks.ingest.plan.open_reader", stop)
    assert services.run(everything(root)).state == "accepted"


@pytest.fixture
def try_later(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """No source can be read until this is undone."""

    def open_later(source: Source, settings: Settings) -> AbstractContextManager[SourceReader]:
        raise TransientError("try again")

    with monkeypatch.context() as patched:
        patched.setattr("tasks.ingest.plan.open_reader", open_later)
        yield patched


def test_a_change_that_is_retried_stays_before_the_removal_of_a_skill(
    root: Path, services: Services, try_later: pytest.MonkeyPatch
) -> None:
    put(root / "a" / "SKILL.md")
    services.accept(
        new_event(everything(root), "skillbus/test"),
        new_event(SkillRemoved(skill_id="team:a"), "skillbus/test"),
    )
    with pytest.raises(TransientError, match="try again"):
        services.plan()
    assert len(services.journal.list_open_jobs("event")) == 2
    try_later.undo()
    services.plan()
    assert services.states() == {"a": "removed"}
    assert services.journal.list_ended_jobs("event", 0.0, "failed").job_ids == ()


def test_a_change_that_is_retried_does_not_bring_a_removed_source_back(
    root: Path, services: Services, try_later: pytest.MonkeyPatch
) -> None:
    put(root / "a" / "SKILL.md")
    services.graph.save_source(Source("team", "directory", str(root)))
    change = new_event(everything(root), "skillbus/test")
    services.accept(change, new_event(SourceRemoved(source_id="team"), "skillbus/test"))
    services.plan()
    assert services.graph.list_sources() == []
    assert services.journal.get_job(change.id).reason == "the source was removed meanwhile"
    try_later.undo()
    services.plan()
    assert services.graph.list_sources() == []


def test_an_event_that_comes_meanwhile_is_found_behind_many_that_wait_for_a_fetch(
    root: Path, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root / "late" / "SKILL.md")
    services.graph.save_source(Source("repository", "git", "https://git.example/skills.git"))
    pushed = [new_event(SourceChanged(source_id="repository"), "skillbus/test") for _ in range(120)]
    services.accept(*pushed)
    late = new_event(everything(root), "skillbus/test")
    send_task = services.send_task

    def send_and_accept(name: str, ids: list[object]) -> None:
        send_task(name, ids)
        if name == FETCH.name:
            services.accept(late)  # its own task does not get the lock

    monkeypatch.setattr(services, "send_task", send_and_accept)
    services.plan()
    assert (PLAN.name, [late.id]) in services.sent
