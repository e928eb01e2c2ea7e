"""Git sources against real remotes on loopback: what comes, moves, goes, and what fails."""

from __future__ import annotations

import socket
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from graph.records import Source
from skills.bundle.model import Bundle
from skills.events import (
    GitFetchOptions,
    GitPush,
    QueryAsked,
    SkillRemoved,
    SkillUpserted,
    SourceChanged,
    SourceRemoved,
    new_event,
)
from tasks.ingest.fetch import fetch
from tasks.ingest.plan import _remove_source
from tasks.policies import FETCH, PLAN, Deadline
from tasks.run_task import TASK_DEFINITIONS
from tasks.sources.readers import find_source
from tests.support.program.program import wait_for
from tests.support.samples.library import write_skill
from tests.support.samples.tiny import settle, tiny_backend
from tests.support.servers.git_remote import PushedRepository, served_over_http
from workers.backend.embedded import EmbeddedBackend

ALLOWED = {"protocols": ["http"], "allow_private": True, "seconds": 120}


def put(folder: Path, name: str, text: str = "Glaze a pot.") -> None:
    file = folder / name / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\nname: {name.rpartition('/')[2]}\n---\n# Use\n\n{text}\n")


@pytest.fixture(scope="module")
def first_push(tmp_path_factory: pytest.TempPathFactory) -> PushedRepository:
    made = PushedRepository(tmp_path_factory.mktemp("pushed"))
    put(made.tree, "skills/kiln")
    put(made.tree, "skills/loom", "Weave a cloth.")
    made.push()
    return made


@pytest.fixture
def remote(first_push: PushedRepository, tmp_path: Path) -> PushedRepository:
    return first_push.copied(tmp_path / "remotes")


@pytest.fixture
def address(remote: PushedRepository) -> Iterator[str]:
    with served_over_http(remote.bare.parent) as root:
        yield f"{root}/skills.git"


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[EmbeddedBackend]:
    with tiny_backend(tmp_path / "home", git=ALLOWED) as made:
        yield made


def come(backend: EmbeddedBackend, root: str = "", **known: object) -> tuple[str, str]:
    """Have the source fetched; state and reason of the event."""
    git = GitFetchOptions(**known) if known or root else None
    content = SourceChanged(source_id="team", root=root, git=git)
    event_id = backend.submit(content, "skillbus/tests")
    wait_for(lambda: backend.journal.get_job(event_id).state != "accepted")
    settle(backend)
    job = backend.journal.get_job(event_id)
    return job.state, job.reason


def paths(backend: EmbeddedBackend) -> dict[str, str]:
    entries = backend.graph.get_entries_under("team", "")
    return {entry.path: entry.content_hash for entry in entries if entry.state == "published"}


def source_of(backend: EmbeddedBackend) -> Source:
    return backend.graph.list_sources()[0]


def test_skills_come_change_move_and_go(
    backend: EmbeddedBackend, remote: PushedRepository, address: str
) -> None:
    assert come(backend, address, path="skills") == ("done", "")
    before = paths(backend)
    assert set(before) == {"kiln", "loom"}
    assert source_of(backend).commit == remote.git("rev-parse", "HEAD")
    assert source_of(backend).last_error == ""
    # The same again costs nothing; a change, a renamed and a removed skill are followed.
    assert come(backend) == ("done", "")
    assert paths(backend) == before
    put(remote.tree, "skills/kiln", "Fire a pot.")
    put(remote.tree, "skills/dye")
    remote.git("mv", "skills/loom", "skills/weaving")
    remote.push()
    assert come(backend) == ("done", "")
    after = paths(backend)
    assert set(after) == {"kiln", "weaving", "dye"}
    assert after["kiln"] != before["kiln"]
    assert after["weaving"] == before["loom"]
    # A force push to another history, and the folder moved: ids stay.
    remote.git("checkout", "-q", "--orphan", "anew")
    remote.git("mv", "skills", "library")
    remote.git("rm", "-rq", "--cached", "library/dye")
    (remote.tree / "library/dye/SKILL.md").unlink()
    remote.push()
    state, reason = come(backend)
    assert state == "failed"
    assert "has no folder skills" in reason
    assert paths(backend) == after
    assert "has no folder skills" in source_of(backend).last_error
    assert come(backend, address, path="library") == ("done", "")
    assert set(paths(backend)) == {"kiln", "weaving"}
    assert source_of(backend).last_error == ""


