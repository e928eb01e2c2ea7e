"""The distributed deployment, end to end: it ends where the embedded one does, whatever happens."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from neo4j import GraphDatabase

from config.errors import TransientError, UsageError
from graph.records import SkillState
from search.elastic.index import _delete
from skills.events import QueryAsked, SkillRemoved, SourceChanged, new_event
from skills.record import RevisionKey
from tasks.broker.redis_connection import PREFIX
from tasks.policies import INGEST, LINK, MAINTAIN, PLAN, QUERY
from tasks.send import queue_depth, send_task
from tests.support.program.program import Skillbus, wait_for
from tests.support.program.snapshot import NOTHING_LEFT, leftovers, snapshot
from tests.support.samples.library import TOPICS, Folder, write_skill, write_topics
from tests.support.servers.distributed import Deployments, Distributed, deployments
from workers.backend.distributed import DistributedBackend
from workers.processes.workloads import WORKLOADS

__all__ = ["deployments"]

ORIGIN = "skillbus/test"


@pytest.fixture(scope="module")
def distributed(deployments: Deployments) -> Distributed:
    return deployments()


@pytest.fixture
def all_running(distributed: Distributed) -> Distributed:
    """The deployment with a worker for each workload, idle."""
    for workload in WORKLOADS:
        worker = distributed.workers.get(workload.name)
        if worker is None or not worker.running:
            distributed.start(workload.name)
    distributed.wait_done()
    return distributed


@pytest.fixture
def crafts(all_running: Distributed, tmp_path: Path) -> Path:
    """Ten skills of the test's own, in the library as source `crafts`."""
    root = write_topics(tmp_path / "crafts")
    sources = {row["source_id"] for row in all_running.skillbus("sources", "list", "--json").data}
    for source in sources:
        all_running.skillbus("sources", "remove", source)
    all_running.skillbus("sync", str(root))
    all_running.wait_done()
    return root


def changed(root: Path, *paths: str) -> SourceChanged:
    return SourceChanged(source_id=root.name, root=str(root), paths=paths)


def wait_ended(backend: DistributedBackend, *job_ids: str) -> None:
    wait_for(lambda: all(backend.journal.get_job(one).state != "accepted" for one in job_ids), 120)


def test_a_library_is_the_same_as_an_embedded_one(
    all_running: Distributed, skillbus: Skillbus, tmp_path: Path
) -> None:
    folder = Folder(tmp_path / "lib", seed=5, size=30)
    for _ in range(2):
        one = skillbus.start("sync", str(folder.root)).wait()
        other = all_running.skillbus.start("sync", str(folder.root)).wait()
        assert other.code == one.code, other.err
        all_running.wait_done()
        assert snapshot(all_running.settings) == snapshot(skillbus.home)
        folder.change(8)


def test_a_query_is_answered_on_the_result_queue(all_running: Distributed, crafts: Path) -> None:
    found = all_running.skillbus("query", "true a bicycle wheel", "--format", "json").data
    assert found["status"] == "SKILL_HIT"
    assert found["degraded"] == []
    assert found["skills"][0]["skill_id"] == "crafts:bicycle-repair"
    with all_running.backend() as backend, all_running.redis() as client:
        bundle = backend.answer_query(QueryAsked(task="bake sourdough bread"), ORIGIN)
        assert bundle["skills"][0]["skill_id"] == "crafts:bread-baking"
        with pytest.raises(UsageError, match="x:y"):
            backend.answer_query(QueryAsked(task="bread", without=("x:y",)), ORIGIN)
        # answers are fetched once and kept in the journal
        assert client.keys("celery-task-meta-*") == []
        assert backend.journal.get_job(bundle["query_id"]).outcome == bundle


def test_results_that_are_not_fetched_expire(all_running: Distributed, crafts: Path) -> None:
    with all_running.backend() as backend, all_running.redis() as client:
        event = new_event(QueryAsked(task="bread"), ORIGIN)
        backend.journal.add_job(event, "query", 600)
        result = send_task(backend.app, QUERY.name, [event.id], keep_result=True)
        wait_ended(backend, event.id)
        key = wait_for(lambda: client.keys(f"celery-task-meta-{result.id}"))[0]
        assert 0 < int(client.ttl(key)) <= 3600
        client.delete(key)


