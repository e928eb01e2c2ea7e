"""The client of Neo4j without a server."""

from __future__ import annotations

import threading

import pytest

from config.errors import TransientError, UsageError
from graph.neo4j.call_watchdog import CallWatchdog
from graph.neo4j.client import Neo4jClient
from tests.support.samples.catalog import catalog_settings


def list_watchdogs() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "neo4j-watch"]


def test_a_closed_client_leaves_no_thread() -> None:
    before = list_watchdogs()
    client = Neo4jClient(catalog_settings("bolt://127.0.0.1:1"))
    with pytest.raises(TransientError):
        client.read("RETURN 1")
    [watching] = set(list_watchdogs()) - set(before)
    client.close()
    watching.join(5)
    assert not watching.is_alive()
    with pytest.raises(UsageError, match="closed"):
        client.read("RETURN 1")


def test_calls_in_flight_are_watched_until_they_end() -> None:
    aborted = threading.Event()
    watchdog = CallWatchdog(aborted.set)
    call = watchdog.start_call(0.1)
    watchdog.close()
    assert aborted.wait(5)
    assert call.expired
    watchdog.finish_call(call)