def test_absence_removes_nothing(
    backend: EmbeddedBackend, remote: PushedRepository, address: str
) -> None:
    remote.push(branch="release")
    assert come(backend, address, branch="release") == ("done", "")
    before = paths(backend)
    assert set(before) == {"skills/kiln", "skills/loom"}
    remote.git("push", "-q", "origin", ":refs/heads/release")
    state, reason = come(backend)
    assert (state, "branch is gone" in reason) == ("failed", True)
    assert paths(backend) == before
    # It comes back with less in it.
    remote.git("rm", "-rq", "skills/loom")
    remote.push(branch="release")
    assert come(backend) == ("done", "")
    assert set(paths(backend)) == {"skills/kiln"}
    assert source_of(backend).last_error == ""
    remote.bare.rename(remote.bare.parent / "elsewhere.git")
    state, reason = come(backend)
    assert (state, "no repository" in reason) == ("failed", True)
    assert set(paths(backend)) == {"skills/kiln"}
    assert "no repository" in source_of(backend).last_error


def test_another_default_branch_an_empty_one_and_an_empty_repository(
    backend: EmbeddedBackend, remote: PushedRepository, address: str
) -> None:
    assert come(backend, address) == ("done", "")
    put(remote.tree, "skills/dye")
    remote.push(branch="next")
    assert come(backend) == ("done", "")
    assert "skills/dye" not in paths(backend)
    remote.git("-C", str(remote.bare), "symbolic-ref", "HEAD", "refs/heads/next")
    assert come(backend) == ("done", "")
    before = paths(backend)
    assert set(before) == {"skills/kiln", "skills/loom", "skills/dye"}
    # Without any branch nothing is known; a branch without files is known to be empty.
    for branch in ("main", "next"):
        remote.git("-C", str(remote.bare), "update-ref", "-d", f"refs/heads/{branch}")
    state, reason = come(backend)
    assert (state, "branch is gone" in reason) == ("failed", True)
    assert paths(backend) == before
    remote.git("rm", "-rq", "skills")
    remote.push(branch="next")
    assert come(backend) == ("done", "")
    assert paths(backend) == {}
    put(remote.tree, "skills/kiln")
    remote.push(branch="next")
    assert come(backend) == ("done", "")
    assert set(paths(backend)) == {"skills/kiln"}


def pushed(backend: EmbeddedBackend, before: str, after: str) -> str:
    pushed_commits = GitPush(before=before, after=after)
    return backend.submit(SourceChanged(source_id="team", pushed=pushed_commits), "skillbus/tests")


