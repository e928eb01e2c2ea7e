"""A distributed deployment at a glance: its servers, workers, queues and library, asked at once.

What a server that is away would have told is None; nothing waits for it longer than was said.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from config.errors import SkillbusError
from config.secrets import strip_password
from config.settings import Settings
from graph.neo4j.store import Neo4jSkillGraph
from search.elastic.health import LivenessProbe
from tasks.coordination.redis import RedisCoordinator
from tasks.coordination.redis_workers import get_worker_id
from tasks.send import queue_depth
from tasks.services import Lazy
from workers.backend.stores import open_coordinator, open_journal
from workers.monitoring.parallel_probes import ParallelProbes
from workers.monitoring.status import catalog_status, journal_status, source_statuses
from workers.processes.process_name import unique_process_name
from workers.processes.workloads import ALL_QUEUES

SERVERS = ("broker", "redis", "elasticsearch", "neo4j")

_CATALOG = (
    "skills",
    "embedded",
    "embedded_share",
    "paged",
    "paging_done",
    "unlinked",
    "links",
    "sources",
    "oldest_waiting",
)
_JOURNAL = (
    "open_events",
    "open_queries",
    "oldest_event_seconds",
    "oldest_query_seconds",
    "dead_letters",
    "problem",
    "workers",
    "submissions",
)

StatusPart = dict[str, Any]


class DeploymentStatus:
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
        self._coordinator: Lazy[RedisCoordinator] = Lazy(
            lambda: open_coordinator(settings, self._stack, lambda _: 0, unique_process_name())
        )
        probes: dict[str, Callable[[], StatusPart]] = {
            "broker": self._ask_broker,
            "redis": self._ask_redis,
            "elasticsearch": self._ask_elasticsearch,
            "neo4j": self._ask_neo4j,
        }
        self._probes = ParallelProbes({name: _timed(ask) for name, ask in probes.items()})
        self._oldest_seq = 0
        self._request_probe = ParallelProbes({"requests": self._ask_requests})

    def prepare(self) -> None:
        """Load the clients' libraries here and now, before this process forks others; raises
        UsageError for settings that cannot be used."""
        self._pulse.get().prepare()
        self._graph.get()
        self._coordinator.get()
        self._journal.get()

    def get_status(self, seconds: float) -> dict[str, Any]:
        """How the deployment stands; of a server without an answer in `seconds`, why not."""
        answers = self._probes.run(seconds)
        status: StatusPart = dict.fromkeys((*_CATALOG, *_JOURNAL, "queues"))
        for found in answers.values():
            if not isinstance(found, SkillbusError):
                status |= found
        oldest = status.pop("oldest_waiting")
        status.pop("seconds", None)
        return {
            "encoder": self._settings.encoder.model,
            "servers": [self._server_status(name, answers[name]) for name in SERVERS],
            **status,
            "problem": status["problem"] or "",
            "trouble": status["problem"] or "",  # the name before 0.2; remove it after that
            "oldest_waiting_seconds": self._waiting_since(oldest, status["workers"], seconds),
        }

    def close(self) -> None:
        """Release the connections."""
        self._stack.close()

    def _server_status(self, name: str, found: StatusPart | SkillbusError) -> dict[str, Any]:
        away = isinstance(found, SkillbusError)
        addresses = getattr(self._settings.servers, name).split(",")
        return {
            "server": name,
            "address": ", ".join(strip_password(one.strip()) for one in addresses),
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
        self._oldest_seq = seq
        found = self._request_probe.run(seconds)["requests"]
        return None if isinstance(found, SkillbusError) else found

    # -- the questions
    def _open_pulse(self) -> LivenessProbe:
        pulse = LivenessProbe(self._settings.servers)
        self._stack.callback(pulse.close)
        return pulse

    def _open_graph(self) -> Neo4jSkillGraph:
        graph = Neo4jSkillGraph(self._settings.servers, writable=False)
        self._stack.callback(graph.close)
        return graph

    def _ask_broker(self) -> StatusPart:
        waiting = {queue: queue_depth(self._app, queue) for queue in ALL_QUEUES}
        return {"queues": [{"queue": name, "waiting": count} for name, count in waiting.items()]}

    def _ask_redis(self) -> StatusPart:
        coordinator = self._coordinator.get()
        running = coordinator.get_running_tasks()
        now = time.time()
        workers = [
            {
                "worker": worker,
                "queues": queues,
                "running": [
                    {
                        "task": task["task"],
                        "ids": task["ids"],
                        "seconds": round(max(0.0, now - task["since"]), 1),
                        "trace_id": task["trace_id"],
                    }
                    for task in running.values()
                    if get_worker_id(task["worker"]) == worker
                ],
            }
            for worker, queues in coordinator.get_worker_queues().items()
        ]
        status = journal_status(self._journal.get())
        consumers = coordinator.list_consumers()
        return {
            **status,
            "problem": coordinator.task_error,
            "workers": workers,
            "submissions": consumers,
        }

    def _ask_requests(self) -> float | None:
        request = (
            self._coordinator.get().get_ingest_requests([self._oldest_seq]).get(self._oldest_seq)
        )
        return None if request is None else round(max(0.0, time.time() - request.since), 1)

    def _ask_elasticsearch(self) -> StatusPart:
        self._pulse.get().version()
        return {}

    def _ask_neo4j(self) -> StatusPart:
        graph = self._graph.get()
        counts = graph.get_counts()
        oldest = graph.list_awaiting_ingest(1) if counts["waiting"] else []
        return {
            **catalog_status(counts),
            "sources": source_statuses(graph.list_sources()),
            "oldest_waiting": oldest[0].requested_seq if oldest else 0,
        }


def _timed(ask: Callable[[], StatusPart]) -> Callable[[], StatusPart]:
    def timed() -> StatusPart:
        started = time.perf_counter()
        status = ask()
        return {**status, "seconds": round(time.perf_counter() - started, 4)}

    return timed
