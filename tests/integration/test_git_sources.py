"""Git sources against real remotes on loopback: what comes, moves, goes, and what fails."""

from __future__ import annotations

import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from graph.protocol import Source
from skills.bundle.model import Bundle
from skills.events import (
    GitOrigin,
    Pushed,
    QueryAsked,
    SkillRemoved,
    SkillUpserted,
    SourceChanged,
    SourceRemoved,
    new_event,
)
from tasks.ingest.fetch import fetch
from tasks.policies import Deadline
from tests.support.git_remote import PushedRepository, served_over_http
from tests.support.library import write_skill
from tests.support.program import wait_for
from tests.support.tiny import settle, tiny_runtime
from workers.backend.embedded import Runtime

ALLOWED = {"protocols": ["http"], "allow_private": True, "seconds": 20}


def put(folder: Path, name: str, text: str = "Glaze a pot.") -> None:
    file = folder / name / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\nname: {name.rpartition('/')[2]}\n---\n# Use\n\n{text}\n")


@pytest.fixture
def remote(tmp_path: Path) -> PushedRepository:
    made = PushedRepository(tmp_path / "remotes")
    put(made.tree, "skills/kiln")
    put(made.tree, "skills/loom", "Weave a cloth.")
    made.push()
    return made


@pytest.fixture
def address(remote: PushedRepository) -> Iterator[str]:
    with served_over_http(remote.bare.parent) as root:
        yield f"{root}/skills.git"


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    with tiny_runtime(tmp_path / "home", git=ALLOWED) as made:
        yield made


def come(runtime: Runtime, root: str = "", **known: object) -> tuple[str, str]:
    """Have the source fetched; state and reason of the event."""
    git = GitOrigin(**known) if known or root else None  # type: ignore[arg-type]  # keywords
    content = SourceChanged(source_id="team", root=root, git=git)
    event_id = runtime.submit(content, "skillbus/tests")
    wait_for(lambda: runtime.journal.job(event_id).state != "accepted")
    settle(runtime)
    job = runtime.journal.job(event_id)
    return job.state, job.reason


def paths(runtime: Runtime) -> dict[str, str]:
    entries = runtime.graph.entries_under("team", "")
    return {entry.path: entry.content_hash for entry in entries if entry.state == "published"}


def source_of(runtime: Runtime) -> Source:
    return runtime.graph.sources()[0]


def test_skills_come_change_move_and_go(
    runtime: Runtime, remote: PushedRepository, address: str
) -> None:
    assert come(runtime, address, path="skills") == ("done", "")
    before = paths(runtime)
    assert set(before) == {"kiln", "loom"}
    assert source_of(runtime).commit == remote.git("rev-parse", "HEAD")
    assert source_of(runtime).last_error == ""
    # The same again costs nothing; a change, a renamed and a removed skill are followed.
    assert come(runtime) == ("done", "")
    assert paths(runtime) == before
    put(remote.tree, "skills/kiln", "Fire a pot.")
    put(remote.tree, "skills/dye")
    remote.git("mv", "skills/loom", "skills/weaving")
    remote.push()
    assert come(runtime) == ("done", "")
    after = paths(runtime)
    assert set(after) == {"kiln", "weaving", "dye"}
    assert after["kiln"] != before["kiln"]
    assert after["weaving"] == before["loom"]
    # A force push to another history, and the folder moved: ids stay.
    remote.git("checkout", "-q", "--orphan", "anew")
    remote.git("mv", "skills", "library")
    remote.git("rm", "-rq", "--cached", "library/dye")
    (remote.tree / "library/dye/SKILL.md").unlink()
    remote.push()
    state, reason = come(runtime)
    assert state == "failed"
    assert "has no folder skills" in reason
    assert paths(runtime) == after
    assert "has no folder skills" in source_of(runtime).last_error
    assert come(runtime, address, path="library") == ("done", "")
    assert set(paths(runtime)) == {"kiln", "weaving"}
    assert source_of(runtime).last_error == ""


def test_absence_removes_nothing(runtime: Runtime, remote: PushedRepository, address: str) -> None:
    remote.push(branch="release")
    assert come(runtime, address, branch="release") == ("done", "")
    before = paths(runtime)
    assert set(before) == {"skills/kiln", "skills/loom"}
    remote.git("push", "-q", "origin", ":refs/heads/release")
    state, reason = come(runtime)
    assert (state, "branch is gone" in reason) == ("failed", True)
    assert paths(runtime) == before
    # It comes back with less in it.
    remote.git("rm", "-rq", "skills/loom")
    remote.push(branch="release")
    assert come(runtime) == ("done", "")
    assert set(paths(runtime)) == {"skills/kiln"}
    assert source_of(runtime).last_error == ""
    remote.bare.rename(remote.bare.parent / "elsewhere.git")
    state, reason = come(runtime)
    assert (state, "no repository" in reason) == ("failed", True)
    assert set(paths(runtime)) == {"skills/kiln"}
    assert "no repository" in source_of(runtime).last_error