def test_a_query_that_was_not_taken_in_time_is_received(all_running: Distributed) -> None:
    with all_running.backend() as backend:
        event = new_event(QueryAsked(task="bread"), ORIGIN)
        backend.journal.add_job(event, "query", 0.01)
        time.sleep(0.02)
        send_task(backend.app, QUERY.name, [event.id])
        wait_ended(backend, event.id)
        assert "expired before a worker took it" in backend.journal.get_job(event.id).reason


def test_without_a_worker_there_is_no_answer(all_running: Distributed) -> None:
    all_running.stop("query")
    with all_running.backend(query_seconds=0.5) as backend:
        with pytest.raises(TransientError, match=r"no answer within 0\.5 s"):
            backend.answer_query(QueryAsked(task="bread"), ORIGIN)
        all_running.start("query")
        [query_id] = backend.journal.list_open_jobs("query") or [""]
        if query_id:
            wait_ended(backend, query_id)


def test_a_burst_is_ingested_once(all_running: Distributed, tmp_path: Path) -> None:
    root = tmp_path / "burst"
    names = [f"skill-{number}" for number in range(40)]
    for name in names:
        write_skill(root, name, f"What {name} does", f"## Steps\n\n1. Say {name} 0.\n")
    all_running.skillbus("sync", str(root), "--until", "searchable")
    all_running.wait_done(embedded=False)
    with all_running.backend() as backend:
        before = backend.graph.get_entries_under("burst", "")
        highest = max(entry.seq for entry in before)
        events = []
        for turn in range(1, 6):
            for name in names:
                write_skill(root, name, f"What {name} does", f"## Steps\n\n1. Say {name} {turn}.\n")
                events.append(backend.submit(changed(root, name), ORIGIN))
        wait_ended(backend, *events)
        all_running.wait_done(embedded=False)
        after = backend.graph.get_entries_under("burst", "")
        taken = max(entry.seq for entry in after) - highest
        assert taken <= 100, taken
        assert {backend.journal.get_job(one).state for one in events} == {"done"}
        with all_running.index() as index:
            keys = [RevisionKey(entry.skill_id, entry.seq) for entry in after]
            texts = [stored.parsed for stored in index.get_revisions(keys).values()]
        assert len(texts) == 40
        assert all(f"{name} 5." in str(texts) for name in names)
    all_running.skillbus("sources", "remove", "burst")


def test_queries_are_answered_while_ingest_is_busy(
    all_running: Distributed, crafts: Path, tmp_path: Path
) -> None:
    busy = Folder(tmp_path / "busy", seed=3, size=60)
    with all_running.backend() as backend:
        event = backend.submit(changed(busy.root), ORIGIN)
        for _ in range(5):
            bundle = backend.answer_query(QueryAsked(task="true a bicycle wheel"), ORIGIN)
            assert bundle["status"] == "SKILL_HIT"
        wait_ended(backend, event)
    all_running.wait_done()
    all_running.skillbus("sources", "remove", "busy")
    all_running.wait_done()


def test_too_many_are_refused_and_nothing_is_lost(all_running: Distributed, crafts: Path) -> None:
    all_running.stop("ingest", "query")
    with all_running.backend(open_events=3, open_queries=2) as backend:
        events = [backend.submit(changed(crafts, "tide-tables"), ORIGIN) for _ in range(3)]
        with pytest.raises(
            TransientError, match=r"too many open events \(3, workers.open_events\)"
        ):
            backend.submit(changed(crafts, "tide-tables"), ORIGIN)
        queries = [backend.submit_query(QueryAsked(task="bread"), ORIGIN) for _ in range(2)]
        with pytest.raises(TransientError, match=r"too many open queries \(2,"):
            backend.answer_query(QueryAsked(task="bread"), ORIGIN)
        assert sorted(backend.journal.list_open_jobs("event")) == sorted(events)
        all_running.start("ingest", "query")
        wait_ended(backend, *events, *queries)
        assert {backend.journal.get_job(one).state for one in (*events, *queries)} == {"done"}


