"""Tests that take servers away: clients leave the sockets of a lost server to the collector."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

LEFT_SOCKETS = "ignore:unclosed <socket.socket:ResourceWarning"
FOLDERS = [Path(__file__).with_name(name) for name in ("distributed", "faults", "servers")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have no test of these folders fail because a socket is collected while it runs."""
    for item in items:
        if _takes_servers_away(item.path):
            item.add_marker(pytest.mark.filterwarnings(LEFT_SOCKETS))


@pytest.fixture(scope="module", autouse=True)
def _collect_left_sockets(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave no such socket to the tests of other folders."""
    yield
    if _takes_servers_away(request.path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def _takes_servers_away(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in FOLDERS)
