"""What is particular to the SQLite store: files, other processes, kills."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from config.errors import PermanentError, TransientError, UsageError
from graph.local import database as sqlite_store
from graph.local.store import SqliteSkillGraph
from graph.records import Link, LinkType, Publication, Source
from graph.row_codec import pack_vector, unpack_vector
from skills.record import RevisionKey


def publication(path: str, seq: int) -> Publication:
    return Publication(RevisionKey(f"lib:{path}", seq), "lib", path, "hash", path, "")


def test_a_reader_needs_a_library(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="sync a source first"):
        SqliteSkillGraph(tmp_path / "library.db", writable=False)
    assert not (tmp_path / "library.db").exists()


def test_a_reader_sees_commits_and_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "library.db"
    writer = SqliteSkillGraph(path, writable=True)
    reader = SqliteSkillGraph(path, writable=False)
    writer.publish([publication("a", 1)])
    assert reader.get_changes_since(0).pointers == {"lib:a": 1}
    with pytest.raises(UsageError, match="reading only"):
        reader.allocate_sequence(1)
    writer.close()
    assert reader.get_changes_since(0).pointers == {"lib:a": 1}
    reader.close()
    late = SqliteSkillGraph(path, writable=False)
    assert late.get_changes_since(0).pointers == {"lib:a": 1}
    late.close()


def test_a_closed_graph_says_so(tmp_path: Path) -> None:
    graph = SqliteSkillGraph(tmp_path / "library.db", writable=True)
    graph.close()
    graph.close()
    with pytest.raises(UsageError, match="closed"):
        graph.get_counts()


def test_a_graph_that_is_closed_while_it_is_read_says_so(tmp_path: Path) -> None:
    """As by the thread that stops the process."""
    graph = SqliteSkillGraph(tmp_path / "library.db", writable=True)

    def read_on() -> None:
        with graph._database.read() as connection:
            graph.close()
            connection.execute("SELECT 1")

    with pytest.raises(UsageError, match="closed"):
        read_on()


def test_connections_of_ended_threads_are_closed(tmp_path: Path) -> None:
    """Servers start and end threads all the time."""
    graph = SqliteSkillGraph(tmp_path / "library.db", writable=True)
    graph.publish([publication("a", 1)])

    def count_files() -> int:
        files = [one.readlink() for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
        return sum(file.is_relative_to(tmp_path) for file in files)

    before = count_files()
    found: list[int] = []
    for _ in range(20):
        thread = threading.Thread(target=lambda: found.append(graph.get_counts()["published"]))
        thread.start()
        thread.join()
    assert found == [1] * 20
    assert count_files() <= 2 * before
    assert graph.get_counts()["published"] == 1, "this thread's connection is still open"
    graph.close()
    assert count_files() == 0


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "library.db"
    path.write_bytes(b"this is no database, " * 500)
    for writable in (True, False):
        with pytest.raises(PermanentError, match="damaged"):
            SqliteSkillGraph(path, writable=writable)
    assert path.read_bytes().startswith(b"this is no database")


def test_a_library_in_a_folder_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "library.db"
    SqliteSkillGraph(path, writable=True).close()
    # Like a read-only file system, this keeps SQLite from creating its files next to the library.
    (tmp_path / "library.db-wal").mkdir()
    with pytest.raises(PermanentError, match="make the folder writable, or name a copy"):
        SqliteSkillGraph(path, writable=False)


def test_a_disk_that_fails_during_a_read_is_a_passing_error(tmp_path: Path) -> None:
    path = tmp_path / "library.db"
    graph = SqliteSkillGraph(path, writable=True)
    graph.publish([publication(f"skill-{n}", 1) for n in range(300)])
    graph.close()
    graph = SqliteSkillGraph(path, writable=False)
    unreadable = os.open(path, os.O_WRONLY)
    for one in Path("/proc/self/fd").iterdir():
        if one.is_symlink() and one.readlink() == path:
            os.dup2(unreadable, int(one.name))
    os.close(unreadable)
    with pytest.raises(TransientError, match="disk I/O error"):
        graph.get_entries()
    graph.close()


def test_damage_that_shows_later_is_said(tmp_path: Path) -> None:
    path = tmp_path / "library.db"
    graph = SqliteSkillGraph(path, writable=True)
    graph.publish([publication(f"skill-{n}", 1) for n in range(300)])
    graph.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))
    with pytest.raises(PermanentError, match="damaged"):  # noqa: PT012 - either may notice
        graph = SqliteSkillGraph(path, writable=True)
        try:
            graph.get_entries()
        finally:
            graph.close()


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "library.db"
    SqliteSkillGraph(path, writable=True).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for writable in (True, False):
        with pytest.raises(PermanentError, match="schema 99"):
            SqliteSkillGraph(path, writable=writable)


def test_a_file_of_the_first_schema_is_brought_up(tmp_path: Path) -> None:
    path = tmp_path / "library.db"
    SqliteSkillGraph(path, writable=True).close()
    connection = sqlite3.connect(path)
    connection.executescript("""
        CREATE TABLE older (source_id TEXT PRIMARY KEY, kind TEXT NOT NULL, root TEXT NOT NULL,
            last_success REAL NOT NULL) WITHOUT ROWID;
        INSERT INTO older VALUES ('team', 'directory', '/skills', 5.0);
        DROP TABLE sources;
        ALTER TABLE older RENAME TO sources;
        DROP INDEX skills_by_state;
        DROP INDEX skills_by_id;
        DROP INDEX skills_by_name;
        CREATE INDEX skills_by_name ON skills (source_id, name_key) WHERE name_key IS NOT NULL;
        DROP INDEX skills_judged;
        DROP TABLE finding_rules;
        DELETE FROM meta WHERE key = 'rules_version';
        DROP INDEX skills_by_parser;
        ALTER TABLE skills DROP COLUMN parser;
        ALTER TABLE skills DROP COLUMN has_scripts;
        ALTER TABLE skills DROP COLUMN scanner;
        ALTER TABLE skills DROP COLUMN judgements;
        DROP INDEX skills_without_vectors;
        ALTER TABLE skills DROP COLUMN vectors;
        DROP TABLE dismissed_links;
        DROP TABLE source_groups;
        INSERT INTO skills (skill_id, source_id, path, state, seq)
            VALUES ('team:a', 'team', 'a', 'published', 1);
        PRAGMA user_version = 1;
        """)
    connection.close()
    with pytest.raises(UsageError, match="upgrades it"):
        SqliteSkillGraph(path, writable=False)
    for writable in (True, False):
        graph = SqliteSkillGraph(path, writable=writable)
        assert graph.list_sources() == [Source("team", "directory", "/skills", 5.0)]
        assert graph.list_scanned_before(1, 10) == [RevisionKey("team:a", 1)]
        assert graph.list_parsed_before(1, 10) == [RevisionKey("team:a", 1)]
        assert graph.get_entries(["team:a"])[0].judgements == ()
        assert graph.get_entries(["team:a"])[0].has_vectors, "stored when it was published"
        assert graph.get_entries(["team:a"])[0].has_scripts is None
        assert graph.get_rules_version() == 0
        graph.close()


def test_queries_read_no_rows_of_the_table_of_skills(tmp_path: Path) -> None:
    """A thousand candidates would take as many pages from disk; each index is a seventh of the
    size."""
    graph = SqliteSkillGraph(tmp_path / "library.db", writable=True)
    with graph._database.read() as db:
        for name in ("safety_records", "adjacency"):
            plan = db.execute(f"EXPLAIN QUERY PLAN {graph._statements[name]}", ("[]",)).fetchall()
            steps = [step[3] for step in plan]
            read = [step for step in steps if step.split()[1] in {"s", "t", "l"}]
            assert read
            assert [step for step in read if "COVERING INDEX" not in step] == []
            # Few skills have judgements, which are in no index.
            judged = [step for step in steps if step.split()[1] == "j"]
            assert all("INDEX skills_judged" in step for step in judged)
    graph.close()


def test_a_locked_file_is_transient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "_BUSY_SECONDS", 0.05)
    path = tmp_path / "library.db"
    graph = SqliteSkillGraph(path, writable=True)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(TransientError, match="busy"):
        graph.allocate_sequence(1)
    other.execute("ROLLBACK")
    other.close()
    assert list(graph.allocate_sequence(1)) == [1]
    graph.close()


def test_a_full_disk_is_transient_and_undone(tmp_path: Path) -> None:
    graph = SqliteSkillGraph(tmp_path / "library.db", writable=True)
    graph.publish([publication("a", 1)])
    with graph._database.write() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")
    before = graph.get_changes_since(0)
    with pytest.raises(TransientError, match="full"):
        graph.publish([publication(f"skill-{n:05}", 2) for n in range(3000)])
    assert graph.get_changes_since(0) == before
    graph.close()


def test_a_bug_is_not_taken_for_a_bad_disk(tmp_path: Path) -> None:
    graph = SqliteSkillGraph(tmp_path / "library.db", writable=True)
    with pytest.raises(sqlite3.OperationalError), graph._database.read() as db:
        db.execute("SELECT nothing FROM nowhere")
    assert graph.get_counts()["published"] == 0
    graph.close()


def test_threads_share_one_graph(tmp_path: Path) -> None:
    graph = SqliteSkillGraph(tmp_path / "library.db", writable=True)
    taken: list[int] = []
    torn: list[int] = []
    done = threading.Event()

    def write(worker: int) -> None:
        for n in range(15):
            (seq,) = graph.allocate_sequence(1)
            taken.append(seq)
            pair = [publication(f"{worker}-{n}-{side}", seq) for side in "ab"]
            graph.publish(pair)

    def read() -> None:
        while not done.is_set():
            torn.append(len(graph.get_changes_since(0).pointers) % 2)

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert sorted(taken) == list(range(1, 61))
    assert graph.get_counts()["published"] == 120
    assert not any(torn)
    graph.close()


_PUBLISHER = """
import sys
from pathlib import Path
from graph.local.store import SqliteSkillGraph
from graph.records import Publication
from skills.record import RevisionKey

