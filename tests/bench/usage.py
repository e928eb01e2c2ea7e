"""Benchmarks of recorded answers and outcomes, on made-up ones.

    python -m tests.bench.usage query|day [--outcomes N] [--queries N] [--redis URL] [--folder DIR]

`query`: what recording an answer adds to a query. `day`: outcomes of one day, the size of their
store, the time and the memory of counting that day. Prints JSON. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from config.server_settings import ServerSettings
from skills.batches import batches
from skills.bundle.rejection import RejectionReason
from skills.outcomes.model import (
    SECONDS_PER_DAY,
    AnsweredQuery,
    AnsweredSkill,
    LostSkill,
    Outcome,
    OutcomeKind,
    Reporter,
)
from tasks.broker.redis_connection import connect
from tasks.outcomes.protocol import OutcomeStore
from tasks.outcomes.redis import RedisOutcomeStore
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tasks.outcomes.usage.codec import dump_usage, load_usage
from tasks.outcomes.usage.roll_up import count_day
from tests.bench.run import percentiles

_DAY = 20_000
_SKILLS = 12_000
_OWNERS = 50
_BATCH = 500
_SUBJECTS = ("trip", "order", "cost", "log", "chart", "cloud")
_ENDINGS = ("s", "report", "table", "sync", "check", "merge", "plan", "file")
_WORDS = [f"{first}{second}" for first in _SUBJECTS for second in _ENDINGS]


def make_answer(number: int, random_: random.Random) -> AnsweredQuery:
    """A query with five skills, of which four were sent in two passages each."""
    skills = random_.sample(range(_SKILLS), 5)
    return AnsweredQuery(
        f"{random_.getrandbits(128):032x}",
        f"owner-{number % _OWNERS}",
        f"session-{number // 8}",
        " ".join(random_.choices(_WORDS, k=random_.randint(8, 40))),
        _DAY * SECONDS_PER_DAY + number % SECONDS_PER_DAY,
        hit=number % 10 != 0,
        probability=round(random_.random(), 4),
        skills=tuple(
            AnsweredSkill(
                _name(skill),
                random_.randint(1, 30_000),
                place,
                sent=place < 5,
                tokens=random_.randint(100, 900),
                lines=((3, 40), (60, 95)) if place < 5 else (),
            )
            for place, skill in enumerate(skills, 1)
        ),
        # Each skill has one near copy, which is left out for it.
        lost=(LostSkill(_name(_SKILLS + skills[0]), _name(skills[0])),),
    )


def _name(skill: int) -> str:
    return f"source-{skill % 40}:skills/topic-{skill}"


def make_outcomes(answer: AnsweredQuery, count: int, random_: random.Random) -> Iterator[Outcome]:
    """Outcomes of the skills of a query, one event."""
    event = f"{random_.getrandbits(128):032x}"
    for number in range(count):
        kind = random_.choice([OutcomeKind.USED, OutcomeKind.HELPED, OutcomeKind.REJECTED])
        rejected = kind is OutcomeKind.REJECTED
        yield Outcome(
            f"{event}-{number}",
            answer.query_id,
            answer.skills[number % 5].skill_id,
            kind,
            random_.choice(list(Reporter)),
            answer.owner,
            answer.answered + 60,
            reason=random_.choice(list(RejectionReason)).value if rejected else "",
            place=number % 5 + 1,
        )


def bench_query(store: OutcomeStore, queries: int) -> dict[str, Any]:
    """Milliseconds of `add_answers` for one answer, as the query task calls it."""
    random_ = random.Random(1)
    times = []
    for number in range(queries):
        answer = make_answer(number, random_)
        started = time.perf_counter()
        store.add_answers([answer])
        times.append((time.perf_counter() - started) * 1000)
    return {"queries": queries, "add_answers_ms": percentiles(times)}


def bench_day(store: OutcomeStore, queries: int, outcomes: int) -> dict[str, Any]:
    """Fill a day, then count it."""
    random_ = random.Random(2)
    started = time.monotonic()
    for numbers in batches(range(queries), _BATCH):
        answers = [make_answer(number, random_) for number in numbers]
        store.add_answers(answers)
        store.add_outcomes(
            [
                one
                for number, answer in zip(numbers, answers, strict=True)
                for one in make_outcomes(answer, _share(number, queries, outcomes), random_)
            ]
        )
    filled = time.monotonic() - started
    before = resource.getrusage(resource.RUSAGE_SELF)
    usage = count_day(store, _DAY, lambda: None)
    after = resource.getrusage(resource.RUSAGE_SELF)
    data = dump_usage(usage)
    started = time.perf_counter()
    load_usage(data)
    return {
        "queries": queries,
        "outcomes": sum(dict(store.count_outcomes()).values()),
        "fill_s": round(filled, 1),
        "count_day_cpu_s": round(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1
        ),
        "peak_mb_before": before.ru_maxrss // 1024,
        "peak_mb": after.ru_maxrss // 1024,
        "cells": sum(len(group.skills) for group in usage.groups.values()),
        "usage_kb": len(data) // 1024,
        "load_usage_ms": round((time.perf_counter() - started) * 1000, 1),
    }


def _share(number: int, queries: int, outcomes: int) -> int:
    """How many of the outcomes are of this query."""
    return (number + 1) * outcomes // queries - number * outcomes // queries


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one benchmark on each store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["query", "day"])
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--outcomes", type=int, default=1_000_000)
    parser.add_argument("--redis", help="address of a database that is empty")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store: OutcomeStore
        if options.redis:
            servers = ServerSettings(
                redis=options.redis,
                broker=options.redis,
                # None of these is asked for anything.
                elasticsearch="http://127.0.0.1:1",
                neo4j="bolt://127.0.0.1:1",
            )
            client = stack.enter_context(connect(servers, binary=True))
            if client.dbsize():
                raise SystemExit(f"{options.redis} is not empty")
            store = RedisOutcomeStore(client, servers)
            stack.callback(client.flushdb)
        else:
            store = SqliteOutcomeStore(folder / "outcomes.db")
            stack.callback(store.close)
        if options.what == "query":
            report = bench_query(store, options.queries)
        else:
            report = bench_day(store, options.queries, options.outcomes)
        report["store_mb"] = (
            client.info()["used_memory"] >> 20
            if options.redis
            else sum(one.stat().st_size for one in folder.iterdir()) >> 20
        )
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