def test_a_deep_queue_takes_no_more_and_the_journal_holds_the_rest(
    all_running: Distributed, crafts: Path
) -> None:
    all_running.stop("ingest")
    with all_running.backend() as backend:
        names = sorted(TOPICS)
        max_queue_length = PLAN.max_queue_length or 0
        events = [
            backend.submit(changed(crafts, names[number % len(names)]), ORIGIN)
            for number in range(max_queue_length + 10)
        ]
        assert queue_depth(backend.app, PLAN.queue) == max_queue_length
        all_running.start("ingest")
        wait_ended(backend, *events)


def test_what_was_accepted_while_the_broker_was_away_is_sent_later(
    all_running: Distributed, crafts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_skill(crafts, "tide-tables", "Read the moon instead")
    with all_running.backend() as backend:
        # the journal answers and the broker does not, as where they are two servers
        backend.app.conf.broker_read_url = backend.app.conf.broker_write_url = (
            "redis://127.0.0.1:1/0"
        )
        event = backend.submit(changed(crafts, "tide-tables"), ORIGIN)
        received = "accepted; sending to the broker failed, the reconciler will retry"
        assert received in capsys.readouterr().out
        with all_running.backend() as other:
            other.send_maintenance()
        wait_ended(backend, event)
        [entry] = backend.graph.get_entries(["crafts:tide-tables"])
        wait_for(
            lambda: backend.graph.get_entries([entry.skill_id])[0].description.startswith(
                "Read the m"
            )
        )


@contextmanager
def locked(deployment: Distributed, skill_id: str) -> Iterator[None]:
    """No other process can write the skill's entry meanwhile."""
    servers = deployment.settings.servers
    file = servers.neo4j_password_file
    auth = None if file is None else (servers.neo4j_user, file.read_text().strip())
    with (
        GraphDatabase.driver(servers.neo4j, auth=auth) as driver,
        driver.session(database=servers.neo4j_database) as session,
        session.begin_transaction() as transaction,
    ):
        lock = "MATCH (s:Skill {skill_id: $one}) SET s.lock = 1"
        transaction.run(lock, one=skill_id).consume()
        yield
        transaction.rollback()


def planned(deployment: Distributed, backend: DistributedBackend, root: Path, path: str) -> None:
    """The ingest of a skill waits in its queue, and no worker takes from it."""
    deployment.stop("ingest")
    deployment.launch("ingest", name="plan", queues="plan")
    deployment.wait_ready("plan")
    wait_ended(backend, backend.submit(changed(root, path), ORIGIN))
    wait_for(lambda: queue_depth(backend.app, INGEST.queue))
    deployment.stop("plan")


def begun(backend: DistributedBackend, task: str) -> bool:
    return any(note["task"] == task for note in backend.coordinator.get_running_tasks().values())


def test_what_a_worker_does_not_survive_becomes_a_dead_letter(
    all_running: Distributed, crafts: Path
) -> None:
    write_skill(crafts, "tide-tables", "Read the moon instead")
    with all_running.backend() as backend:
        planned(all_running, backend, crafts, "tide-tables")
        with locked(all_running, "crafts:tide-tables"):
            worker = all_running.launch("ingest")
            kills: list[int] = []

            def gave_up() -> bool:
                """Whether it is begun no more; until then its child is killed each time."""
                if begun(backend, INGEST.name) and set(worker.children()) - set(kills):
                    kills.extend(worker.kill_children())
                return any("died or hung" in line.get("reason", "") for line in worker.log())

            wait_for(gave_up, 150)
        assert len(kills) >= INGEST.max_deliveries
        letter = wait_for(lambda: backend.journal.list_dead_letters(1), 60)[0]
        assert (letter.task, letter.ids) == (INGEST.name, ("crafts:tide-tables",))
        assert letter.attempts == INGEST.max_deliveries
        assert "its worker died or hung each time" in letter.reason
        assert worker.running
        all_running.wait_done()
        [entry] = backend.graph.get_entries(["crafts:tide-tables"])
        assert entry.state is SkillState.FAILED
        # somebody mended it: the next event ingests it again
        write_skill(crafts, "tide-tables", "Read tide tables")
        wait_ended(backend, backend.submit(changed(crafts, "tide-tables"), ORIGIN))
        all_running.wait_done()
        [entry] = backend.graph.get_entries(["crafts:tide-tables"])
        assert entry.state is SkillState.PUBLISHED
        backend.journal.delete_dead_letter(letter.id)


def test_a_worker_that_is_killed_leaves_its_work_to_the_next(
    all_running: Distributed, crafts: Path
) -> None:
    write_skill(crafts, "tide-tables", "Read the moon instead")
    with all_running.backend() as backend:
        planned(all_running, backend, crafts, "tide-tables")
        with locked(all_running, "crafts:tide-tables"):
            worker = all_running.launch("ingest")
            wait_for(lambda: begun(backend, INGEST.name), 60)
            children = worker.children()
            worker.process.kill()
            wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))
        all_running.start("ingest")
        wait_for(lambda: len(backend.coordinator.alive_workers()) == len(WORKLOADS))
        backend.send_maintenance()
        all_running.wait_done()
        [entry] = backend.graph.get_entries(["crafts:tide-tables"])
        assert entry.description == "Read the moon instead"


