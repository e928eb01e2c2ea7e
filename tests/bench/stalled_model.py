"""Measures what queries wait for while the language model's endpoint stalls.

    python -m tests.bench.stalled_model --home HOME --tasks tasks.jsonl [--queries 50]

A server on loopback takes every call and answers none. Bundles are made with and without the stage
`select`, in turns, so that whatever else the machine does hits both. The phases:

- `first calls`: the circuit is closed before each query, so that each waits for the model in vain.
- `open circuit`: the circuit stays as the failures left it; now and then a query tries again.

Prints JSON, times in milliseconds. beyond: what a query took without the milliseconds that it may
wait for the model, if it waited. `p95 more` is the 95th percentile beyond those, over that of the
same queries without the stage. own: the time of the stage itself, without the wait. `first query`:
of the process, which also imports the client.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from config.language_model_settings import LanguageModelSettings
from config.logging import configure_logging
from skills.events import QueryAsked
from tasks.language_model.endpoint.state import EndpointState, state_of
from tasks.policies import QUERY, Deadline
from tasks.query.pipeline import answer_query
from tasks.services import Services
from tests.bench.recorded_queries import open_services
from tests.bench.run import percentiles
from tests.support.servers.language_model import LanguageModelServer, stalling
from workers.evaluation.predictions import read_jsonl

_QUERY_MILLISECONDS = 500
_BUDGET = 8_000
_FAILURES = 3
"""Queries that fail before the phase `open circuit`: more than open it."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One query: milliseconds, those of the stage, and whether it waited for the model."""

    milliseconds: float
    stage: float
    waited: bool

    @property
    def own(self) -> float:
        """The milliseconds of the stage without the wait."""
        return self.stage - (_QUERY_MILLISECONDS if self.waited else 0)

    @property
    def beyond(self) -> float:
        """The milliseconds without those that a query may wait for the model."""
        return self.milliseconds - (_QUERY_MILLISECONDS if self.waited else 0)


class Bench:
    """Queries with and without the stage over the same stores, in one process."""

    def __init__(self, services: Services, server: LanguageModelServer) -> None:
        self._stalled = services
        self._off = replace(services, language_model=None, answers=None, skill_pairs=None)
        self._server = server

    def ask(self, task: str, *, stalled: bool) -> Timed:
        """Answer a task with a bundle."""
        request = QueryAsked(task=task, budget=_BUDGET)
        calls = self._server.requests
        started = time.perf_counter()
        services = self._stalled if stalled else self._off
        bundle, _ = answer_query(services, Deadline(QUERY.time_limit), "bench", request)
        spent = (time.perf_counter() - started) * 1000
        self._server.settle()
        return Timed(spent, bundle.timings_ms.get("select", 0.0), self._server.requests > calls)

    def compare(self, tasks: Sequence[str], state: EndpointState | None) -> dict[str, Any]:
        """The times of these tasks with the stage and without, in turns.

        state: of the endpoint, whose circuit is closed before each query; None leaves it.
        """
        found: dict[bool, list[Timed]] = {False: [], True: []}
        for number, task in enumerate(tasks):
            for stalled in (False, True) if number % 2 else (True, False):
                if state is not None:
                    state.succeed()
                found[stalled].append(self.ask(task, stalled=stalled))
        return describe(found[False], found[True])


def describe(off: Sequence[Timed], stalled: Sequence[Timed]) -> dict[str, Any]:
    """The percentiles of queries without the stage and with it."""
    without = percentiles([one.milliseconds for one in off])
    beyond = percentiles([one.beyond for one in stalled])
    return {
        "queries": len(stalled),
        "waited": sum(one.waited for one in stalled),
        "off": without,
        "stalled": percentiles([one.milliseconds for one in stalled]),
        "beyond": beyond,
        "own": percentiles([one.own for one in stalled]),
        "p50 more": round(beyond["p50"] - without["p50"], 2),
        "p95 more": round(beyond["p95"] - without["p95"], 2),
    }


def run(home: Path, tasks: Sequence[Mapping[str, Any]], queries: int) -> dict[str, Any]:
    """Both phases over the tasks, repeated until there are enough queries."""
    texts = [task["instruction"] for task in tasks]
    rounds = -(-queries // len(texts))
    with LanguageModelServer(lambda _: stalling()) as server:
        settings: LanguageModelSettings = server.settings(
            stages=("select",), query_milliseconds=_QUERY_MILLISECONDS, daily_tokens=0
        )
        with open_services(home, settings) as services:
            bench = Bench(services, server)
            for text in texts:  # fills what a process keeps in memory
                bench.ask(text, stalled=False)
            first = bench.ask(texts[0], stalled=True)
            state = state_of(settings.base_url, settings.model)
            report = {
                "query_milliseconds": _QUERY_MILLISECONDS,
                "first query": round(first.milliseconds, 2),
                "first calls": bench.compare(texts * rounds, state),
            }
            state.succeed()
            for text in texts[:_FAILURES]:
                bench.ask(text, stalled=True)
            return report | {"open circuit": bench.compare(texts * rounds, None)}


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=50, help="of each phase, at least")
    given = parser.parse_args()
    configure_logging("error")
    tasks = read_jsonl(given.tasks, ("task_id", "instruction"))
    print(json.dumps(run(given.home, tasks, given.queries), indent=2))


if __name__ == "__main__":
    main()
