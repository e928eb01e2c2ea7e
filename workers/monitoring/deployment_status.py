"""Status of a distributed deployment: servers, workers, queues and library, read in parallel.

Values of a server that does not answer in time are None.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

from config.errors import SkillbusError
from config.secrets import strip_passwords
from config.settings import Settings
from graph.neo4j.store import Neo4jSkillGraph
from search.elastic.health import LivenessProbe
from skills.parsing.parse_skill import PARSER_VERSION
from tasks.coordination.redis import RedisCoordinator
from tasks.coordination.redis_workers import get_worker_id
from tasks.policies import REFINE
from tasks.refine.pauses import get_refine_pause
from tasks.refine.refined_subjects import RefinedSubjects
from tasks.send import queue_depth
from tasks.services import Lazy
from workers.backend.model_stores import open_answers
from workers.backend.stores import (
    open_coordinator,
    open_index,
    open_journal,
    open_outcomes,
    open_review_store,
)
from workers.library.review.review_list import ReviewLister
from workers.monitoring.parallel_probes import ParallelProbes
from workers.monitoring.status import (
    catalog_status,
    journal_status,
    language_model_status,
    oldest_change_age_seconds,
    source_status,
    usage_status,
)
from workers.processes.current_process import unique_process_name
from workers.processes.workloads import ALL_QUEUES

SERVERS = ("broker", "redis", "elasticsearch", "neo4j")

_CATALOG = (*catalog_status({}, 0), "sources")
_JOURNAL = (
    "open_events",
    "open_queries",
    "oldest_event_seconds",
    "oldest_query_seconds",
    "dead_letters",
    "problem",
    "workers",
    "submissions",
    "usage_days_behind",
)

T = TypeVar("T")

StatusPart = dict[str, Any]


class DeploymentStatus:
    """Reads the status from the servers, over connections that are opened on first use.

    app: a Celery application, for the status of its broker's queues.
    """

    def __init__(self, settings: Settings, app: Any) -> None:
        self._settings = settings
        self._app = app
        self._stack = ExitStack()
        self._liveness = Lazy(self._open_liveness)
        self._graph = Lazy(self._open_graph)
        self._journal = Lazy(lambda: open_journal(settings, self._stack, writable=True))
        self._answers = Lazy(lambda: open_answers(settings, self._stack))
        self._outcomes = Lazy(lambda: open_outcomes(settings, self._stack))
        self._coordinator: Lazy[RedisCoordinator] = Lazy(
            lambda: open_coordinator(settings, self._stack, lambda _: 0, unique_process_name())
        )
        probes: dict[str, Callable[[], StatusPart]] = {
            "broker": self._read_broker,
            "redis": self._read_redis,
            "elasticsearch": self._probe_elasticsearch,
            "neo4j": self._read_neo4j,
        }
        self._probes = ParallelProbes({name: _timed(probe) for name, probe in probes.items()})
        self._refined = RefinedSubjects()
        self._refine_probe = ParallelProbes({"refinement": self._read_refinement})
        self._review_lister = Lazy(self._open_review_lister)
        self._review_probe = ParallelProbes({"reviews": lambda: self._review_lister.get().count()})
        self._age_probe = ParallelProbes(
            {"age": lambda: oldest_change_age_seconds(self._graph.get(), self._coordinator.get())}
        )

    def prepare(self) -> None:
        """Load the client libraries before this process forks; raises UsageError for invalid
        settings."""
        self._liveness.get().prepare()
        self._graph.get()
        self._coordinator.get()
        self._journal.get()

    def get_status(self, seconds: float) -> dict[str, Any]:
        """Return the status; servers that do not answer within `seconds` are
        listed with the error."""
        answers = self._probes.run(seconds)
        model = ("language_model",) if self._settings.language_model.in_use else ()
        status: StatusPart = dict.fromkeys((*_CATALOG, *_JOURNAL, *model, "queues"))
        for answer in answers.values():
            if not isinstance(answer, SkillbusError):
                status |= answer
        if status.get("language_model") and self._settings.language_model.offline_stages:
            status["language_model"]["refinement"] |= self._refinement_progress(status, seconds)
        status.pop("seconds", None)
        return {
            "encoder": self._settings.encoder.model,
            "servers": [self._server_status(name, answers[name]) for name in SERVERS],
            **status,
            "reviews": self._review_counts(answers, seconds),
            "problem": status["problem"] or "",
            "trouble": status["problem"] or "",  # the name before 0.2; remove it after that
            "oldest_waiting_seconds": self._oldest_waiting_seconds(status, seconds),
        }

    def close(self) -> None:
        """Release the connections."""
        self._stack.close()

    def _server_status(self, name: str, answer: StatusPart | SkillbusError) -> dict[str, Any]:
        failed = isinstance(answer, SkillbusError)
        return {
            "server": name,
            "address": ", ".join(strip_passwords(getattr(self._settings.servers, name))),
            "up": not failed,
            "seconds": None if isinstance(answer, SkillbusError) else answer["seconds"],
            "problem": " ".join(str(answer).split()) if failed else "",
        }

    def _oldest_waiting_seconds(self, status: StatusPart, seconds: float) -> float | None:
        """Return the age of the oldest open ingest request; 0 without one, None if unknown."""
        if status["skills"] is None or status["workers"] is None:
            return None  # it would be waited for a second time
        return _run_one(self._age_probe, seconds) if status["skills"]["waiting"] else 0.0

    def _review_counts(
        self, answers: Mapping[str, StatusPart | SkillbusError], seconds: float
    ) -> dict[str, int] | None:
        """Return the counts of reviews; None if the servers do not answer in time."""
        if any(isinstance(answers[name], SkillbusError) for name in ("elasticsearch", "neo4j")):
            return None  # it would be waited for a second time
        return _run_one(self._review_probe, seconds)

    # -- probes
    def _open_review_lister(self) -> ReviewLister:
        settings, stack = self._settings, self._stack
        index = Lazy(lambda: open_index(settings, stack, writable=False))
        store = open_review_store(settings, stack)
        return ReviewLister(
            settings, self._graph.get(), lambda keys: index.get().get_revisions(keys), store
        )

    def _open_liveness(self) -> LivenessProbe:
        liveness = LivenessProbe(self._settings.servers)
        self._stack.callback(liveness.close)
        return liveness

    def _open_graph(self) -> Neo4jSkillGraph:
        graph = Neo4jSkillGraph(self._settings.servers, writable=False)
        self._stack.callback(graph.close)
        return graph

    def _read_broker(self) -> StatusPart:
        waiting = {queue: queue_depth(self._app, queue) for queue in ALL_QUEUES}
        return {"queues": [{"queue": name, "waiting": count} for name, count in waiting.items()]}

    def _read_redis(self) -> StatusPart:
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
        status = journal_status(self._journal.get()) | usage_status(self._outcomes.get())
        if (answers := self._answers.get()) is not None:
            status |= language_model_status(self._settings.language_model, answers)
            status["language_model"]["refinement"] = {"paused": self._read_pause(coordinator)}
        return {
            **status,
            "problem": coordinator.task_error,
            "workers": workers,
            "submissions": coordinator.list_consumers(),
        }

    def _refinement_progress(self, status: StatusPart, seconds: float) -> StatusPart:
        """Return the progress of refinement; its counts are None if the servers are too slow."""
        counts = None
        if status["skills"] is not None:  # else the catalog would be waited for a second time
            counts = _run_one(self._refine_probe, seconds)
        waiting = [one["waiting"] for one in status["queues"] or () if one["queue"] == REFINE.queue]
        running = [task["task"] for one in status["workers"] or () for task in one["running"]]
        return {"stages": counts, "running": any(waiting) or REFINE.name in running}

    def _read_refinement(self) -> dict[str, dict[str, int]]:
        from workers.library.refinement import RefinementProgress  # only with a model

        answers = self._answers.get()
        if answers is None:
            return {}
        settings = self._settings.language_model
        progress = RefinementProgress(settings, self._graph.get(), answers, refined=self._refined)
        progress.find_missing()
        return progress.count_by_stage()

    def _read_pause(self, coordinator: RedisCoordinator) -> dict[str, Any] | None:
        pause = get_refine_pause(coordinator, self._settings.language_model)
        return None if pause is None else pause._asdict()

    def _probe_elasticsearch(self) -> StatusPart:
        self._liveness.get().version()
        return {}

    def _read_neo4j(self) -> StatusPart:
        graph = self._graph.get()
        return {
            **catalog_status(graph.get_counts(), graph.count_parsed_before(PARSER_VERSION)),
            "sources": [source_status(source) for source in graph.list_sources()],
        }


def _run_one(probe: ParallelProbes[T], seconds: float) -> T | None:
    """Return the result of a single probe, None if it fails or takes longer than `seconds`."""
    (found,) = probe.run(seconds).values()
    return None if isinstance(found, SkillbusError) else found


def _timed(probe: Callable[[], StatusPart]) -> Callable[[], StatusPart]:
    """Return the probe, extended to add its duration to the result as `seconds`."""

    def timed() -> StatusPart:
        started = time.perf_counter()
        status = probe()
        return {**status, "seconds": round(time.perf_counter() - started, 4)}

    return timed
