"""Processor time of an edit with its linking, by the size of the library.

    python -m tests.bench.edit HOME... --scratch DIR [--skills N...] [--edits N] [--prepare]

HOME      embedded libraries, which are not changed; no process of them may run
SKILLS    sizes of the libraries to measure, each made from the first HOME that has as many: of
          skills that all HOMEs have, drawn at random, or of all skills where these are too few
SCRATCH   has the made libraries, by size, and keeps them: one that is there already is used as it
          is, with the edits of earlier runs. `--prepare` makes them only

In a library that is made every skill is linked anew, so that its links are those of the library.
Then N skills (100 unless given), the same ones in every library, get lines of one another in place
of their last ones, one at a time: the tasks `plan`, `ingest` and `link` run in one process without
workers. Vectors are left out, as encoding an edit takes the same time in any library.

Prints JSON, by size:

linked     seconds of processor until all skills of the new library were linked, and skills
start      seconds of processor until the first skill was linked, and MB of memory that it took
cpu_ms     of an edit: mean, p50, p95, max by task and in `edit`, the sum
wall_ms    the same, on the clock
growth     mean of `cpu_ms` divided by that of the first size, by task
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psutil

from config.load_settings import load_settings
from config.logging import configure_logging
from skills.events import SourceChanged, new_event
from skills.record import RevisionKey
from tasks.ingest.ingest import ingest
from tasks.ingest.link import link
from tasks.ingest.plan import plan
from tasks.journal.protocol import job_id
from tasks.policies import INGEST, LINK, PLAN, Deadline
from tasks.services import Services
from tests.bench.run import percentiles
from workers.backend.stores import open_services

_SEED = 11
_WARM_UP = 10
_LINES = 12
_AT_ONCE = 200
_SECONDS = 3600.0
_TASKS = {PLAN.name: plan, INGEST.name: ingest, LINK.name: link}
_MEGABYTE = 1 << 20

Spent = tuple[float, float]
"""Seconds of processor, and on the clock."""


def list_published(home: Path) -> dict[str, int]:
    """Skill id -> seq of a library that no process has open."""
    with closing(sqlite3.connect(f"file:{home / 'graph.db'}?mode=ro", uri=True)) as db:
        return dict(db.execute("SELECT skill_id, seq FROM skills WHERE seq > 0"))


def draw_skills(homes: Sequence[Path]) -> list[str]:
    """The skills that all libraries have, in random order."""
    common = sorted(set.intersection(*(set(list_published(home)) for home in homes)))
    random.Random(_SEED).shuffle(common)
    return common


class Tasks:
    """Runs tasks in the order in which they are sent; those that compute vectors are dropped."""

    def __init__(self) -> None:
        self._sent: deque[tuple[str, Sequence[Any]]] = deque()

    def send(self, name: str, ids: Sequence[object]) -> None:
        """Add a task, unless it waits already."""
        if name in _TASKS and (name, ids) not in self._sent:
            self._sent.append((name, ids))

    def run(self, services: Services) -> dict[str, Spent]:
        """Run all; by task, what it took."""
        spent: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        while self._sent:
            name, ids = self._sent.popleft()
            before = time.process_time(), time.monotonic()
            _TASKS[name](services, Deadline(_SECONDS), ids)
            spent[name.rpartition(".")[2]][0] += time.process_time() - before[0]
            spent[name.rpartition(".")[2]][1] += time.monotonic() - before[1]
        return {name: (cpu, wall) for name, (cpu, wall) in spent.items()}


def open_library(home: Path, stack: ExitStack) -> tuple[Services, Tasks]:
    """The services of a library, and the tasks that they send."""
    tasks = Tasks()
    return open_services(load_settings(home), stack, tasks.send, writable=True), tasks


def make_library(source: Path, home: Path, skills: int, first: Sequence[str]) -> dict[str, Any]:
    """Copy a library, cut it to `skills` of which `first` are the first, and link all of them."""
    making = home.with_name(f"{home.name}.part")
    shutil.rmtree(making, ignore_errors=True)
    shutil.copytree(source, making)
    with ExitStack() as stack:
        services, tasks = open_library(making, stack)
        published = {entry.skill_id: entry.seq for entry in services.graph.get_entries()}
        kept = list(dict.fromkeys((*first, *sorted(published))))[:skills]
        gone = published.keys() - set(kept)
        services.graph.remove([RevisionKey(one, published[one] + 1) for one in sorted(gone)])
        unused = sorted(RevisionKey(one, published[one]) for one in gone)
        for batch in _batches(unused):
            services.index.delete(batch)
        services.graph.prune_removed(-1.0)
        for chunk in _batches(sorted(kept)):
            services.graph.mark_for_linking(chunk)
        before = time.process_time()
        while services.graph.list_awaiting_linking(1):
            tasks.send(LINK.name, [])
            tasks.run(services)
        seconds = time.process_time() - before
    _point_to_text(making)
    making.rename(home)
    return {"cpu_s": round(seconds, 1), "skills": len(kept)}


def _batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]


def _point_to_text(home: Path) -> None:
    """Have all sources be folders in the library, which are filled with what is edited."""
    with closing(sqlite3.connect(home / "graph.db")) as db, db:
        for (source_id,) in db.execute("SELECT source_id FROM sources").fetchall():
            root = (home.with_name(home.name.removesuffix(".part")) / "text" / source_id).resolve()
            values = (f"{root}", source_id)
            db.execute(
                "UPDATE sources SET kind = 'directory', root = ? WHERE source_id = ?", values
            )


def measure_edits(home: Path, edited: Sequence[str]) -> dict[str, Any]:
    """Edit these skills, after some more that are not counted."""
    with ExitStack() as stack:
        services, tasks = open_library(home, stack)
        report: dict[str, Any] = {"start": _measure_start(services, edited[0])}
        spent = [_edit(services, tasks, one, text) for one, text in _new_texts(services, edited)]
    counted = spent[_WARM_UP:]
    for place, unit in enumerate(("cpu_ms", "wall_ms")):
        values = {name: [one[name][place] * 1000 for one in counted] for name in counted[0]}
        values["edit"] = [sum(parts) for parts in zip(*values.values(), strict=True)]
        report[unit] = {
            name: {"mean": round(statistics.fmean(each), 2)} | percentiles(each)
            for name, each in values.items()
        }
    return report


def _measure_start(services: Services, skill_id: str) -> dict[str, float]:
    process = psutil.Process()
    memory, cpu = process.memory_info().rss, time.process_time()
    services.linker.find_alike(skill_id, 1)
    return {
        "cpu_s": round(time.process_time() - cpu, 2),
        "mb": round((process.memory_info().rss - memory) / _MEGABYTE),
    }


def _new_texts(services: Services, skill_ids: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Skill ids with texts: their own, the last lines replaced by lines of the next skill.

    Texts keep their length, so that a library that was edited more often is not slower.
    """
    entries = {entry.skill_id: entry for entry in services.graph.get_entries(skill_ids)}
    keys = [RevisionKey(one, entries[one].seq) for one in skill_ids]
    found = services.index.get_revisions(keys)
    run = random.Random(f"{time.time()}")
    for key, other in zip(keys, (*keys[1:], keys[0]), strict=True):
        lines, others = found[key].parsed.lines, found[other].parsed.lines
        changed = min(_LINES, len(others), len(lines) // 2)
        added = run.sample(others, changed)
        yield key.skill_id, "\n".join((*lines[: len(lines) - changed], *added)) + "\n"


def _edit(services: Services, tasks: Tasks, skill_id: str, text: str) -> dict[str, Spent]:
    source_id, _, path = skill_id.partition(":")
    (root,) = [one.root for one in services.graph.list_sources() if one.source_id == source_id]
    folder = Path(root, path)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    changed = SourceChanged(source_id=source_id, root=root, paths=(f"{path}/SKILL.md",))
    event = new_event(changed, "skillbus/bench")
    services.journal.add_job(event, "event")
    before = services.graph.get_entries([skill_id])[0].seq
    tasks.send(PLAN.name, [job_id(event)])
    spent = tasks.run(services)
    if services.graph.get_entries([skill_id])[0].seq == before:
        raise SystemExit(f"the edit of {skill_id} was not published")
    return spent


def compare(reports: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, float]]:
    """By size, the mean processor time by task divided by that of the first size."""
    means = {
        size: {task: figures["mean"] for task, figures in report["cpu_ms"].items()}
        for size, report in reports.items()
    }
    first = next(iter(means.values()))
    return {
        size: {task: round(mean / first[task], 2) for task, mean in each.items()}
        for size, each in means.items()
    }


