"""A deployment on real servers under load, its processes killed in turn; exit 1 if a check fails.

    python -m tests.bench.soak HOME [--minutes N] [--updates N] [--queries N] [--skills N]
                                    [--kill-seconds N] [--folder DIR]

HOME            an embedded library, which is not changed; no process of it may run. Its vectors are
                copied, its sources' folders too: edits are made in the copies
--minutes       of load, 40 unless given
--updates       changed skills a second, 20 unless given, each an event over HTTP
--queries       a second over HTTP, 2 unless given
--skills        size of the library: drawn at random from HOME, all unless given
--kill-seconds  between two kills (SIGKILL) of one process, 180 unless given
--folder        for data and logs, build/soak unless given; what an earlier soak left is deleted

Runs Redis, Elasticsearch, Neo4j, a worker for each workload and a gateway. Redis, a worker, the
gateway and so on are killed in turn, and started again on the same port and data. In the end all
accepted work has to be done, and the library has to equal one that is made at once. The worker for
vectors of sections runs only if all sections of HOME have vectors: it would encode for hours.

Prints progress to standard error and a report as JSON. `figures.py` says what counts as flat.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from config.logging import configure_logging
from graph.local.store import SqliteSkillGraph
from tests.bench.http import tasks_of
from tests.bench.soak import compare, figures
from tests.bench.soak.deployment import Deployment
from tests.bench.soak.faults import Killer
from tests.bench.soak.library import Folders, prepare_library
from tests.bench.soak.progress import count_dead_letters, wait_done
from tests.bench.soak.traffic import Traffic
from tests.bench.soak.watch import Watcher
from workers.http.tokens import TokenScope

_MARK = "of-a-soak"
_SEED = 17
_EXAMPLES = 5
_LEAST_DRAIN_SECONDS = 1200.0


def say(text: str) -> None:
    """Print progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def has_section_vectors(home: Path) -> bool:
    """Whether all sections of a library have vectors."""
    graph = SqliteSkillGraph(home / "graph.db", writable=False)
    try:
        counts = graph.get_counts()
    finally:
        graph.close()
    return counts["embedded"] == counts["published"]


def clear(folder: Path) -> Path:
    """Make the folder empty; refuses one that no soak made."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARK).exists():
            raise SystemExit(f"{folder} is not empty, and no soak made it")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()
    return folder.resolve()


class Soak:
    """One run."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self.given = given
        self.folder = folder
        self.seconds = given.minutes * 60
        self.made = folder / "library"
        self.report: dict[str, Any] = {"checks": {}}

    def run(self) -> dict[str, Any]:
        """Prepare, load, wait, compare; the report."""
        say("making the library")
        self.report["library"] = prepare_library(self.given.home, self.made, self.given.skills)
        sections = has_section_vectors(self.made)
        rate = self.given.updates + self.given.queries
        with Deployment(self.folder, sections=sections, rate=rate) as deployment:
            say("filling the servers")
            self.report["library"] |= deployment.fill(self.made)
            deployment.start_programs()
            say("waiting until nothing is left to do")
            seconds, left = wait_done(deployment, _LEAST_DRAIN_SECONDS + self.seconds, say)
            self.report["library"] |= {"ready_seconds": seconds, "left_before": left}
            self.report["library"]["section_vectors"] = sections
            folders = Folders(self.made / "text", _SEED)
            self.report["library"]["skills_that_change"] = len(folders)
            self._load(deployment, folders)
            self._finish(deployment, folders)
        return self.report

    def _load(self, deployment: Deployment, folders: Folders) -> None:
        share = folders.measure_share_of_new_texts()
        secrets = (
            deployment.make_token("producer", TokenScope.WRITE),
            deployment.make_token("reader", TokenScope.READ),
        )
        traffic = Traffic(deployment.gateway_url, secrets, folders, tasks_of(self.made))
        watcher = Watcher(deployment, traffic.tally, traffic.started)
        killer = Killer(deployment, self.given.kill_seconds, traffic.started)
        say(f"load for {self.given.minutes:g} minutes")
        watcher.start()
        killer.start()
        try:
            asyncio.run(traffic.run(self.seconds, self.given.updates, self.given.queries))
        finally:
            killer.stop()
            say("waiting until all accepted work is done")
            seconds, left = wait_done(deployment, max(_LEAST_DRAIN_SECONDS, self.seconds), say)
            watcher.stop()
        for thread in (killer, watcher):
            if thread.error is not None:
                raise thread.error
        watcher.audit()
        self._report_load(traffic, killer, watcher, folders)
        self.report["updates"]["edits_that_change_a_text_of_a_vector"] = share
        self.report["checks"]["drained"] = {"passed": not left, "seconds": seconds, "left": left}
        self._check_processes(deployment, watcher)

    def _report_load(
        self, traffic: Traffic, killer: Killer, watcher: Watcher, folders: Folders
    ) -> None:
        tally, checks = traffic.tally, self.report["checks"]
        states = Counter(one.state for one in tally.answers)
        reasons = Counter(one.reason for one in tally.answers if one.state == "failed")
        self.report |= {
            "updates": {
                "sent": tally.events,
                "done": watcher.done,
                "a_second": round(tally.events / self.seconds, 2),
                "greatest_lag_seconds": round(tally.lag, 2),
                "by_kind": dict(folders.changes),
                "greatest_backlog": figures.greatest(watcher.backlog),
                "backlog_by_fifth": figures.backlog_by_fifth(watcher.backlog, self.seconds),
            },
            "queries": {
                "states": dict(states),
                "answered_without_a_server": sum(one.without_server for one in tally.answers),
                "failed_because": dict(reasons.most_common(_EXAMPLES)),
            },
            "statuses": dict(sorted(tally.statuses.items())),
            "outages": [f"{one.name} {one.begin:.0f}-{one.end:.0f} s" for one in killer.outages],
            "processes": figures.by_process(watcher.samples, self.seconds),
        }
        lost = dict.fromkeys(tally.accepted, "still open") | watcher.failed
        checks["no_update_lost"] = {
            "passed": not lost and not tally.not_accepted,
            "lost": len(lost),
            "never_accepted": len(tally.not_accepted),
            "examples": [*list(lost.items())[:_EXAMPLES], *tally.not_accepted[:_EXAMPLES]],
        }
        strange = [one for one in tally.answers if one.state not in ("done", "failed")]
        unexplained = [one for one in tally.answers if one.state == "failed" and not one.reason]
        checks["every_query_answered"] = {
            "passed": not (strange or unexplained or tally.unexpected),
            "examples": [f"{one.state} {one.reason}" for one in strange[:_EXAMPLES]],
            "failed_without_reason": len(unexplained),
            "unexpected": dict(tally.unexpected),
        }
        checks["latency_flat"] = figures.judge_latency(tally.answers, killer.outages, self.seconds)

    def _check_processes(self, deployment: Deployment, watcher: Watcher) -> None:
        checks, memory = self.report["checks"], deployment.stack.memory
        heap = max(_megabytes(memory.elasticsearch_heap), _megabytes(memory.neo4j_heap))
        checks["memory_and_handles_flat"] = figures.judge_processes(
            watcher.samples, self.seconds, heap + _megabytes(memory.neo4j_page_cache)
        )
        letters = count_dead_letters(deployment)
        checks["no_dead_letters"] = {"passed": not letters, "examples": letters[:_EXAMPLES]}
        checks["no_process_died"] = {"passed": not deployment.died, "examples": deployment.died}
        orphans = watcher.list_old_orphans()
        checks["no_child_outlives_its_worker"] = {"passed": not orphans, "examples": orphans}
        errors = list_errors(deployment)
        unexpected = {text: count for text, count in errors.items() if "exception" in text}
        checks["no_unexpected_exception"] = {"passed": not unexpected, "examples": unexpected}
        self.report["errors_logged"] = dict(errors.most_common(20))

    def _finish(self, deployment: Deployment, folders: Folders) -> None:
        checks = self.report["checks"]
        say("checking the vectors")
        checks["vectors"] = compare.compare_vectors(
            deployment.settings, sections=deployment.sections
        )
        say("making a library at once from the same folders")
        home = self.folder / "reference"
        seconds = compare.make_reference(self.made / "text", folders.sources, home)
        say("comparing")
        equal = compare.compare(deployment.settings, home)
        checks["equal_to_a_library_made_at_once"] = {**equal, "made_in_seconds": seconds}


