"""Keeps a worker from taking queries while the stores have another version or model."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from config.errors import SkillbusError
from config.settings import Settings
from graph.neo4j.store import Neo4jSkillGraph
from search.elastic.health import describe_other_index
from search.models.load_models import encoder_identity

log = structlog.get_logger()

RETRY_SECONDS = 1.0


def wait_for_own_version(settings: Settings, is_stopping: Callable[[], bool]) -> None:
    """Wait until catalog and index have this version and model, or the worker is stopping.

    During an upgrade, workers of the other version answer meanwhile; this one would fail the
    queries that it takes. Also returns if a server does not answer, which tasks report.
    """
    waiting = False
    while not is_stopping() and (problem := find_other_version(settings)):
        if not waiting:
            log.warning("queries are not accepted yet", reason=problem)
        waiting = True
        time.sleep(RETRY_SECONDS)
    if waiting:
        log.info("queries are accepted")


def find_other_version(settings: Settings) -> str:
    """Return which store has another version or model; "" if none has, or a
    server does not answer."""
    try:
        return _describe_other_index(settings) or _describe_newer_catalog(settings)
    except SkillbusError:
        return ""


def _describe_other_index(settings: Settings) -> str:
    identity = encoder_identity(settings.encoder)
    problem = describe_other_index(settings.servers, identity.model, identity.dimension)
    return f"{problem}: `skillbus reindex` moves it" if problem else ""


def _describe_newer_catalog(settings: Settings) -> str:
    """Return a message if the catalog is newer, else ""; the worker migrates an older catalog."""
    graph = Neo4jSkillGraph(settings.servers, writable=False)
    try:
        found = graph.health()
    finally:
        graph.close()
    if found.get("schema", 0) <= found.get("schema_wanted", 0):
        return ""
    return f"the catalog has schema {found['schema']}, this version knows {found['schema_wanted']}"