def main() -> None:
    """Measure every size in a process of its own, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("homes", type=Path, nargs="+", metavar="HOME")
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--skills", type=int, nargs="+", default=[1000])
    parser.add_argument("--edits", type=int, default=100)
    parser.add_argument("--prepare", action="store_true", help="make the libraries only")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    configure_logging("error")
    drawn = draw_skills(given.homes)
    if given.here:
        (size,) = given.skills
        home = given.scratch / str(size)
        report: dict[str, Any] = {}
        if not home.exists():
            source = next(one for one in given.homes if len(list_published(one)) >= size)
            report["linked"] = make_library(source, home, size, drawn)
        if not given.prepare:
            report |= measure_edits(home, drawn[: given.edits + _WARM_UP])
        print(json.dumps(report))
        return
    reports = {}
    given.scratch.mkdir(parents=True, exist_ok=True)
    for size in given.skills:
        again = [sys.executable, "-m", "tests.bench.edit", *map(str, given.homes), "--here"]
        again += ["--scratch", str(given.scratch), "--edits", str(given.edits)]
        again += ["--skills", str(size), *(["--prepare"] if given.prepare else [])]
        done = subprocess.run(again, stdout=subprocess.PIPE, check=True, text=True)
        reports[size] = json.loads(done.stdout.splitlines()[-1])
    growth = {} if given.prepare else {"growth": compare(reports)}
    print(json.dumps({"sizes": reports, **growth}, indent=1))


if __name__ == "__main__":
    main()