graph = SqliteSkillGraph(Path(sys.argv[1]), writable=True)
while True:
    (seq,) = graph.allocate_sequence(1)
    pair = [
        Publication(RevisionKey(f"lib:{seq}-{side}", seq), "lib", f"{seq}-{side}", "h", "n", "")
        for side in "ab"
    ]
    graph.publish(pair)
    print(seq, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_what_was_returned_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "library.db"
    root = str(Path(sqlite_store.__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", _PUBLISHER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": root},
    ) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(20)]
        process.kill()
        acknowledged += [int(line) for line in process.stdout.read().split("\n")[:-1]]
    graph = SqliteSkillGraph(path, writable=True)
    pointers = graph.get_changes_since(0).pointers
    assert {f"lib:{seq}-{side}" for seq in acknowledged for side in "ab"} <= pointers.keys()
    assert len(pointers) % 2 == 0
    assert graph.allocate_sequence(1)[0] > acknowledged[-1]
    graph.close()


def test_a_failed_transaction_leaves_nothing(tmp_path: Path) -> None:
    graph = SqliteSkillGraph(tmp_path / "library.db", writable=True)
    broken = Link("lib:a", "lib:a", "lib:b", LinkType.SEMANTIC, 0.5, None)  # type: ignore[arg-type]  # the store refuses it
    graph.publish([publication("a", 1), publication("b", 2)])
    marks = graph.list_awaiting_linking(9)
    with pytest.raises(sqlite3.IntegrityError):
        graph.replace_links({"lib:a": [broken]}, marks)
    assert graph.list_awaiting_linking(9) == marks
    assert graph.get_links(["lib:a"]) == {"lib:a": []}
    graph.close()


