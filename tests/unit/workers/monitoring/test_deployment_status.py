"""How long a status of several servers waits for one that does not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from config.settings import Settings
from workers.monitoring.deployment_status import SERVERS, DeploymentStatus
from workers.monitoring.parallel_probes import ParallelProbes
from workers.monitoring.status import catalog_status

MODEL = {"base_url": "http://127.0.0.1:1/v1", "model": "small", "stages": ("roles",)}
ANSWERS: dict[str, dict[str, Any]] = {
    "broker": {"queues": []},
    "redis": {"workers": [], "problem": "", "language_model": {"refinement": {"paused": None}}},
    "elasticsearch": {},
    "neo4j": {**catalog_status({"published": 1}, 0), "sources": [], "oldest_waiting": 0},
}


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    opened = threading.Event()
    yield opened
    opened.set()


@pytest.mark.parametrize("hanging", [None, *SERVERS])
def test_a_server_that_hangs_is_waited_for_once(gate: threading.Event, hanging: str | None) -> None:
    """Values that need it are None, and no further probe of it is started."""
    started = []

    def answer(name: str) -> dict[str, Any]:
        if name == hanging:
            gate.wait(60)
        return {**ANSWERS[name], "seconds": 0.0}

    def count(name: str) -> dict[str, Any]:
        started.append(name)
        return {"of": name}

    status = DeploymentStatus(Settings(language_model=MODEL), None)
    status._probes = ParallelProbes({name: partial(answer, name) for name in SERVERS})
    status._review_probe = ParallelProbes({"reviews": partial(count, "reviews")})
    status._refine_probe = ParallelProbes({"refinement": partial(count, "refinement")})
    found = status.get_status(0.2 if hanging else 30)
    down = [one["server"] for one in found["servers"] if not one["up"]]
    assert down == ([hanging] if hanging else [])
    expected = {"reviews", "refinement"}
    if hanging in ("elasticsearch", "neo4j"):
        expected.remove("reviews")
        assert found["reviews"] is None
    if hanging in ("redis", "neo4j"):
        expected.remove("refinement")
    assert set(started) == expected
    if hanging == "neo4j":
        assert found["language_model"]["refinement"]["stages"] is None


def test_addresses_are_shown_without_passwords_that_have_commas() -> None:
    address = "redis://:hunter,hunter@one/0"
    others = {"elasticsearch": "http://two:9200", "neo4j": "bolt://three:7687"}
    settings = Settings(servers={"broker": address, **others})
    status = DeploymentStatus(settings, None)
    status._probes = ParallelProbes({name: lambda: {"seconds": 0.0} for name in SERVERS})
    assert "hunter" not in str(status.get_status(30)["servers"])