def running_task(backend: DistributedBackend) -> str:
    """The id of the ingest task that runs; one has to begin within a minute."""

    def find() -> str:
        running = backend.coordinator.get_running_tasks().items()
        return next((one for one, note in running if note["task"] == INGEST.name), "")

    return str(wait_for(find, 60))


def message_ids(deployment: Distributed) -> list[str]:
    """Task ids of the ingest queue's messages, and of those that were not acknowledged."""
    with deployment.redis() as client:
        waiting = [json.loads(one) for one in client.lrange(INGEST.queue, 0, -1)]
        taken = [json.loads(one)[0] for one in client.hvals("unacked")]
    return [message["headers"]["id"] for message in (*waiting, *taken)]


def test_a_worker_that_is_stopped_ends_what_runs(all_running: Distributed, crafts: Path) -> None:
    write_skill(crafts, "tide-tables", "Read the moon instead")
    with all_running.backend() as backend:
        planned(all_running, backend, crafts, "tide-tables")
        with locked(all_running, "crafts:tide-tables"):
            worker = all_running.launch("ingest")
            task_id = running_task(backend)
            worker.send(signal.SIGTERM)
            time.sleep(1)
            assert worker.running
        assert worker.process.wait().code == 0
        [entry] = backend.graph.get_entries(["crafts:tide-tables"])
        assert entry.description == "Read the moon instead"
        assert task_id not in backend.coordinator.get_running_tasks()
        assert task_id not in message_ids(all_running)


def test_what_does_not_end_in_time_is_delivered_again(
    all_running: Distributed, crafts: Path
) -> None:
    write_skill(crafts, "tide-tables", "Read the moon instead")
    with all_running.backend() as backend:
        planned(all_running, backend, crafts, "tide-tables")
        with locked(all_running, "crafts:tide-tables"):
            worker = all_running.launch("ingest", SKILLBUS_WORKERS__STOP_SECONDS="1")
            task_id = running_task(backend)
            worker.send(signal.SIGTERM)
            worker.process.wait()
            assert task_id in message_ids(all_running)
        all_running.start("ingest")
        all_running.wait_done()
        [entry] = backend.graph.get_entries(["crafts:tide-tables"])
        assert entry.description == "Read the moon instead"


def test_two_reconcilers_and_two_link_workers_end_the_same(
    all_running: Distributed, skillbus: Skillbus, tmp_path: Path
) -> None:
    for source in all_running.skillbus("sources", "list", "--json").data:
        all_running.skillbus("sources", "remove", source["source_id"])
    folder = Folder(tmp_path / "lib", seed=11, size=20)
    all_running.launch("link", name="another")
    all_running.wait_ready("another")
    with all_running.backend() as backend:
        for _ in range(2):
            event = backend.submit(changed(folder.root), ORIGIN)
            for _ in range(4):
                backend.send_maintenance()
                send_task(backend.app, LINK.name, [])
            wait_ended(backend, event)
            folder.change(6)
            wait_ended(backend, backend.submit(changed(folder.root), ORIGIN))
            all_running.wait_done()
    skillbus.start("sync", str(folder.root)).wait()
    assert snapshot(all_running.settings) == snapshot(skillbus.home)
    all_running.stop("another")