def test_another_default_branch_an_empty_one_and_an_empty_repository(
    runtime: Runtime, remote: PushedRepository, address: str
) -> None:
    assert come(runtime, address) == ("done", "")
    put(remote.tree, "skills/dye")
    remote.push(branch="next")
    assert come(runtime) == ("done", "")
    assert "skills/dye" not in paths(runtime)
    remote.git("-C", str(remote.bare), "symbolic-ref", "HEAD", "refs/heads/next")
    assert come(runtime) == ("done", "")
    before = paths(runtime)
    assert set(before) == {"skills/kiln", "skills/loom", "skills/dye"}
    # Without any branch nothing is known; a branch without files is known to be empty.
    for branch in ("main", "next"):
        remote.git("-C", str(remote.bare), "update-ref", "-d", f"refs/heads/{branch}")
    state, reason = come(runtime)
    assert (state, "branch is gone" in reason) == ("failed", True)
    assert paths(runtime) == before
    remote.git("rm", "-rq", "skills")
    remote.push(branch="next")
    assert come(runtime) == ("done", "")
    assert paths(runtime) == {}
    put(remote.tree, "skills/kiln")
    remote.push(branch="next")
    assert come(runtime) == ("done", "")
    assert set(paths(runtime)) == {"skills/kiln"}


def pushed(runtime: Runtime, before: str, after: str) -> str:
    told = Pushed(before=before, after=after)
    return runtime.submit(SourceChanged(source_id="team", pushed=told), "skillbus/tests")


def test_what_is_told_before_it_is_served_is_awaited(
    runtime: Runtime, remote: PushedRepository, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    come(runtime, address)
    before = source_of(runtime).commit
    put(remote.tree, "skills/dye")
    after = remote.commit()
    event_id = pushed(runtime, before, after)
    time.sleep(0.4)
    assert runtime.journal.job(event_id).state == "accepted"
    remote.publish()
    wait_for(lambda: runtime.journal.job(event_id).state == "done")
    settle(runtime)
    assert "skills/dye" in paths(runtime)
    monkeypatch.setattr("tasks.ingest.fetch._PAUSES", (3600.0,))
    # Told late, or of a commit that others have followed: nothing is awaited.
    for was, now in ((before, after), ("", before), (before, "1" * 40)):
        event_id = pushed(runtime, was, now)
        wait_for(lambda one=event_id: runtime.journal.job(one).state == "done")
        put(remote.tree, f"skills/{now[:7]}")
        remote.push()
    assert f"skills/{after[:7]}" in paths(runtime)
    # What never comes ends all the same, and the skills stay.
    monkeypatch.setattr("tasks.ingest.fetch._PAUSES", (0.01, 0.01))
    event_id = pushed(runtime, source_of(runtime).commit, "2" * 40)
    wait_for(lambda: runtime.journal.job(event_id).state == "done")
    remote.git("-C", str(remote.bare), "update-ref", "-d", "refs/heads/main")
    monkeypatch.setattr("tasks.ingest.fetch._PAUSES", (0.01,) * 200)
    event_id = pushed(runtime, "", remote.commit())
    time.sleep(0.2)
    assert runtime.journal.job(event_id).state == "accepted"
    remote.publish()
    wait_for(lambda: runtime.journal.job(event_id).state == "done")


def test_a_removed_source_leaves_nothing(runtime: Runtime, address: str, tmp_path: Path) -> None:
    come(runtime, address)
    assert (tmp_path / "home/git/team.git/HEAD").is_file()
    runtime.submit(SourceRemoved(source_id="team"), "skillbus/tests")
    settle(runtime)
    assert paths(runtime) == {}
    assert not (tmp_path / "home/git/team.git").exists()


def test_a_lost_mirror_is_fetched_again(
    runtime: Runtime, remote: PushedRepository, address: str, tmp_path: Path
) -> None:
    come(runtime, address)
    (tmp_path / "home/git/team.git").rename(tmp_path / "lost.git")
    put(remote.tree, "skills/dye")
    remote.push()
    assert come(runtime) == ("done", "")
    assert set(paths(runtime)) == {"skills/kiln", "skills/loom", "skills/dye"}


def test_a_remote_is_polled(tmp_path: Path, remote: PushedRepository, address: str) -> None:
    with tiny_runtime(
        tmp_path / "home", git=ALLOWED, workers={"reconcile_seconds": 0.2}
    ) as runtime:
        come(runtime, address, poll_seconds=1.0)
        put(remote.tree, "skills/dye")
        remote.push()
        wait_for(lambda: "skills/dye" in paths(runtime))


def test_a_new_source_that_fails_is_none(runtime: Runtime, address: str, tmp_path: Path) -> None:
    state, reason = come(runtime, address, branch="never")
    assert (state, "branch is gone" in reason) == ("failed", True)
    state, reason = come(runtime, address, path="nowhere")
    assert (state, "has no folder nowhere" in reason) == ("failed", True)
    assert runtime.graph.sources() == []
    assert list((tmp_path / "home/git").iterdir()) == []


def test_a_hung_host_holds_up_no_other(
    tmp_path: Path, remote: PushedRepository, address: str
) -> None:
    root = tmp_path / "folder"
    put(root, "near")
    slow_ones = [f"slow-{number}" for number in range(3)]
    threads = threading.active_count()
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        tiny_runtime(tmp_path / "home", git=ALLOWED | {"seconds": 30}) as runtime,
    ):

        def submit(source_id: str, root: str, git: GitOrigin | None = None) -> str:
            content = SourceChanged(source_id=source_id, root=root, git=git)
            return runtime.submit(content, "skillbus/tests")

        def is_done(event_id: str) -> bool:
            return runtime.journal.job(event_id).state == "done"

        hung = f"http://127.0.0.1:{silent.getsockname()[1]}"
        slow = [submit(name, f"{hung}/{name}.git", GitOrigin()) for name in slow_ones]
        wait_for(lambda: (tmp_path / "home/git/slow-0.git/HEAD").exists())
        near = submit("near", str(root))
        other = submit("other", address.replace("127.0.0.1", "localhost"), GitOrigin())
        wait_for(lambda: is_done(near) and is_done(other))
        assert {runtime.journal.job(one).state for one in slow} == {"accepted"}
        ending = time.monotonic()
    assert time.monotonic() - ending < 10
    assert threading.active_count() <= threads + 5


