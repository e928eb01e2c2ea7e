"""Workloads: groups of queues that share a worker.

Queries never wait behind bulk work, links have one writer, and slow git hosts delay only fetches,
a slow language model only refinement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from config.errors import UsageError
from tasks.policies import (
    EMBED_SECTIONS_QUEUE,
    EMBED_SKILLS_QUEUE,
    FETCH_QUEUE,
    FORMER_NAMES,
    INGEST_QUEUE,
    LINK_QUEUE,
    MAINTAIN_QUEUE,
    OUTCOMES_QUEUE,
    PLAN_QUEUE,
    QUERY_QUEUE,
    REFINE_QUEUE,
)

ALL_QUEUES = (
    PLAN_QUEUE,
    FETCH_QUEUE,
    INGEST_QUEUE,
    EMBED_SKILLS_QUEUE,
    EMBED_SECTIONS_QUEUE,
    REFINE_QUEUE,
    LINK_QUEUE,
    MAINTAIN_QUEUE,
    OUTCOMES_QUEUE,
    QUERY_QUEUE,
)
_PREFIX = "skillbus."


@dataclass(frozen=True, slots=True)
class Workload:
    """Queues that share a worker; a `bulk` worker runs at lower priority (`workers.niceness`)."""

    name: str
    queues: tuple[str, ...]
    bulk: bool = False

    @property
    def short_names(self) -> tuple[str, ...]:
        """Names of the queues without their common prefix."""
        return tuple(queue.removeprefix(_PREFIX) for queue in self.queues)


WORKLOADS = (
    Workload("query", (QUERY_QUEUE,)),
    Workload("ingest", (PLAN_QUEUE, INGEST_QUEUE), bulk=True),
    Workload("fetch", (FETCH_QUEUE,)),
    Workload("link", (LINK_QUEUE, MAINTAIN_QUEUE)),
    Workload("outcomes", (OUTCOMES_QUEUE,)),
    Workload("embed_skills", (EMBED_SKILLS_QUEUE,), bulk=True),
    Workload("embed_sections", (EMBED_SECTIONS_QUEUE,), bulk=True),
    Workload("refine", (REFINE_QUEUE,), bulk=True),
)


def describe_workloads() -> str:
    """Return the short names of the queues, those of one worker joined by `and`."""
    return "; ".join(" and ".join(one.short_names) for one in WORKLOADS)


def resolve_queue_name(name: str) -> str:
    """Return the present short name of a queue, given its present or a former short name."""
    return FORMER_NAMES.get(_PREFIX + name, _PREFIX + name).removeprefix(_PREFIX)


def add_former_queues(queues: Sequence[str]) -> tuple[str, ...]:
    """Return these queues, and those under their former names, which may still hold messages."""
    return (*queues, *(former for former, now in FORMER_NAMES.items() if now in queues))


def parse_workload(names: Sequence[str]) -> Workload:
    """Return the workload of the queues with these short names; raises
    UsageError for unknown names."""
    names = [resolve_queue_name(name) for name in names]
    known = [queue.removeprefix(_PREFIX) for queue in ALL_QUEUES]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        problem = f"unknown queue {', '.join(unknown)}" if unknown else "no queue given"
        raise UsageError(f"{problem}; queues: {', '.join(known)}")
    queues = tuple(_PREFIX + name for name in dict.fromkeys(names))
    bulk = any(workload.bulk and set(queues) & set(workload.queues) for workload in WORKLOADS)
    return Workload("-".join(dict.fromkeys(names)), queues, bulk and QUERY_QUEUE not in queues)
