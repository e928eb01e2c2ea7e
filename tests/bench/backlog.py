"""A `serve` over a large library: until it is ready, and while it works off a backlog.

    python -m tests.bench.backlog HOME TASKS.jsonl [--skills N] [--queries N] [--edits N]
                                  [--scratch DIR]

HOME     an embedded library, which is copied; no process of it may run
TASKS    objects with `instruction`, as `eval routing` reads them, asked over HTTP in random order
SKILLS   made-up skills (3,000 unless given) that come in from a watched folder: their vectors,
         links and sections are the backlog

Starts `skillbus serve` and asks at once; then asks N queries (100) without a backlog, and as many
while it is worked off, with a pause between them, and writes N edits (40) to files of the watched
folder in between. Prints JSON:

ready_s            until `/readyz` says so; first_s: of the query that follows
failed             queries that were answered with anything but a bundle
idle_ms, busy_ms   p50, p95 and maximum of a query over HTTP, encoding included
edit_ms            from writing a file until its new revision is published
left               what was left of the backlog when the last query and edit were done
memory_mb          PSS of `serve` and its children at the end of each part, and what of it is
                   anonymous: the rest are pages of files, which the system can take back
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from deploy.stack.ports import free_port
from tests.bench.library import make_library
from tests.bench.run import percentiles
from tests.support.program.program import clean_environment
from workers.evaluation.predictions import read_jsonl
from workers.processes.interpreter import skillbus_command

_SOURCE = "arriving"
_SEED = 23
_PAUSE_SECONDS = 0.15
_PATIENCE_SECONDS = 300.0
_SETTINGS = "[gateway]\nrequests_a_minute = 100000\nburst = 100000\n"


@dataclass
class Served:
    """A running `serve`, its answers so far, and the folder that it watches."""

    home: Path
    folder: Path
    process: psutil.Process
    client: httpx.Client
    failed: int = 0
    edits: list[float] = field(default_factory=list)

    def ask(self, task: str) -> float:
        """Ask; milliseconds until the bundle."""
        started = time.perf_counter()
        answer = self.client.post("/v1/queries", json={"task": task}, headers={"Prefer": "wait=30"})
        self.failed += answer.status_code != 200 or "bundle" not in answer.json()
        return (time.perf_counter() - started) * 1000

    def edit(self, path: str, text: str) -> float:
        """Write a SKILL.md; milliseconds until its revision is published."""
        place, started = f"/v1/skills/{_SOURCE}:{path}", time.perf_counter()
        before = self.client.get(place).json()["seq"]
        started = time.perf_counter()
        (self.folder / path / "SKILL.md").write_text(text, encoding="utf-8")
        wait_until(lambda: self.client.get(place).json()["seq"] > before, 0.01)
        return (time.perf_counter() - started) * 1000

    def count_waiting(self) -> dict[str, int]:
        """What of the backlog is left."""
        status = self.client.get("/v1/status").json()
        published = status["skills"]["published"]
        return {
            "without_vectors": published - status["with_vectors"],
            "unlinked": status["unlinked"],
            "unembedded": published - status["embedded"],
        }

    def measure_memory(self) -> dict[str, int]:
        """PSS and anonymous memory of the process and its children in MB."""
        found = {"pss": 0, "anonymous": 0}
        for one in (self.process, *self.process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                info = one.memory_full_info()
                found["pss"] += info.pss
                found["anonymous"] += info.rss - info.shared
        return {name: round(size / 2**20) for name, size in found.items()}


def wait_until(condition: Callable[[], Any], pause: float) -> None:
    """Wait until a condition holds; exits when it does not in time."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"nothing after {_PATIENCE_SECONDS:.0f} s")
        time.sleep(pause)


@contextmanager
def serving(home: Path, folder: Path) -> Iterator[Served]:
    """`skillbus serve` on a port of its own."""
    address = f"127.0.0.1:{free_port(set())}"
    command = [*skillbus_command(["--home", str(home), "serve"]), "--listen", address]
    environment = {**clean_environment(), "SKILLBUS_LOG_LEVEL": "error"}
    process = subprocess.Popen(command, env=environment)
    try:
        with httpx.Client(base_url=f"http://{address}", timeout=60) as client:
            yield Served(home, folder, psutil.Process(process.pid), client)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def _is_ready(client: httpx.Client) -> bool:
    with suppress(httpx.TransportError):
        return client.get("/readyz").status_code == 200
    return False


def measure(served: Served, tasks: list[str], queries: int, edits: int) -> dict[str, Any]:
    """All figures of a `serve` that was started this moment."""
    started = time.perf_counter()
    wait_until(lambda: _is_ready(served.client), 0.02)
    report: dict[str, Any] = {"ready_s": round(time.perf_counter() - started, 2)}
    asked = iter(tasks)
    report["first_s"] = round(served.ask(next(asked)) / 1000, 3)
    report["idle_ms"] = percentiles([served.ask(next(asked)) for _ in range(queries)])
    report["memory_mb"] = {"idle": served.measure_memory()}
    sync = [*skillbus_command(["--home", str(served.home), "sync", str(served.folder)])]
    sync += ["--source", _SOURCE, "--until", "words"]
    subprocess.run(sync, check=True, stdout=subprocess.DEVNULL, env=clean_environment())
    report["backlog"] = served.count_waiting()
    paths = sorted(path.parent.name for path in served.folder.glob("*/SKILL.md"))
    times = []
    for number in range(queries):
        times.append(served.ask(next(asked)))
        if number % max(queries // edits, 1) == 0 and len(served.edits) < edits:
            path = paths[number % len(paths)]
            text = (served.folder / path / "SKILL.md").read_text(encoding="utf-8")
            served.edits.append(served.edit(path, f"{text}\nEdit {number} of the benchmark.\n"))
        time.sleep(_PAUSE_SECONDS)
    report |= {"busy_ms": percentiles(times), "edit_ms": percentiles(served.edits)}
    report["memory_mb"]["busy"] = served.measure_memory()
    return report | {"left": served.count_waiting(), "failed": served.failed}


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("home", type=Path)
    parser.add_argument("file", type=Path, metavar="TASKS.jsonl")
    parser.add_argument("--skills", type=int, default=3_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--edits", type=int, default=40)
    parser.add_argument("--scratch", type=Path)
    given = parser.parse_args()
    tasks = [row["instruction"] for row in read_jsonl(given.file, ["instruction"])]
    random.Random(_SEED).shuffle(tasks)
    # Each is asked once: none is a repetition that sessions or memory know.
    needed = 2 * given.queries + 1
    tasks = [f"{task} ({turn})" if turn else task for turn in range(needed) for task in tasks]
    with tempfile.TemporaryDirectory(dir=given.scratch) as scratch:
        home, folder = Path(scratch, "home"), Path(scratch, "skills")
        shutil.copytree(given.home, home, ignore=shutil.ignore_patterns("*.sock", "tokens.json"))
        (home / "skillbus.toml").write_text(_SETTINGS, encoding="utf-8")
        make_library(folder, given.skills)
        with serving(home, folder) as served:
            report = measure(served, tasks[:needed], given.queries, given.edits)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
