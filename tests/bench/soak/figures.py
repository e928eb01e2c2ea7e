"""What was measured, by process and fifth of the run, and whether it stayed flat.

**Memory and handles.** Of each process the longest life counts, from its start or restart to its
end or kill, without the warm-up: a share of the run in which caches fill. The median of the second
quarter of that time is compared with the median of the last quarter. A process of less than
`LEAST_SECONDS` without its warm-up is not judged.

**Latency.** p95 of the second quarter of the run is compared with that of the last quarter, of
queries that no outage overlaps, nor the seconds after it in which its queue is worked off.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from tests.bench.soak.deployment import GATEWAY, SERVERS
from tests.bench.soak.faults import Outage
from tests.bench.soak.traffic import Answer
from tests.bench.soak.watch import Sample
from workers.evaluation.predictions import percentile

WARM_UP_SHARE, WARM_UP_SECONDS = 1 / 8, 300.0
"""Warm-up of a process: this share of the run, these seconds at most."""

LEAST_SECONDS = 300.0
"""Below that the quarters are a minute or less, in which the work of the moment decides: an encoder
keeps the memory of its largest batch so far."""

MEMORY_SHARE, MEMORY_MB = 0.1, 32.0
"""Allowed growth of PSS, the greater of both. An allocator keeps free pages of the largest task so
far, and larger ones come with time. 32 MB in a quarter of an hour are 2 kB for each update: a leak
of anything that belongs to an update, such as a text or its vectors, is more."""

HANDLES = 8
"""Allowed growth of open files: a worker opens connections when it first needs a server."""

CONNECTIONS = 120
"""The same of the gateway and the servers. The gateway has 40 threads, which all wait for a server
that is down; each may then have a connection for the journal, the outcomes and the broker. A leak
of one connection for each update or query is thousands."""

JAVA_MB = 512.0
"""Private memory that a Java server may have beyond its heap: classes, compiled code, threads,
buffers of the network. Its heap grows up to its limit by design, since memory is collected only
when it is needed, so that flatness would say nothing."""

LATENCY_SHARE, LATENCY_SECONDS = 0.5, 0.25
"""Allowed growth of p95, both together. Two quarters of a run with a constant load differ by a
third or so on a machine whose cores are all busy."""

LEAST_ANSWERS = 30
_FIFTHS = 5

Judged = dict[str, Any]


def by_process(samples: Sequence[Sample], seconds: float) -> dict[str, dict[str, list[Any]]]:
    """By process, medians of PSS and handles in each fifth; None where it did not run."""
    roles = sorted({sample.role for sample in samples})
    report: dict[str, dict[str, list[Any]]] = {}
    for role in roles:
        own = [sample for sample in samples if sample.role == role]
        report[role] = {
            "pss_mb": _by_fifth(own, seconds, lambda one: one.pss),
            "handles": _by_fifth(own, seconds, lambda one: one.handles),
        }
    return report


def _by_fifth(
    samples: Sequence[Sample], seconds: float, value: Callable[[Sample], float]
) -> list[float | None]:
    return [
        round(statistics.median(found), 1) if found else None
        for fifth in range(_FIFTHS)
        if (found := [value(one) for one in samples if _place(one.at, seconds) == fifth])
        is not None
    ]


def _place(at: float, seconds: float) -> int:
    return min(_FIFTHS - 1, int(at / seconds * _FIFTHS))


def judge_processes(samples: Sequence[Sample], seconds: float, heap_mb: float) -> Judged:
    """Memory and handles of every process: growth over its longest life, and whether it is allowed.

    heap_mb: limit of the heap of a Java server, with its page cache.
    """
    lives: defaultdict[str, defaultdict[int, list[Sample]]]
    lives = defaultdict(lambda: defaultdict(list))
    warm_up = min(WARM_UP_SECONDS, WARM_UP_SHARE * seconds)
    for sample in samples:
        if sample.age >= warm_up and sample.at <= seconds:
            lives[sample.role][sample.pid].append(sample)
    growth: dict[str, Any] = {}
    not_judged = sorted({sample.role for sample in samples} - lives.keys())
    for role, found in sorted(lives.items()):
        life = max(found.values(), key=lambda one: one[-1].at - one[0].at)
        if life[-1].at - life[0].at < LEAST_SECONDS:
            not_judged.append(role)
        else:
            growth[role] = _judge_life(role, life, heap_mb)
    return {
        "passed": all(one["passed"] for one in growth.values()),
        "grown": sorted(role for role, one in growth.items() if not one["passed"]),
        "not_judged": not_judged,
        "by_process": growth,
    }


def _judge_life(role: str, life: Sequence[Sample], heap_mb: float) -> Judged:
    begin, span = life[0].at, life[-1].at - life[0].at
    second = [one for one in life if 0.25 <= (one.at - begin) / span < 0.5]
    last = [one for one in life if (one.at - begin) / span >= 0.75]
    handles = [statistics.median(one.handles for one in part) for part in (second, last)]
    judged: Judged = {"seconds": round(span), "handles": handles}
    if role in SERVERS and role != "redis":
        private = max(one.anonymous for one in life)
        judged |= {"private_mb": round(private), "limit_mb": round(heap_mb + JAVA_MB)}
        steady = private <= heap_mb + JAVA_MB
    else:
        memory = [round(statistics.median(one.pss for one in part), 1) for part in (second, last)]
        judged["pss_mb"] = memory
        steady = memory[1] - memory[0] <= max(MEMORY_MB, MEMORY_SHARE * memory[0])
    allowed = CONNECTIONS if role in (GATEWAY, *SERVERS) else HANDLES
    return {"passed": steady and handles[1] - handles[0] <= allowed, **judged}


def judge_latency(answers: Sequence[Answer], outages: Sequence[Outage], seconds: float) -> Judged:
    """p50 and p95 in seconds by fifth, outside and during outages, and whether p95 is flat."""
    done = [one for one in answers if one.state == "done"]
    calm = [one for one in done if not any(out.covers(one.begin, one.end) for out in outages)]
    second = [one for one in calm if 0.25 <= one.begin / seconds < 0.5]
    last = [one for one in calm if one.begin / seconds >= 0.75]
    judged: Judged = {
        "by_fifth": [
            _quantiles([one for one in calm if _place(one.begin, seconds) == fifth])
            for fifth in range(_FIFTHS)
        ],
        "during_outages": _quantiles([one for one in done if one not in calm]),
        "second_quarter": _quantiles(second),
        "last_quarter": _quantiles(last),
    }
    if min(len(second), len(last)) < LEAST_ANSWERS:
        return {"passed": True, "not_judged": f"fewer than {LEAST_ANSWERS} answers", **judged}
    before, after = judged["second_quarter"]["p95"], judged["last_quarter"]["p95"]
    allowed = round(before * (1 + LATENCY_SHARE) + LATENCY_SECONDS, 3)
    return {"passed": after <= allowed, "allowed_p95": allowed, **judged}


def _quantiles(answers: Sequence[Answer]) -> dict[str, float]:
    values = [one.end - one.begin for one in answers]
    if not values:
        return {"answers": 0}
    return {
        "answers": len(values),
        "p50": round(statistics.median(values), 3),
        "p95": round(percentile(values, 0.95), 3),
        "max": round(max(values), 3),
    }


def greatest(backlog: Sequence[tuple[float, dict[str, int]]]) -> dict[str, int]:
    """The greatest count of each kind of work that waited."""
    found: dict[str, int] = {}
    for _, counts in backlog:
        for name, count in counts.items():
            found[name] = max(found.get(name, 0), count)
    return found


def backlog_by_fifth(
    backlog: Sequence[tuple[float, dict[str, int]]], seconds: float
) -> list[dict[str, int]]:
    """The greatest counts in each fifth of the run."""
    return [
        greatest([one for one in backlog if _place(one[0], seconds) == fifth])
        for fifth in range(_FIFTHS)
    ]