@contextmanager
def awaited(
    backend: EmbeddedBackend, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> Iterator[None]:
    """A push that is announced before the block serves it, and carried out afterwards."""
    monkeypatch.setattr("tasks.ingest.fetch._RETRY_PAUSES_SECONDS", (0.1,) * 3000)
    event_id = pushed(backend, before, after)
    time.sleep(0.4)
    assert backend.journal.get_job(event_id).state == "accepted"
    yield
    wait_for(lambda: backend.journal.get_job(event_id).state == "done")
    settle(backend)


def test_a_push_that_is_announced_before_it_is_served_is_awaited(
    backend: EmbeddedBackend,
    remote: PushedRepository,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    come(backend, address)
    before = source_of(backend).commit
    put(remote.tree, "skills/dye")
    after = remote.commit()
    with awaited(backend, monkeypatch, before, after):
        remote.publish()
    assert "skills/dye" in paths(backend)
    monkeypatch.setattr("tasks.ingest.fetch._RETRY_PAUSES_SECONDS", (3600.0,))
    # Announced late, or for a commit that others have followed: nothing is awaited.
    for was, now in ((before, after), ("", before), (before, "1" * 40)):
        event_id = pushed(backend, was, now)
        wait_for(lambda one=event_id: backend.journal.get_job(one).state == "done")  # type: ignore[misc]  # mypy cannot infer it
        put(remote.tree, f"skills/{now[:7]}")
        remote.push()
    assert f"skills/{after[:7]}" in paths(backend)
    # What never comes ends all the same, and the skills stay.
    monkeypatch.setattr("tasks.ingest.fetch._RETRY_PAUSES_SECONDS", (0.01, 0.01))
    event_id = pushed(backend, source_of(backend).commit, "2" * 40)
    wait_for(lambda: backend.journal.get_job(event_id).state == "done")
    remote.git("-C", str(remote.bare), "update-ref", "-d", "refs/heads/main")
    monkeypatch.setattr("tasks.ingest.fetch._RETRY_PAUSES_SECONDS", (0.05,) * 6000)
    event_id = pushed(backend, "", remote.commit())
    time.sleep(0.2)
    assert backend.journal.get_job(event_id).state == "accepted"
    remote.publish()
    wait_for(lambda: backend.journal.get_job(event_id).state == "done")


def test_a_push_back_to_an_earlier_commit_is_awaited_too(
    backend: EmbeddedBackend,
    remote: PushedRepository,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    come(backend, address)
    first = source_of(backend).commit
    put(remote.tree, "skills/dye")
    second = remote.push()
    assert come(backend) == ("done", "")
    assert "skills/dye" in paths(backend)
    with awaited(backend, monkeypatch, second, first):
        remote.git("reset", "-q", "--hard", first)
        remote.publish()
    assert set(paths(backend)) == {"skills/kiln", "skills/loom"}


def test_a_removed_source_leaves_nothing(
    backend: EmbeddedBackend, address: str, tmp_path: Path
) -> None:
    come(backend, address)
    assert (tmp_path / "home/git/team.git/HEAD").is_file()
    backend.submit(SourceRemoved(source_id="team"), "skillbus/tests")
    settle(backend)
    assert paths(backend) == {}
    assert not (tmp_path / "home/git/team.git").exists()


def test_a_lost_mirror_is_fetched_again(
    backend: EmbeddedBackend, remote: PushedRepository, address: str, tmp_path: Path
) -> None:
    come(backend, address)
    (tmp_path / "home/git/team.git").rename(tmp_path / "lost.git")
    put(remote.tree, "skills/dye")
    remote.push()
    assert come(backend) == ("done", "")
    assert set(paths(backend)) == {"skills/kiln", "skills/loom", "skills/dye"}


def test_a_remote_is_polled(tmp_path: Path, remote: PushedRepository, address: str) -> None:
    with tiny_backend(
        tmp_path / "home", git=ALLOWED, workers={"reconcile_seconds": 0.2}
    ) as backend:
        come(backend, address, poll_seconds=1.0)
        put(remote.tree, "skills/dye")
        remote.push()
        wait_for(lambda: "skills/dye" in paths(backend))


def test_a_new_source_that_fails_is_none(
    backend: EmbeddedBackend, address: str, tmp_path: Path
) -> None:
    state, reason = come(backend, address, branch="never")
    assert (state, "branch is gone" in reason) == ("failed", True)
    state, reason = come(backend, address, path="nowhere")
    assert (state, "has no folder nowhere" in reason) == ("failed", True)
    assert backend.graph.list_sources() == []
    assert list((tmp_path / "home/git").iterdir()) == []


def test_a_failed_fetch_does_not_bring_a_source_back(
    backend: EmbeddedBackend, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert come(backend, address)[0] == "done"
    removed: list[bool] = []

    def remove_meanwhile(sources: Iterable[Source], source_id: str) -> Source | None:
        found = find_source(sources, source_id)
        with backend.coordinator.try_lock("plan") as free:
            if free:
                _remove_source(backend.services, source_id)
            removed.append(free)
        return found

    monkeypatch.setattr("tasks.ingest.fetch.find_source", remove_meanwhile)
    assert come(backend, address, branch="never")[0] == "failed"
    assert len(removed) == 1
    assert len(backend.graph.list_sources()) == (0 if removed[0] else 1)


def test_a_hung_host_holds_up_no_other(
    tmp_path: Path, remote: PushedRepository, address: str
) -> None:
    root = tmp_path / "folder"
    put(root, "near")
    slow_ones = [f"slow-{number}" for number in range(3)]
    threads = threading.active_count()
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        tiny_backend(tmp_path / "home", git=ALLOWED | {"seconds": 250}) as backend,
    ):

        def submit(source_id: str, root: str, git: GitFetchOptions | None = None) -> str:
            content = SourceChanged(source_id=source_id, root=root, git=git)
            return backend.submit(content, "skillbus/tests")

        def is_done(event_id: str) -> bool:
            return backend.journal.get_job(event_id).state == "done"

        hung = f"http://127.0.0.1:{silent.getsockname()[1]}"
        slow = [submit(name, f"{hung}/{name}.git", GitFetchOptions()) for name in slow_ones]
        wait_for(lambda: (tmp_path / "home/git/slow-0.git/HEAD").exists())
        near = submit("near", str(root))
        other = submit("other", address.replace("127.0.0.1", "localhost"), GitFetchOptions())
        wait_for(lambda: is_done(near) and is_done(other))
        assert {backend.journal.get_job(one).state for one in slow} == {"accepted"}
        ending = time.monotonic()
    assert time.monotonic() - ending < 100
    assert threading.active_count() <= threads + 5


def test_a_skill_that_is_named_is_looked_at_again(backend: EmbeddedBackend, address: str) -> None:
    come(backend, address)
    backend.submit(SkillRemoved(skill_id="team:skills/kiln"), "skillbus/tests")
    settle(backend)
    assert come(backend) == ("done", "")
    assert set(paths(backend)) == {"skills/loom"}
    backend.submit(SkillUpserted(skill_id="team:skills/kiln"), "skillbus/tests")
    settle(backend)
    assert set(paths(backend)) == {"skills/kiln", "skills/loom"}


def test_a_token_does_not_say_what_is_fetched(backend: EmbeddedBackend, address: str) -> None:
    content = SourceChanged(
        source_id="team", root=address, git=GitFetchOptions(credential_file="x")
    )
    event = new_event(content, "skillbus/tests").model_copy(update={"owner": "ana"})
    event_id = backend.accept(event)
    wait_for(lambda: backend.journal.get_job(event_id).state == "failed")
    assert "sources add" in backend.journal.get_job(event_id).reason


def test_the_licences_of_a_source_decide_what_of_it_is_sent(
    backend: EmbeddedBackend, remote: PushedRepository, address: str
) -> None:
    """They can be changed while the repository stays as it is; other sources are not touched."""
    for name, licence in (("kiln", "MIT"), ("glaze", "GPL-3.0")):
        write_skill(remote.tree, name, f"Glaze a pot in the {name}", license=licence)
    remote.git("rm", "-rq", "skills")
    remote.push()

    def answer(name: str = "kiln") -> Bundle:
        asked = QueryAsked(task=f"Glaze a pot in the {name}", without=("rerank", "floor"))
        return Bundle.model_validate(backend.answer_query(asked, "skillbus/tests"))

    def sent() -> set[str]:
        return {skill.skill_id for name in ("kiln", "glaze") for skill in answer(name).skills}

    assert come(backend, address) == ("done", "")
    assert sent() == {"team:kiln", "team:glaze"}
    assert come(backend, address, licences=("mit",)) == ("done", "")
    assert sent() == {"team:kiln"}
    (kept,) = answer().withheld.skills
    assert (kept.skill_id, kept.kind) == ("team:glaze", "licence")
    assert "GPL-3.0" in kept.reason
    assert come(backend, address, licences=("mit", "GPL-3.0")) == ("done", "")
    assert sent() == {"team:kiln", "team:glaze"}


def test_an_unreadable_event_delays_no_other(
    backend: EmbeddedBackend, address: str, tmp_path: Path
) -> None:
    """As one that another version has accepted."""
    event = new_event(SourceChanged(source_id="absent"), "skillbus/tests")
    backend.journal.add_job(event, "event")
    with closing(sqlite3.connect(tmp_path / "home/journal.db")) as journal, journal:
        journal.execute("UPDATE jobs SET payload = replace(payload, 'absent', '')")
    assert fetch(backend.services, Deadline(10), [event.id]) == {"events": 0}
    assert come(backend, address) == ("done", "")
    with closing(sqlite3.connect(tmp_path / "home/journal.db")) as journal:
        found = journal.execute("SELECT state, reason FROM jobs WHERE id = ?", (event.id,))
        assert "source_id" in found.fetchone()[1]


def test_an_event_of_a_git_source_is_fetched_without_planning(
    backend: EmbeddedBackend, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = replace(TASK_DEFINITIONS[PLAN.name], run=lambda *_: {})
    monkeypatch.setitem(TASK_DEFINITIONS, PLAN.name, idle)
    assert come(backend, address) == ("done", "")


def test_a_fetch_waits_for_a_removal_that_came_before_it(
    backend: EmbeddedBackend, address: str
) -> None:
    assert come(backend, address, path="skills") == ("done", "")
    removal = new_event(SourceRemoved(source_id="team"), "skillbus/tests")
    added = new_event(
        SourceChanged(source_id="team", root=address, git=GitFetchOptions()), "skillbus/tests"
    )
    for event in (removal, added):
        backend.journal.add_job(event, "event")
    backend.services.send_task(FETCH.name, [added.id])
    time.sleep(0.6)
    assert backend.journal.get_job(added.id).state == "accepted"
    backend.services.send_task(PLAN.name, [removal.id])
    wait_for(lambda: backend.journal.get_job(added.id).state != "accepted")
    settle(backend)
    jobs = [backend.journal.get_job(event.id) for event in (removal, added)]
    assert [job.state for job in jobs] == ["done", "done"]
    assert set(paths(backend)) == {"skills/kiln", "skills/loom"}


def test_fetch_forwards_events_of_other_sources_to_plan(
    backend: EmbeddedBackend, tmp_path: Path
) -> None:
    put(tmp_path / "crafts", "kiln")
    event = new_event(
        SourceChanged(source_id="crafts", root=str(tmp_path / "crafts")), "skillbus/tests"
    )
    backend.journal.add_job(event, "event")
    backend.services.send_task(FETCH.name, [event.id])
    wait_for(lambda: backend.journal.get_job(event.id).state == "done")


def test_a_refresh_reads_failed_skills_again(
    backend: EmbeddedBackend, remote: PushedRepository, address: str
) -> None:
    settings = backend.services.settings
    limits = settings.limits.model_copy(update={"skill_bytes": 60})
    backend.services.settings = settings.model_copy(update={"limits": limits})
    put(remote.tree, "skills/dye", "Dye wool with madder and alum. " * 3)
    remote.push()
    assert come(backend, address) == ("done", "")
    assert set(paths(backend)) == {"skills/kiln", "skills/loom"}
    backend.services.settings = settings
    assert come(backend) == ("done", "")
    assert set(paths(backend)) == {"skills/dye", "skills/kiln", "skills/loom"}
