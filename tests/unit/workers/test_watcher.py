"""What the watcher collects of one source, and when that has settled."""

from __future__ import annotations

import ctypes
import errno
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from watchdog.events import (
    DirMovedEvent,
    FileCreatedEvent,
    FileModifiedEvent,
    FileMovedEvent,
)
from watchdog.observers import Observer, inotify_c
from watchdog.observers.polling import PollingObserverVFS

from config.errors import PermanentError
from graph.records import SkillState, Source
from skills.events import SourceChanged, SourceRemoved
from tests.support.program.program import wait_for
from tests.support.samples.library import write_skill, write_topics
from tests.support.samples.tiny import settle, tiny_backend
from workers.backend.embedded import EmbeddedBackend
from workers.processes import watcher
from workers.processes.watcher import _WATCHED_EVENTS, ORIGIN, Watcher, _PendingChanges

ROOT = "/lib/skills"
SETTLE = 0.15


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made)
    return made


@pytest.fixture
def pending(clock: Clock) -> _PendingChanges:
    return _PendingChanges(Source("team", "directory", ROOT))


def test_a_change_is_taken_once_it_has_been_quiet(pending: _PendingChanges, clock: Clock) -> None:
    pending.add_path(f"{ROOT}/a/SKILL.md")
    assert pending.take_settled(SETTLE) == set()
    clock.now += 0.1
    pending.add_path(f"{ROOT}/b/SKILL.md")
    clock.now += 0.1
    assert pending.take_settled(SETTLE) == set()
    clock.now += 0.1
    assert pending.take_settled(SETTLE) == {"a/SKILL.md", "b/SKILL.md"}
    assert pending.take_settled(SETTLE) == set()


def test_endless_writing_is_not_waited_for_endlessly(
    pending: _PendingChanges, clock: Clock
) -> None:
    started = clock.now
    taken: set[str] = set()
    while not taken and clock.now - started < 60:
        pending.add_path(f"{ROOT}/a/log.txt")
        clock.now += 0.1
        taken = pending.take_settled(SETTLE)
    assert taken == {"a/log.txt"}
    assert clock.now - started < 10


def test_the_wait_starts_anew_after_taking(pending: _PendingChanges, clock: Clock) -> None:
    pending.add_path(f"{ROOT}/a")
    clock.now += 60
    assert pending.take_settled(SETTLE) == {"a"}
    pending.add_path(f"{ROOT}/b")
    assert pending.take_settled(SETTLE) == set()


def test_the_root_itself_is_the_empty_path(pending: _PendingChanges, clock: Clock) -> None:
    pending.add_path(ROOT)
    clock.now += 1
    assert pending.take_settled(SETTLE) == {""}


@pytest.mark.parametrize(
    "path",
    [
        "/lib",
        "/lib/other/SKILL.md",
        "/lib/skills-2/SKILL.md",
        f"{ROOT}/.git/index.lock",
        f"{ROOT}/a/node_modules/x/SKILL.md",
        f"{ROOT}/a/__pycache__/run.pyc",
    ],
)
def test_what_does_not_concern_the_source_is_dropped(
    pending: _PendingChanges, clock: Clock, path: str
) -> None:
    pending.add_path(path)
    clock.now += 1
    assert pending.take_settled(SETTLE) == set()


def test_a_save_by_rename_touches_both_names(pending: _PendingChanges, clock: Clock) -> None:
    pending.on_any_event(FileMovedEvent(f"{ROOT}/a/SKILL.md.tmp", f"{ROOT}/a/SKILL.md"))
    pending.on_any_event(DirMovedEvent(f"{ROOT}/old", f"{ROOT}/new"))
    clock.now += 1
    assert pending.take_settled(SETTLE) == {"a/SKILL.md.tmp", "a/SKILL.md", "old", "new"}