# -- the reconciler
def maintained(deployment: Distributed, backend: DistributedBackend) -> dict[str, Any]:
    """Have the reconciler sweep now; what it reported."""

    def reports() -> list[dict[str, Any]]:
        lines = deployment.log("link")
        return [
            line
            for line in lines
            if line.get("task") == MAINTAIN.name and "deleted_revisions" in line
        ]

    before = len(reports())
    with deployment.redis() as client:
        client.delete(f"{PREFIX}due:sweep")
    backend.send_maintenance()
    report: dict[str, Any] = wait_for(lambda: reports()[before:], 60)[0]
    return report


def test_what_vanished_from_the_index_is_ingested_again(
    all_running: Distributed, crafts: Path
) -> None:
    with all_running.backend() as backend, all_running.index() as index:
        [entry] = backend.graph.get_entries(["crafts:kiln-firing"])
        index.delete([RevisionKey(entry.skill_id, entry.seq)])
        assert maintained(all_running, backend)["reingested"] == 1
        backend.send_maintenance()
        all_running.wait_done()
        [again] = backend.graph.get_entries(["crafts:kiln-firing"])
        assert again.seq > entry.seq
        assert leftovers(all_running.settings)["missing"] == []
        bundle = backend.answer_query(QueryAsked(task="fire stoneware in a kiln"), ORIGIN)
        assert bundle["skills"][0]["skill_id"] == "crafts:kiln-firing"


def test_what_only_searches_have_lost_is_ingested_again(
    all_running: Distributed, crafts: Path
) -> None:
    with all_running.backend() as backend, all_running.index() as index:
        [entry] = backend.graph.get_entries(["crafts:kiln-firing"])
        key = RevisionKey(entry.skill_id, entry.seq)
        index._connection.bulk_unless_refused([_delete(index.ensure(), "skills", key)], wait=True)
        assert not set(index.list_keys()).intersection([key])
        assert maintained(all_running, backend)["reingested"] == 1
        backend.send_maintenance()
        all_running.wait_done()
        assert leftovers(all_running.settings)["missing"] == []


def test_what_no_reader_can_see_is_swept(all_running: Distributed, crafts: Path) -> None:
    with all_running.backend() as backend, all_running.index() as index:
        old = {entry.skill_id: entry.seq for entry in backend.graph.get_entries()}
        write_skill(crafts, "kiln-firing", "Fire porcelain")
        wait_ended(
            backend,
            backend.submit(changed(crafts, "kiln-firing"), ORIGIN),
            backend.submit(SkillRemoved(skill_id="crafts:map-projection"), ORIGIN),
        )
        all_running.wait_done()
        assert len(index.list_keys()) >= 11
        remnant = RevisionKey("crafts:kiln-firing", old["crafts:kiln-firing"])
        index._connection.bulk_unless_refused(
            [_delete(index.ensure(), "skills", remnant)], wait=True
        )
        assert remnant in index.partial_keys()
        maintained(all_running, backend)  # readers may still have chosen what was superseded
        assert remnant in index.partial_keys()
        removed = RevisionKey("crafts:map-projection", old["crafts:map-projection"])
        assert {removed} <= set(index.list_keys())
    all_running.stop("link")
    all_running.start("link", SKILLBUS_WORKERS__KEEP_SECONDS="0")
    with all_running.backend() as backend:
        wait_for(lambda: maintained(all_running, backend)["deleted_revisions"])
        assert leftovers(all_running.settings) == NOTHING_LEFT
        with all_running.index() as index:
            assert index.partial_keys() == []
            assert not {removed} & set(index.list_keys())
    all_running.stop("link")
    all_running.start("link")


def test_marks_that_were_not_seen_are_linked(all_running: Distributed, crafts: Path) -> None:
    all_running.stop("link")
    with all_running.backend() as backend:
        write_skill(crafts, "kiln-firing", "Fire porcelain", depends="bread-baking")
        wait_ended(backend, backend.submit(changed(crafts, "kiln-firing"), ORIGIN))
        wait_for(lambda: backend.graph.get_counts()["unlinked"])
        with backend.app.connection_for_write() as connection:
            connection.default_channel.queue_purge(LINK.queue)
        all_running.start("link")
        backend.send_maintenance()
        wait_for(lambda: not backend.graph.get_counts()["unlinked"], 60)
        links = backend.graph.get_links(["crafts:kiln-firing"])["crafts:kiln-firing"]
        assert "crafts:bread-baking" in {link.target for link in links}
