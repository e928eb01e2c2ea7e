"""A distributed deployment at a glance: its servers, workers, queues and library, asked at once.

What a server that is away would have told is None; nothing waits for it longer than was said.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from config.errors import SkillbusError
from config.secrets import without_password
from config.settings import Settings
from graph.neo4j.store import Neo4jSkillGraph
from search.elastic.health import Pulse
from tasks.app import queue_depth
from tasks.coordination.redis import SharedActivity, worker_of
from tasks.services import Lazy
from workers.backend.stores import open_activity, open_journal
from workers.monitoring.parallel_probes import Questions
from workers.monitoring.status import told_of_catalog, told_of_journal, told_of_sources
from workers.processes.process_name import process_name
from workers.processes.workloads import ALL_QUEUES

SERVERS = ("broker", "redis", "elasticsearch", "neo4j")

_CATALOG = ("skills", "paged", "paging_done", "unlinked", "links", "sources", "oldest_waiting")
_JOURNAL = (
    "open_events",
    "open_queries",
    "oldest_event_seconds",
    "oldest_query_seconds",
    "dead_letters",
    "trouble",
    "workers",
    "submissions",
)

Answer = dict[str, Any]


class Overview:
    """Asks the servers, over connections of its own that are opened on first use.

    app: a Celery application whose broker is asked for its queues.
    """

    def __init__(self, settings: Settings, app: Any) -> None:
        self._settings = settings
        self._app = app
        self._stack = ExitStack()
        self._pulse = Lazy(self._open_pulse)
        self._graph = Lazy(self._open_graph)
        self._journal = Lazy(lambda: open_journal(settings, self._stack, writable=True))
        self._activity: Lazy[SharedActivity] = Lazy(
            lambda: open_activity(settings, self._stack, lambda _: 0, process_name())
        )
        asked: dict[str, Callable[[], Answer]] = {
            "broker": self._ask_broker,
            "redis": self._ask_redis,
            "elasticsearch": self._ask_elasticsearch,
            "neo4j": self._ask_neo4j,
        }
        self._questions = Questions({name: _timed(ask) for name, ask in asked.items()})
        self._oldest = 0
        self._memory = Questions({"requests": self._ask_requests})

    def prepare(self) -> None:
        """Load the clients' libraries here and now, before this process forks others; raises
        UsageError for settings that cannot be used."""
        self._pulse.get().prepare()
        self._graph.get()
        self._activity.get()
        self._journal.get()

    def report(self, seconds: float) -> dict[str, Any]:
        """How the deployment stands; of a server without an answer in `seconds`, why not."""
        answers = self._questions.ask(seconds)
        told: Answer = dict.fromkeys((*_CATALOG, *_JOURNAL, "queues"))
        for found in answers.values():
            if not isinstance(found, SkillbusError):
                told |= found
        oldest = told.pop("oldest_waiting")
        told.pop("seconds", None)
        return {
            "encoder": self._settings.encoder.model,
            "servers": [self._told_of(name, answers[name]) for name in SERVERS],
            **told,
            "trouble": told["trouble"] or "",
            "oldest_waiting_seconds": self._waiting_since(oldest, told["workers"], seconds),
        }

    def close(self) -> None:
        """Release the connections."""
        self._stack.close()

    def _told_of(self, name: str, found: Answer | SkillbusError) -> dict[str, Any]:
        away = isinstance(found, SkillbusError)
        addresses = getattr(self._settings.servers, name).split(",")
        return {
            "server": name,
            "address": ", ".join(without_password(one.strip()) for one in addresses),
            "up": not away,
            "seconds": None if isinstance(found, SkillbusError) else found["seconds"],
            "problem": " ".join(str(found).split()) if away else "",
        }

    def _waiting_since(self, seq: int | None, workers: Any, seconds: float) -> float | None:
        """Seconds since the request of a number, 0 where none waits; None: nobody can tell."""
        if seq is None or workers is None:
            return None
        if not seq:
            return 0.0
        self._oldest = seq
        found = self._memory.ask(seconds)["requests"]
        return None if isinstance(found, SkillbusError) else found

    # -- the questions
    def _open_pulse(self) -> Pulse:
        pulse = Pulse(self._settings.servers)
        self._stack.callback(pulse.close)
        return pulse

    def _open_graph(self) -> Neo4jSkillGraph:
        graph = Neo4jSkillGraph(self._settings.servers, writable=False)
        self._stack.callback(graph.close)
        return graph

    def _ask_broker(self) -> Answer:
        waiting = {queue: queue_depth(self._app, queue) for queue in ALL_QUEUES}
        return {"queues": [{"queue": name, "waiting": count} for name, count in waiting.items()]}

    def _ask_redis(self) -> Answer:
        activity = self._activity.get()
        running = activity.running()
        now = time.time()
        workers = [
            {
                "worker": worker,
                "queues": queues,
                "running": [
                    {
                        "task": note["task"],
                        "ids": note["ids"],
                        "seconds": round(max(0.0, now - note["since"]), 1),
                        "trace_id": note["trace_id"],
                    }
                    for note in running.values()
                    if worker_of(note["worker"]) == worker
                ],
            }
            for worker, queues in activity.queues_of_workers().items()
        ]
        told = told_of_journal(self._journal.get())
        consumers = activity.consumers()
        return {
            **told,
            "trouble": activity.trouble,
            "workers": workers,
            "submissions": consumers,
        }

    def _ask_requests(self) -> float | None:
        request = self._activity.get().requests([self._oldest]).get(self._oldest)
        return None if request is None else round(max(0.0, time.time() - request.since), 1)

    def _ask_elasticsearch(self) -> Answer:
        self._pulse.get().version()
        return {}

    def _ask_neo4j(self) -> Answer:
        graph = self._graph.get()
        counts = graph.counts()
        oldest = graph.waiting(1) if counts["waiting"] else []
        return {
            **told_of_catalog(counts),
            "sources": told_of_sources(graph.sources()),
            "oldest_waiting": oldest[0].wanted_seq if oldest else 0,
        }


def _timed(ask: Callable[[], Answer]) -> Callable[[], Answer]:
    def timed() -> Answer:
        started = time.perf_counter()
        told = ask()
        return {**told, "seconds": round(time.perf_counter() - started, 4)}

    return timed
