"""kill -9, duplicates and reordering: every outcome and every answered query counts once."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import httpx

from config.settings import Settings
from skills.events import Event, OutcomesReported, QueryAsked, SkillOutcome, new_event
from skills.outcomes.model import Outcome, OutcomeKind, Reporter
from tasks.journal.protocol import job_id
from tasks.outcomes.protocol import OutcomeStore
from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.samples.library import write_topics
from tests.support.servers.distributed import REST, Deployments, deployments
from workers.backend.store_backend import StoreBackend
from workers.backend.stores import open_outcomes

__all__ = ["deployments"]

SEED = int(os.environ.get("SKILLBUS_CRASH_SEED", "0")) or random.randrange(1 << 30)
ROUNDS = 4
KILN = "crafts:kiln-firing"
TASK = "fire stoneware in an electric kiln"


def reports(query_ids: Sequence[str], chance: random.Random, name: str) -> list[Event]:
    """Two outcomes of each query in an event, some events twice, in any order."""
    events = []
    for query_id in query_ids:
        outcomes = (
            SkillOutcome(skill_id=KILN, outcome=OutcomeKind.HELPED, by=Reporter.VERIFIER),
            SkillOutcome(outcome=OutcomeKind.MISSING),
        )
        data = OutcomesReported(query_id=query_id, outcomes=outcomes)
        event = new_event(data, "tests").model_copy(update={"id": f"{name}-{query_id}"})
        events += [event] * chance.choice([1, 1, 2, 3])
    chance.shuffle(events)
    return events


def expected_keys(events: Sequence[Event]) -> list[str]:
    return sorted(
        f"{job_id(event)}-{number}"
        for event in {job_id(e): e for e in events}.values()
        for number in range(2)
    )


def check(store: OutcomeStore, events: Sequence[Event]) -> None:
    """Each outcome is stored once, in each view of the store."""
    keys = expected_keys(events)
    stored: list[Outcome] = list(store.list_outcomes())
    assert sorted(one.key for one in stored) == keys, f"seed {SEED}"
    assert sum(store.count_outcomes().values()) == len(keys), f"seed {SEED}"
    days = {one.day for one in stored}
    by_day = [one.key for day in sorted(days) for one in store.list_outcomes_of(day)]
    assert sorted(by_day) == keys, f"seed {SEED}"
    changed = {str(event.data["query_id"]) for event in events}
    assert set(store.get_changes(0).query_ids) == changed, f"seed {SEED}"


def done_queries(home: Path) -> set[str]:
    """The answered queries of a journal."""
    with closing(sqlite3.connect(home / "journal.db")) as connection:
        rows = connection.execute("SELECT id FROM jobs WHERE kind = 'query' AND state = 'done'")
        return {row[0] for row in rows}


def recorded_queries(store: OutcomeStore, query_ids: Sequence[str]) -> list[str]:
    """The recorded answers of queries, by the days on which they were given."""
    days = {answer.day for answer in store.get_answers(query_ids).values()}
    return [one.query_id for day in sorted(days) for one in store.list_answers_of(day)]


def send(client: httpx.Client, events: Sequence[Event]) -> None:
    """Send events until the process is killed."""
    for event in events:
        try:
            client.post("/v1/events", json=event.model_dump(mode="json")).raise_for_status()
        except httpx.TransportError:
            return


def test_serve_is_killed_while_queries_and_outcomes_come(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    skillbus = Skillbus(fork_server, tmp_path / "home", SKILLBUS_WORKERS__RECONCILE_SECONDS="1")
    skillbus("sync", str(write_topics(tmp_path / "crafts")))
    asked: list[str] = []
    sent: list[Event] = []
    for number in range(ROUNDS):
        with skillbus.serving() as serve, skillbus.client() as client:
            for _ in range(chance.randrange(1, 5)):
                answer = client.post("/v1/queries", json={"task": TASK}).raise_for_status()
                asked.append(answer.json()["id"])
            events = reports(asked, chance, f"round-{number}")
            sent += events
            # Some arrive, a few of them twice; the kill comes while tasks still run.
            send(client, events[: chance.randrange(len(events) + 1)])
            serve.kill()
    with skillbus.serving(), skillbus.client() as client:
        send(client, sent)

        def all_ended() -> bool:
            jobs = [f"/v1/events/{job_id(event)}" for event in sent]
            jobs += [f"/v1/queries/{query_id}" for query_id in asked]
            return all(client.get(job).json()["state"] != "accepted" for job in dict.fromkeys(jobs))

        wait_for(all_ended, 120)
        settings = Settings(home=skillbus.home)
        with ExitStack() as stack:
            store = open_outcomes(settings, stack)
            wait_for(lambda: set(recorded_queries(store, asked)) == done_queries(skillbus.home), 60)
            assert len(recorded_queries(store, asked)) == len(set(asked)), f"seed {SEED}"
            check(store, sent)


def test_workers_are_killed_while_outcomes_come(deployments: Deployments, tmp_path: Path) -> None:
    chance = random.Random(SEED + 1)
    distributed = deployments()
    distributed.start()
    distributed.skillbus("sync", str(write_topics(tmp_path / "crafts")))
    distributed.wait_done()
    sent: list[Event] = []
    with distributed.backend() as backend:
        asked = [backend.submit_query(QueryAsked(task=TASK), "tests") for _ in range(5)]
        for number in range(ROUNDS):
            events = reports(asked, chance, f"round-{number}")
            sent += events
            for event in events:
                backend.accept(event)
                if chance.random() < 0.2:
                    distributed.workers[REST].kill_children()
            distributed.kill(REST, "query")
            distributed.start(REST, "query")
        for event in sent:
            backend.accept(event)
        wait_for(lambda: all_done(backend, asked, sent), 180)
        with ExitStack() as stack:
            check(open_outcomes(distributed.settings, stack), sent)


def all_done(backend: StoreBackend, asked: Sequence[str], sent: Sequence[Event]) -> bool:
    ids = [*asked, *{job_id(event) for event in sent}]
    return all(state == "done" for state, _ in backend.journal.get_job_states(ids).values())
