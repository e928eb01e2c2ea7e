"""Time of queries with traces and without.

    python -m tests.bench.tracing HOME [--tasks FILE] [--rounds N]

HOME  a searchable library; it is only read

Each task is asked with spans and without, in turns and in changing order, in one process, as the
gateway would: below the span of a request. The spans are exported to a collector in a process of
its own, which counts and drops them. Prints JSON: milliseconds from a query to its bundle; the
median over the tasks of the ratio of their fastest times; spans of one query; and what one span of
a stage costs, in microseconds, without a tracer and with one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from config import tracing
from config.load_settings import load_settings
from config.logging import configure_logging
from config.settings import Settings
from config.tracing_settings import TracingSettings
from skills.events import QueryAsked
from tasks.metrics_recorder import NullMetrics, SpanOutcome
from tests.bench.run import percentiles, read_tasks
from workers.backend.embedded import EmbeddedBackend
from workers.tracing.start import tracing as started

_CALLS = 20_000
_COLLECTOR = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


class _Counted(NullMetrics):
    """Counts spans."""

    def __init__(self) -> None:
        self.counts = {"exported": 0, "dropped": 0}

    def record_spans(self, outcome: SpanOutcome, count: int) -> None:
        self.counts[outcome] += count


@contextmanager
def _collector() -> Iterator[str]:
    """The address of a collector that drops what it gets."""
    process = subprocess.Popen([sys.executable, "-c", _COLLECTOR], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def measure(settings: Settings, tasks: Sequence[str], rounds: int) -> dict[str, Any]:
    """Times of all tasks with spans and without."""
    times: dict[bool, list[list[float]]] = {way: [[] for _ in tasks] for way in (False, True)}
    counted = _Counted()
    off = _span_microseconds()
    with (
        _collector() as address,
        EmbeddedBackend(settings, writable=False) as backend,
        started(TracingSettings(endpoint=address, queue_spans=100_000), counted),
    ):
        tracer = tracing._tracer
        backend.warm_up()
        for number, text in enumerate([*tasks, *[text for _ in range(rounds) for text in tasks]]):
            for is_traced in ((True, False), (False, True))[number % 2]:
                tracing.set_tracer(tracer if is_traced else None)
                began = time.perf_counter()
                with tracing.trace("POST /v1/answers", "server"):
                    backend.answer_query(QueryAsked(task=text), "skillbus/bench")
                if number >= len(tasks):  # the first round fills the caches
                    spent = (time.perf_counter() - began) * 1000
                    times[is_traced][number % len(tasks)].append(spent)
        tracing.set_tracer(tracer)
        with tracing.trace("stages", "internal"):
            on = _span_microseconds()
    ratios = [min(on) / min(off) for on, off in zip(times[True], times[False], strict=True)]
    queries = (rounds + 1) * len(tasks)
    return {
        "queries": rounds * len(tasks),
        "without_ms": percentiles([one for each in times[False] for one in each]),
        "with_ms": percentiles([one for each in times[True] for one in each]),
        "ratio": round(statistics.median(ratios), 4),
        "spans_per_query": round((sum(counted.counts.values()) - _CALLS - 1) / queries, 1),
        "dropped_spans": counted.counts["dropped"],
        "span_us": {"without": off, "with": on},
    }


def _span_microseconds() -> float:
    began = time.perf_counter()
    for _ in range(_CALLS):
        with tracing.span("query retrieve"):
            pass
    return round((time.perf_counter() - began) / _CALLS * 1e6, 3)


def main() -> None:
    """Parse arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("--tasks", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    configure_logging("warning")
    tasks = read_tasks(given.tasks)
    print(json.dumps(measure(load_settings(given.home), tasks, given.rounds), indent=2))


if __name__ == "__main__":
    main()
