"""How many answers of a language model are paid for twice, or lost, when their process is killed.

    python -m tests.bench.refine_kills [--questions N] [--kills N] [--threads N] [--seconds S]

Asks questions of a server on loopback that takes S seconds for an answer, through the metered model
and a SQLite file, and kills the process (SIGKILL) at random moments, spread over the work. Prints
how many answers were delivered, twice, or never stored; how many requests were cut off by a kill
(the server sees that and delivers nothing); and the time from sending an answer until it is
committed, which is when a kill pays twice.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np

from tests.support.program import asking


class TimedServer(asking.NumberServer):
    """Also notes when each answer was sent (`time.time()`)."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.sent: dict[int, float] = {}

    def end(self, *, whole: bool, left: bool) -> None:
        """Count the end of a request."""
        if whole:
            self.sent[self.number] = time.time()
        super().end(whole=whole, left=left)


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, TimedServer(options.seconds) as server:
        home = Path(folder)
        started = time.monotonic()
        run(home, server, options)
        server.settle()
        stored = asking.stored_numbers(home, options.questions)
        print(f"questions               {options.questions}, {options.threads} at a time")
        print(f"kills                   {options.kills}, in {time.monotonic() - started:.0f} s")
        print(f"requests                {server.requests}")
        print(f"cut off by a kill       {server.disconnects}")
        print(f"delivered               {server.deliveries.total()}")
        print(f"delivered twice         {server.deliveries.total() - options.questions}")
        print(f"lost                    {options.questions - len(stored)}")
        print(f"sent until committed    {commit_delays(home, server)}")


def run(home: Path, server: TimedServer, options: argparse.Namespace) -> None:
    """Ask everything, with kills after random numbers of requests and a random time."""
    share = max(2, int(0.8 * options.questions / (options.kills + 1)))
    for _ in range(options.kills):
        process = asking.start(home, server, options.questions, options.threads)
        server.wait_for_requests(server.requests + random.randint(1, 2 * share - 1), 600)
        time.sleep(random.uniform(0, options.seconds))
        process.kill()
        process.join()
    process = asking.start(home, server, options.questions, options.threads)
    process.join()
    if process.exitcode:
        raise SystemExit(f"the process failed: {process.exitcode}")


def commit_delays(home: Path, server: TimedServer) -> str:
    """Median, 95th percentile and greatest delay of the commits."""
    with closing(sqlite3.connect(home / "answers.db")) as connection:
        rows = connection.execute("SELECT text, saved FROM answers").fetchall()
    delays = [
        1000 * (saved - server.sent[asking.Number.model_validate_json(text).number])
        for text, saved in rows
    ]
    median, late = np.percentile(delays, [50, 95])
    return f"median {median:.1f}, p95 {late:.1f}, most {max(delays):.1f} ms"


if __name__ == "__main__":
    main()