def test_reads_are_not_reported(tmp_path: Path) -> None:
    (tmp_path / "read").mkdir()
    (tmp_path / "read" / "SKILL.md").write_text("as it is")
    pending = _PendingChanges(Source("team", "directory", str(tmp_path)))
    observer = Observer()
    observer.schedule(pending, str(tmp_path), recursive=True, event_filter=_WATCHED_EVENTS)
    observer.start()
    try:
        for file in tmp_path.rglob("*.md"):
            file.read_text()
        (tmp_path / "written").mkdir()
        (tmp_path / "written" / "SKILL.md").write_text("new")
        changed = set[str]()

        def is_reported() -> bool:
            changed.update(pending.take_settled(0))
            return "written/SKILL.md" in changed

        wait_for(is_reported)
    finally:
        observer.stop()
        observer.join()
    assert not [path for path in changed if path.startswith("read")]


def test_names_in_bytes_are_understood(pending: _PendingChanges, clock: Clock) -> None:
    pending.on_any_event(FileCreatedEvent(f"{ROOT}/a/SKILL.md".encode()))
    pending.on_any_event(FileModifiedEvent(f"{ROOT}/技能/SKILL.md"))
    clock.now += 1
    assert pending.take_settled(SETTLE) == {"a/SKILL.md", "技能/SKILL.md"}


def test_a_change_noticed_before_a_removal_does_not_add_the_source_again(tmp_path: Path) -> None:
    root = write_topics(tmp_path / "crafts")
    with tiny_backend(tmp_path / "home") as backend:
        backend.submit(SourceChanged(source_id="crafts", root=str(root)), "tests")
        settle(backend)
        [source] = backend.graph.list_sources()
        backend.submit(SourceRemoved(source_id="crafts"), "tests")
        late = SourceChanged(source_id="crafts", paths=("kiln",))
        backend.submit(late, ORIGIN)  # sent before the removal was carried out
        settle(backend)
        Watcher(backend)._submit(_PendingChanges(source), {"kiln"})  # noticed, and not sent yet
        settle(backend)
        assert backend.graph.list_sources() == []
        failed = backend.journal.list_ended_jobs("event", 0.0, "failed").job_ids
        assert len(failed) == 1, "only the one that was sent"


@pytest.mark.parametrize(
    ("path", "taken"),
    [("a/caf\udce9.txt", "a"), ("caf\udce9/SKILL.md", ""), ("a/b/x\udce9/y\udce9", "a/b")],
)
def test_of_names_that_are_not_utf8_their_folder_is_taken(
    pending: _PendingChanges, clock: Clock, path: str, taken: str
) -> None:
    pending.add_path(f"{ROOT}/{path}")
    clock.now += 1
    assert pending.take_settled(SETTLE) == {taken}


def test_a_file_whose_name_is_not_utf8_does_not_end_the_watch(tmp_path: Path) -> None:
    root = write_topics(tmp_path / "crafts")
    with tiny_backend(tmp_path / "home") as backend:
        backend.submit(SourceChanged(source_id="crafts", root=str(root)), "tests")
        settle(backend)
        with Watcher(backend):
            time.sleep(0.5)  # the first sync, of the whole source, has been sent
            (root / "kiln-firing" / "caf\udce9.txt").write_text("bytes that are not UTF-8")
            time.sleep(0.5)
            write_skill(root, "loom-setup")
            wait_for(lambda: "crafts:loom-setup" in published(backend), 20)


def move_another_folder_there(root: Path) -> None:
    other = write_topics(root.with_name("other"))
    root.rename(root.with_name("former"))
    other.rename(root)


def delete_and_create(root: Path) -> None:
    shutil.rmtree(root)
    write_topics(root)


@pytest.mark.parametrize("replace", [move_another_folder_there, delete_and_create])
def test_a_root_that_is_replaced_is_watched_anew(
    tmp_path: Path, replace: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "_REFRESH_SECONDS", 0.1)
    root = write_topics(tmp_path / "crafts")
    with tiny_backend(tmp_path / "home") as backend:
        backend.submit(SourceChanged(source_id="crafts", root=str(root)), "tests")
        settle(backend)
        with Watcher(backend):
            replace(root)
            time.sleep(0.5)
            write_skill(root, "loom-setup")
            wait_for(lambda: "crafts:loom-setup" in published(backend), 20)


