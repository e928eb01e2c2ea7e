"""How much accepted work is not done, and waiting until all of it is."""

from __future__ import annotations

import time
from collections.abc import Callable

from config.errors import SkillbusError
from tasks.send import queue_depth
from tests.bench.soak.deployment import Deployment
from workers.backend.distributed import DistributedBackend
from workers.processes.workloads import ALL_QUEUES

_POLL_SECONDS = 1.0


def get_unfinished(backend: DistributedBackend, *, sections: bool) -> dict[str, int]:
    """What is not done yet, by name; empty when all is. sections: whether they get vectors."""
    counts = backend.graph.get_counts()
    left = {
        "events": backend.journal.count_open_jobs("event"),
        "queries": backend.journal.count_open_jobs("query"),
        "waiting": counts["waiting"],
        "unlinked": counts["unlinked"],
        "without_vectors": counts["published"] - counts["with_vectors"],
        "without_section_vectors": counts["published"] - counts["embedded"] if sections else 0,
        "running": len(backend.coordinator.get_running_tasks()),
        # Sections that get no vectors have no worker either: their messages stay.
        **{
            one: queue_depth(backend.app, one)
            for one in ALL_QUEUES
            if sections or "sect" not in one
        },
    }
    return {name: count for name, count in left.items() if count}


def wait_done(
    deployment: Deployment, seconds: float, report: Callable[[str], None]
) -> tuple[float, dict[str, int]]:
    """Wait until all accepted work is done; seconds that took, and what is left in the end."""
    started = time.monotonic()
    left: dict[str, int] = {"not looked at": 1}
    noted = started
    with DistributedBackend(deployment.settings) as backend:
        while time.monotonic() < started + seconds:
            deployment.restart_ended()
            try:
                left = get_unfinished(backend, sections=deployment.sections)
            except SkillbusError as error:
                report(f"while work is finished: {error}")
            if not left:
                break
            if time.monotonic() - noted > 30:
                noted = time.monotonic()
                report(f"left after {noted - started:.0f} s: {left}")
            time.sleep(_POLL_SECONDS)
    return round(time.monotonic() - started, 1), left


def count_dead_letters(deployment: Deployment) -> list[str]:
    """The dead letters, a line each."""
    with DistributedBackend(deployment.settings) as backend:
        return [
            f"{letter.task} {','.join(letter.ids[:3])}: {letter.reason[:200]}"
            for letter in backend.journal.list_dead_letters()
        ]
