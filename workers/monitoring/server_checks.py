"""Checks of `doctor` in a distributed deployment: each server, and the servers' consistency."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from config.errors import SkillbusError
from config.secrets import strip_password
from config.server_settings import ServerSettings
from config.settings import Settings
from graph.neo4j.store import Neo4jSkillGraph
from search.elastic.health import index_health
from search.models.identity import EncoderIdentity
from search.models.load_models import encoder_identity
from tasks.broker import redis_connection
from tasks.broker.broker_config import server_broker_config
from tasks.broker.rabbitmq_status import inspect_rabbitmq
from tasks.policies import REFINE
from tasks.sources.directory import identify_folder
from workers.backend.distributed import create_client_app
from workers.backend.stores import open_coordinator, open_graph, open_index, open_journal
from workers.monitoring.local_checks import (
    Check,
    check_dead_letters,
    check_reviews,
    compare_with_index,
    describe_outdated,
    fetch_failures,
    find_unknown_sources,
)
from workers.processes.current_process import unique_process_name
from workers.processes.workloads import ALL_QUEUES
from workers.quantities import format_count

_MIN_REDIS, _MIN_RABBITMQ, _MIN_NEO4J = (6, 2), (3, 10), (5, 26)
_MAX_SKEW_SECONDS = 5.0


def server_checks(settings: Settings) -> dict[str, Check]:
    """Return the checks by name, in the order of the report."""
    identity = _identity_of(settings)
    return {
        "broker": lambda: _check_broker(settings),
        "redis": lambda: _check_redis(settings.servers, "servers.redis"),
        "clock": lambda: _check_clock(settings.servers),
        "elasticsearch": lambda: _check_elasticsearch(settings, identity()),
        "neo4j": lambda: _check_neo4j(settings),
        "workers": lambda: _check_workers(settings),
        "revisions": lambda: _check_revisions(settings, identity()),
        "journal": lambda: _check_journal(settings),
        "dead letters": lambda: _check_dead_letters(settings),
        "sources": lambda: _check_sources(settings),
        "reviews": lambda: check_reviews(settings),
    }


def _identity_of(settings: Settings) -> Callable[[], EncoderIdentity]:
    """Return a function that returns the encoder's identity, or raises the error of loading it.

    The identity is read at once, in the calling thread, because a model other than the
    default is loaded for it.
    """
    try:
        found = encoder_identity(settings.encoder)
    except SkillbusError as error:
        reason = str(error)

        def fail() -> EncoderIdentity:
            raise SkillbusError(f"the encoder cannot be loaded: {reason}")

        return fail
    return lambda: found


def _check_broker(settings: Settings) -> str:
    servers = settings.servers
    if urlsplit(servers.broker).scheme.startswith("redis"):
        own = {"redis": servers.broker, "redis_password_file": servers.broker_password_file}
        return _check_redis(servers.model_copy(update=own), "servers.broker")
    app = create_client_app(settings)
    try:
        arguments = server_broker_config(servers).queue_arguments
        facts = inspect_rabbitmq(app, ALL_QUEUES, arguments)
    finally:
        app.close()
    where = f"RabbitMQ at {strip_password(servers.broker)}"
    _check_version(where, facts.version, _MIN_RABBITMQ)
    if facts.mismatched_queues:
        raise SkillbusError(
            f"{where}: {', '.join(facts.mismatched_queues)}: not durable quorum queues: stop the "
            "workers, delete the queues, restart; the reconciler resends their messages"
        )
    missing = (
        f", not declared yet: {', '.join(facts.missing_queues)}" if facts.missing_queues else ""
    )
    return f"{where}, version {facts.version}{missing}"


def _check_redis(servers: ServerSettings, setting: str) -> str:
    where = f"Redis at {strip_password(servers.redis)}"
    found = redis_connection.health(servers)
    _check_version(where, found["version"], _MIN_REDIS)
    problems = []
    if found["evicts"]:
        problems.append(
            "accepted work can be evicted when memory is full: set maxmemory-policy noeviction"
        )
    if not found["persists"]:
        problems.append("accepted work is lost on restart: set appendonly yes")
    if problems:
        raise SkillbusError(f"{where} ({setting}): {'; '.join(problems)}")
    return f"{where}, version {found['version']}, {found['used_bytes'] / 1e6:.0f} MB used"


def _check_version(where: str, version: str, minimum: tuple[int, int]) -> None:
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < minimum:
        wanted = ".".join(map(str, minimum))
        raise SkillbusError(
            f"{where} is version {version or 'unknown'}: {wanted} or later is needed"
        )


def _check_clock(servers: ServerSettings) -> str:
    ahead = redis_connection.measure_clock_skew(servers)
    skew = f"this machine is {abs(ahead):.1f} s {'behind' if ahead > 0 else 'ahead of'} Redis"
    if abs(ahead) > _MAX_SKEW_SECONDS:
        raise SkillbusError(f"clock skew: {skew}; synchronise both with NTP")
    return skew


def _check_elasticsearch(settings: Settings, identity: EncoderIdentity) -> str:
    found = index_health(settings.servers, identity.model, identity.dimension)
    if found.problems:
        raise SkillbusError("; ".join(found.problems))
    old = f", superseded: {', '.join(found.superseded)}" if found.superseded else ""
    return (
        f"version {found.version}, {found.status}, {found.index} with {found.documents} revisions "
        f"in {found.bytes / 1e6:.0f} MB{old}"
    )


def _check_neo4j(settings: Settings) -> str:
    with ExitStack() as stack:
        graph = Neo4jSkillGraph(settings.servers, writable=False)
        stack.callback(graph.close)
        found = graph.health()
        outdated = describe_outdated(graph) if "counts" in found else ""
    where = f"Neo4j at {found['address']}"
    if not found["reachable"]:
        raise SkillbusError(found["problem"])
    _check_version(where, found["version"], _MIN_NEO4J)
    if "problem" in found:
        raise SkillbusError(found["problem"])
    if found["schema"] != found["schema_wanted"]:
        what = (
            "update skillbus"
            if found["schema"] > found["schema_wanted"]
            else ("start a worker of this version; it migrates the schema")
        )
        raise SkillbusError(
            f"{where} has schema {found['schema']}, this version of skillbus reads "
            f"{found['schema_wanted']}: {what}"
        )
    counts = found["counts"]
    return (
        f"{found['version']} {found['edition']}, schema {found['schema']}, "
        f"{counts['published']} skills published, {counts['waiting']} waiting, "
        f"{counts['failed']} failed{outdated}"
    )


def _check_workers(settings: Settings) -> str:
    with ExitStack() as stack:
        coordinator = open_coordinator(settings, stack, lambda _: 0, unique_process_name())
        alive = coordinator.get_worker_queues()
        error = coordinator.task_error
    consumed = {queue for queues in alive.values() for queue in queues}
    if not settings.language_model.offline_stages:
        consumed.add(REFINE.queue)  # without offline stages nothing is sent to it
    unconsumed = [queue.removeprefix("skillbus.") for queue in ALL_QUEUES if queue not in consumed]
    if not alive:
        raise SkillbusError("no worker is running: start `skillbus worker`")
    if unconsumed:
        raise SkillbusError(
            f"no worker consumes {', '.join(unconsumed)}: "
            f"start `skillbus worker --queues {','.join(unconsumed)}`"
        )
    if error:
        raise SkillbusError(f"processing is stalled: {error}")
    return f"{len(alive)} running, every queue consumed"


def _check_revisions(settings: Settings, identity: EncoderIdentity) -> str:
    with ExitStack() as stack:
        index = open_index(settings, stack, writable=False, identity=identity)
        found = compare_with_index(open_graph(settings, stack, writable=False), index)
    if found.missing:
        raise SkillbusError(
            f"the search index lacks {format_count(len(found.missing), 'published revision')}, "
            f"such as {min(found.missing)}: a worker on `maintain` re-ingests them within "
            f"{settings.workers.sweep_seconds:g} s (workers.sweep_seconds); otherwise see its log"
        )
    return (
        f"all {found.published} published revisions are indexed; {found.others} more are "
        "superseded or unpublished"
    )


def _check_journal(settings: Settings) -> str:
    with ExitStack() as stack:
        journal = open_journal(settings, stack, writable=True)
        events, queries = journal.count_open_jobs("event"), journal.count_open_jobs("query")
        age = max(journal.get_oldest_job_age("event"), journal.get_oldest_job_age("query"))
    opened = f"{format_count(events, 'event')} and {format_count(queries, 'query')}"
    limits = settings.workers
    if events >= limits.open_events or queries >= limits.open_queries:
        raise SkillbusError(
            f"{opened} open, new ones are rejected: start more workers, or raise "
            "workers.open_events and workers.open_queries"
        )
    return f"{opened} open, oldest {age:.0f} s"


def _check_dead_letters(settings: Settings) -> str:
    with ExitStack() as stack:
        return check_dead_letters(open_journal(settings, stack, writable=True))


def _check_sources(settings: Settings) -> str:
    with ExitStack() as stack:
        found = open_graph(settings, stack, writable=False).list_sources()
    not_local = [
        source.source_id
        for source in found
        if source.kind == "directory" and identify_folder(Path(source.root)) is None
    ]
    never_synced = [source.source_id for source in found if not source.last_success]
    problems = fetch_failures(found) + find_unknown_sources(settings, found)
    if never_synced:
        problems.append(
            f"{', '.join(never_synced)}: never synced; does the folder exist on the machines "
            "whose workers consume plan and ingest?"
        )
    if problems:
        raise SkillbusError("; ".join(problems))
    remark = f", {', '.join(not_local)} not on this machine" if not_local else ""
    return f"{format_count(len(found), 'source')}{remark}"