@pytest.mark.parametrize("room", [0, 2, 8], ids=["none", "at the start", "of new folders"])
def test_a_source_with_more_folders_than_watches_is_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """The limit of the kernel applies to all processes of a user: the test answers in its place."""
    add_watch: Any = inotify_c.inotify_add_watch
    rm_watch: Any = inotify_c.inotify_rm_watch
    watched: set[int] = set()

    def add_within_limit(descriptor: int, path: bytes, mask: int) -> int:
        if len(watched) >= room:
            ctypes.set_errno(errno.ENOSPC)
            return -1
        number = int(add_watch(descriptor, path, mask))
        watched.add(number)
        return number

    def remove(descriptor: int, number: int) -> int:
        watched.discard(number)
        return int(rm_watch(descriptor, number))

    monkeypatch.setattr(watcher, "_REFRESH_SECONDS", 0.1)
    monkeypatch.setattr(inotify_c, "inotify_add_watch", add_within_limit)
    monkeypatch.setattr(inotify_c, "inotify_rm_watch", remove)
    root = tmp_path / "crafts"
    for name in ("loom-setup", "kiln-firing", "knot-tying"):
        write_skill(root, name)
    watch = {"poll_seconds": 0.1, "rescan_seconds": 3_600}
    with tiny_backend(tmp_path / "home", embeds="nothing", watch=watch) as backend:
        backend.submit(SourceChanged(source_id="crafts", root=str(root)), "tests")
        wait_for(lambda: len(published(backend)) == 3)
        with Watcher(backend) as watching:
            names = [f"new-{number}" for number in range(6)]
            for name in names:
                write_skill(root, name)
            wait_for(lambda: len(published(backend)) == 9, 20)
            wait_for(lambda: isinstance(watching._observers["crafts"], PollingObserverVFS), 20)
            for name in names:
                write_skill(root, name, "Edited")
            wait_for(lambda: count_edited(backend) == len(names), 20)
        assert not watched


def test_links_in_a_circle_do_not_keep_a_folder_from_being_polled(tmp_path: Path) -> None:
    root = tmp_path / "crafts"
    write_skill(root, "loom-setup")
    for name in ("one", "two"):
        (root / name).symlink_to(root)
    watch = {"force_polling": True, "poll_seconds": 0.1}
    with tiny_backend(tmp_path / "home", embeds="nothing", watch=watch) as backend:
        backend.submit(SourceChanged(source_id="crafts", root=str(root)), "tests")
        wait_for(lambda: len(published(backend)) == 1)
        with Watcher(backend):
            write_skill(root, "kiln-firing")
            wait_for(lambda: len(published(backend)) == 2, 20)


def count_edited(backend: EmbeddedBackend) -> int:
    """The number of skills whose description says that they were edited."""
    return sum("Edited" in entry.description for entry in backend.graph.get_entries())


@pytest.mark.parametrize("refused", ["submit", "graph"])
def test_an_error_of_a_store_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    root = write_topics(tmp_path / "crafts")
    with tiny_backend(tmp_path / "home") as backend:
        backend.submit(SourceChanged(source_id="crafts", root=str(root)), "tests")
        settle(backend)
        calls: list[str] = []

        def refuse(*_: object) -> NoReturn:
            calls.append(refused)
            raise PermanentError("NOPERM this user has no permissions")

        with Watcher(backend):
            with monkeypatch.context() as patch:
                if refused == "submit":
                    patch.setattr(backend, "submit", refuse)
                else:
                    patch.setattr(backend.graph, "list_sources", refuse)
                write_skill(root, "loom-setup")
                wait_for(lambda: len(calls) >= 2)
            wait_for(lambda: "crafts:loom-setup" in published(backend), 20)


def published(backend: EmbeddedBackend) -> set[str]:
    """Ids of the published skills."""
    entries = backend.graph.get_entries()
    return {entry.skill_id for entry in entries if entry.state is SkillState.PUBLISHED}
