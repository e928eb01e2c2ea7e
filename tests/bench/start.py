"""Time to the first answer of a process, and its memory, on a library of one's own.

    python -m tests.bench.start HOME TASK [--rounds N]

Runs `skillbus query TASK` as a command, N times (3 unless given), then once with each step of it
timed in one process. A `serve` of HOME must not run: the command would ask it. Prints JSON:

command   seconds until the answer is printed, and the largest RSS of the process in MB, by round
steps     seconds and memory after each step: what was imported and opened, the published library,
          the encoder, the vectors of skills and of sections, the first answer, a further one.
          memory in MB: resident (rss), of which no other process has pages (private) and with its
          share of common pages (pss)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

STARTED = time.monotonic()
_MEGABYTE = 1 << 20


def measure_command(task: str) -> dict[str, float]:
    """Run the command; seconds, and MB at its peak. Raises CalledProcessError if it fails."""
    from workers.cli.exit_codes import EXIT_NO_SKILL_HIT
    from workers.processes.interpreter import skillbus_command

    started = time.monotonic()
    process = subprocess.Popen(skillbus_command(["query", task]), stdout=subprocess.DEVNULL)
    _, state, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(state)
    seconds = time.monotonic() - started
    if process.returncode not in (0, EXIT_NO_SKILL_HIT):
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return {"s": round(seconds, 2), "peak_mb": round(used.ru_maxrss * 1024 / _MEGABYTE)}


def measure_steps(task: str) -> list[dict[str, Any]]:
    """Take the steps of the command in this process."""
    found: list[dict[str, Any]] = []

    def note(step: str) -> None:
        used = psutil.Process().memory_full_info()
        found.append(
            {
                "step": step,
                "s": round(time.monotonic() - STARTED, 2),
                "rss_mb": round(used.rss / _MEGABYTE),
                "private_mb": round(used.uss / _MEGABYTE),
                "pss_mb": round(getattr(used, "pss", 0) / _MEGABYTE),
            }
        )

    from config.load_settings import load_settings
    from config.logging import configure_logging
    from search.protocol import Filters, SectionSearch, VectorSearch
    from skills.events import QueryAsked
    from workers.backend.embedded import EmbeddedBackend

    settings = load_settings()
    configure_logging("warning")
    note("imported")
    with EmbeddedBackend(settings, writable=False) as backend:
        note("opened")
        services = backend.services
        services.library.refresh()
        note("library")
        vector = services.encoder.get().encode_queries([task])[0]
        note("encoder")
        services.index.search_many([VectorSearch(vector, 0, 1, Filters())])
        note("skill vectors")
        services.index.search_many([SectionSearch(vector, 1, Filters())])
        note("section vectors")
        for step in ("first answer", "further answer"):
            backend.answer_query(QueryAsked(task=task), "skillbus/bench")
            note(step)
    return found


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("home", type=Path)
    parser.add_argument("task")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ["SKILLBUS_HOME"] = str(given.home.resolve())
    if given.steps:
        print(json.dumps(measure_steps(given.task)))
        return
    rounds = [measure_command(given.task) for _ in range(given.rounds)]
    # In a process of its own, whose clock starts with it.
    again = [sys.executable, "-m", "tests.bench.start", str(given.home), given.task, "--steps"]
    steps = subprocess.run(again, stdout=subprocess.PIPE, check=True, text=True).stdout
    print(json.dumps({"command": rounds, "steps": json.loads(steps.splitlines()[-1])}, indent=1))


if __name__ == "__main__":
    main()