def list_errors(deployment: Deployment) -> Counter[str]:
    """Logged errors of skillbus by process and text; those with a traceback say `exception`."""
    found: Counter[str] = Counter()
    for program in deployment.programs.values():
        lines = program.log.read_text(encoding="utf-8", errors="replace").split("\n")
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                if line.startswith("Traceback"):
                    found[f"{program.name}: exception that is not logged as JSON"] += 1
                continue
            if isinstance(entry, dict) and entry.get("level") in ("error", "critical"):
                kind = " (exception)" if "exception" in entry else ""
                found[f"{program.name}: {entry.get('event', '')}{kind}"] += 1
    return found


def _megabytes(size: str) -> float:
    """A size in the format of `-Xmx`."""
    return float(size[:-1]) * {"m": 1, "g": 1024}[size[-1].lower()]


def main() -> None:
    """Run, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("home", type=Path)
    parser.add_argument("--minutes", type=float, default=40.0)
    parser.add_argument("--updates", type=float, default=20.0)
    parser.add_argument("--queries", type=float, default=2.0)
    parser.add_argument("--skills", type=int, default=0)
    parser.add_argument("--kill-seconds", type=float, default=180.0)
    parser.add_argument("--folder", type=Path, default=Path("build/soak"))
    given = parser.parse_args()
    configure_logging("error")
    # Settings of the caller are not those of the deployment.
    for name in [name for name in os.environ if name.startswith("SKILLBUS_")]:
        del os.environ[name]
    folder = clear(given.folder)
    soak = Soak(given, folder)
    try:
        report = soak.run()
    finally:  # what was measured before an error is kept
        (folder / "report.json").write_text(json.dumps(soak.report, indent=1, default=str))
    failed = [name for name, check in report["checks"].items() if not check["passed"]]
    report |= {"passed": not failed, "failed": failed, "logs": str(folder / "logs")}
    text = json.dumps(report, indent=1, default=str)
    (folder / "report.json").write_text(text, encoding="utf-8")
    print(text)
    if failed:
        say(f"failed: {', '.join(failed)}; logs: {folder / 'logs'}, {folder / 'servers/logs'}")
        raise SystemExit(1)
    say("all checks passed")


if __name__ == "__main__":
    main()