def test_a_skill_that_is_named_is_looked_at_again(runtime: Runtime, address: str) -> None:
    come(runtime, address)
    runtime.submit(SkillRemoved(skill_id="team:skills/kiln"), "skillbus/tests")
    settle(runtime)
    assert come(runtime) == ("done", "")
    assert set(paths(runtime)) == {"skills/loom"}
    runtime.submit(SkillUpserted(skill_id="team:skills/kiln"), "skillbus/tests")
    settle(runtime)
    assert set(paths(runtime)) == {"skills/kiln", "skills/loom"}


def test_a_token_does_not_say_what_is_fetched(runtime: Runtime, address: str) -> None:
    content = SourceChanged(source_id="team", root=address, git=GitOrigin(credential_file="x"))
    event = new_event(content, "skillbus/tests").model_copy(update={"owner": "ana"})
    event_id = runtime.accept(event)
    wait_for(lambda: runtime.journal.job(event_id).state == "failed")
    assert "sources add" in runtime.journal.job(event_id).reason


def test_the_licences_of_a_source_decide_what_of_it_is_sent(
    runtime: Runtime, remote: PushedRepository, address: str
) -> None:
    """They can be changed while the repository stays as it is; other sources are not touched."""
    for name, licence in (("kiln", "MIT"), ("glaze", "GPL-3.0")):
        write_skill(remote.tree, name, f"Glaze a pot in the {name}", license=licence)
    remote.git("rm", "-rq", "skills")
    remote.push()

    def answer() -> Bundle:
        asked = QueryAsked(task="glaze a pot in the kiln", without=("rerank", "floor"))
        return Bundle.model_validate(runtime.answer(asked, "skillbus/tests"))

    def sent() -> set[str]:
        return {skill.skill_id for skill in answer().skills}

    assert come(runtime, address) == ("done", "")
    assert sent() == {"team:kiln", "team:glaze"}
    assert come(runtime, address, licences=("mit",)) == ("done", "")
    assert sent() == {"team:kiln"}
    (kept,) = answer().withheld.skills
    assert (kept.skill_id, kept.kind) == ("team:glaze", "licence")
    assert "GPL-3.0" in kept.reason
    assert come(runtime, address, licences=("mit", "GPL-3.0")) == ("done", "")
    assert sent() == {"team:kiln", "team:glaze"}


def test_an_event_that_nobody_can_read_holds_up_no_other(
    runtime: Runtime, address: str, tmp_path: Path
) -> None:
    """As one that another version has accepted."""
    event = new_event(SourceChanged(source_id="nobody"), "skillbus/tests")
    runtime.journal.accept(event, "event")
    with closing(sqlite3.connect(tmp_path / "home/journal.db")) as journal, journal:
        journal.execute("UPDATE jobs SET payload = replace(payload, 'nobody', '')")
        assert fetch(runtime.services, Deadline(10), [event.id]) == {"events": 0}
    assert come(runtime, address) == ("done", "")
    with closing(sqlite3.connect(tmp_path / "home/journal.db")) as journal:
        told = journal.execute("SELECT state, reason FROM jobs WHERE id = ?", (event.id,))
        assert "source_id" in told.fetchone()[1]
