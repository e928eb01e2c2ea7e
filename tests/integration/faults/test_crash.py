"""kill -9 at random moments: after the next start the library is what a single run builds."""

from __future__ import annotations

import math
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from skills.events import SourceChanged, new_event
from tasks.journal.protocol import job_id
from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.program.snapshot import NOTHING_LEFT, leftovers, snapshot
from tests.support.samples.library import Folder

ROUNDS = int(os.environ.get("SKILLBUS_CRASH_ROUNDS", "5"))
SEED = int(os.environ.get("SKILLBUS_CRASH_SEED", "0")) or random.randrange(1 << 30)
STATES = max(5, ROUNDS // 10)
SKILLS = 25


class States:
    """A folder of skills as it is at several times, each with the library of a single run."""

    def __init__(self, server: ForkServer, base: Path) -> None:
        self.root = base / "lib"
        self._server = server
        self._base = base
        self._copies: list[Path] = []
        self.libraries: list[dict[str, Any]] = []
        self.seconds = math.inf
        folder = Folder(self.root, SEED, SKILLS)
        for number in range(STATES):
            if number:
                folder.change(10)
            copy = base / f"state-{number}"
            shutil.copytree(self.root, copy)
            self._copies.append(copy)
            self.libraries.append(self._build(number))

    def _build(self, number: int) -> dict[str, Any]:
        home = self._base / f"single-{number}"
        started = time.monotonic()
        result = Skillbus(self._server, home).start("sync", str(self.root)).wait()
        # The shortest: the first also encodes texts, which later runs have from the first.
        self.seconds = min(self.seconds, time.monotonic() - started)
        assert result.code in (0, 4), result.err
        return snapshot(home)

    def put(self, number: int) -> None:
        """Bring the folder to one of its states, touching only what differs."""
        wanted = self._copies[number]
        for path in sorted(self.root.rglob("*"), reverse=True):
            twin = wanted / path.relative_to(self.root)
            if path.is_file() and not twin.is_file():
                path.unlink()
            elif path.is_dir() and not twin.is_dir():
                path.rmdir()
        for twin in sorted(wanted.rglob("*")):
            path = self.root / twin.relative_to(wanted)
            if twin.is_dir():
                path.mkdir(exist_ok=True)
            elif not path.exists() or path.read_bytes() != twin.read_bytes():
                path.write_bytes(twin.read_bytes())


@pytest.fixture(scope="module")
def states(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> States:
    print(f"SKILLBUS_CRASH_SEED={SEED}")
    return States(fork_server, tmp_path_factory.mktemp("crash"))


@pytest.mark.timeout(300 + ROUNDS * 30)
def test_a_killed_sync_goes_on_as_if_nothing_had_been(
    states: States, fork_server: ForkServer, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    home = tmp_path / "home"
    for number in range(ROUNDS):
        if number % 4 == 3:
            home = tmp_path / f"home-{number}"
        skillbus = Skillbus(fork_server, home, SKILLBUS_WORKERS__KEEP_SECONDS="0")
        for _ in range(chance.choice([1, 1, 2])):
            state = chance.randrange(STATES)
            states.put(state)
            running = skillbus.start("sync", str(states.root))
            time.sleep(chance.uniform(0.03, 1.2) * states.seconds)
            running.kill()
        result = skillbus.start("sync", str(states.root)).wait()
        assert result.code in (0, 4), f"round {number}, seed {SEED}: {result.err}"
        assert snapshot(home) == states.libraries[state], f"round {number}, seed {SEED}"
        assert leftovers(home) == NOTHING_LEFT, f"round {number}, seed {SEED}"


def test_what_serve_acknowledged_is_carried_out_after_a_kill(
    states: States, fork_server: ForkServer, tmp_path: Path
) -> None:
    chance = random.Random(SEED + 1)
    skillbus = Skillbus(fork_server, tmp_path / "home")
    for state in range(3):
        states.put(state)
        with skillbus.serving() as serve, skillbus.client() as client:
            event = new_event(SourceChanged(source_id="lib", root=str(states.root)), "tests")
            client.post("/v1/events", json=event.model_dump(mode="json")).raise_for_status()
            asked = client.post("/v1/queries", json={"task": "fire a kiln"}).raise_for_status()
            time.sleep(chance.uniform(0, 0.5) * states.seconds)
            serve.kill()
        with skillbus.serving(), skillbus.client() as client:
            for path in (f"/v1/events/{job_id(event)}", f"/v1/queries/{asked.json()['id']}"):
                wait_for(lambda path=path: client.get(path).json()["state"] == "done")  # type: ignore[misc]  # mypy cannot infer it
            wait_for(lambda: _still(client.get("/v1/status").json()))
        assert snapshot(skillbus.home) == states.libraries[state], f"seed {SEED}"


def _still(status: dict[str, Any]) -> bool:
    waiting = status["skills"]["waiting"] + status["unlinked"] + status["open_events"]
    return not waiting and status["paged"] == status["skills"]["published"]