def test_vectors_are_packed_whole_and_in_one_order() -> None:
    big = (1 << 63) - 1
    packed = pack_vector({big: 0.5, 7: 0.25})
    assert packed == pack_vector({7: 0.25, big: 0.5})
    assert unpack_vector(packed) == {7: 0.25, big: 0.5}
    assert unpack_vector(pack_vector({})) == {}
    with pytest.raises(OverflowError):
        pack_vector({big + 1: 1.0})


def test_cached_rows_follow_what_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "library.db"
    writer = SqliteSkillGraph(path, writable=True)
    reader = SqliteSkillGraph(path, writable=False)
    writer.publish([publication(name, n) for n, name in enumerate("abcd", 1)])
    ids = [f"lib:{name}" for name in "abcd"]

    def link_to(target: str) -> list[Link]:
        return [Link("lib:a", "lib:a", f"lib:{target}", LinkType.SEMANTIC, 0.5, "")]

    def neighbours() -> dict[str, list[str]]:
        rows = reader.get_adjacency(ids, 8)
        return {
            one: [end.skill_id for end in rows[one].neighbours] for one in ids if rows[one].totals
        }

    for target in "bcb":
        writer.replace_links({"lib:a": link_to(target)}, [])
        assert neighbours() == {"lib:a": [f"lib:{target}"], f"lib:{target}": ["lib:a"]}
        assert neighbours() == {"lib:a": [f"lib:{target}"], f"lib:{target}": ["lib:a"]}
    # More changes than are worth reading.
    for _ in range(250):
        writer.replace_links({"lib:a": link_to("d")}, [])
    assert neighbours() == {"lib:a": ["lib:d"], "lib:d": ["lib:a"]}
    writer.remove([RevisionKey("lib:d", 9)])
    assert neighbours() == {}
    reader.close()
    writer.close()
