"""Fetch: git sources, from the remote's newest commit to the skills that need ingest.

Remotes may be slow, wrong or away: they are asked beside the plan, one at a time, and each within
its own time. Whatever goes wrong removes nothing; it is kept with the source and told in `status`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import structlog
from structlog.contextvars import bound_contextvars

from config.errors import PermanentError, TransientError, UsageError
from config.settings import Settings
from graph.protocol import Source
from skills.events import SourceChanged, new_event, owner
from tasks.bursts import Order, open_orders
from tasks.follow import follow
from tasks.git.mirror import Mirror, check_source, drop_mirror
from tasks.git.reader import open_git_reader
from tasks.plan import fail_all, fail_events, is_fetched, record
from tasks.policies import FETCH, PLAN, Deadline
from tasks.services import Services

log = structlog.get_logger()

ORIGIN = "skillbus/poll"
_HALF_DONE = "the last fetch was interrupted before the library was in step"
_SOONEST_SECONDS = 15.0
_JITTER = 0.1
_TURN_SECONDS = 0.02


def fetch(services: Services, deadline: Deadline, event_ids: Sequence[str]) -> dict[str, object]:
    """Carry out the open events of git sources, each recorded as done or failed.

    One task fetches at a time; whoever else is sent leaves its events to that one.
    """
    done, waiting = 0, list(event_ids)
    seen: set[str] = set()
    while waiting:
        with services.activity.exclusive("fetch") as first:
            if not first:
                break  # the other one looks again once it is done
            found, _ = open_orders(services, deadline, waiting)
            orders = [order for order in found if is_fetched(services.graph, order.content)]
            for order in orders:
                if deadline.remaining() < services.settings.git.seconds:
                    services.send(FETCH.name, order.event_ids)
                    continue
                with bound_contextvars(trace_id=order.trace_ids[0]):
                    done += _carry_out(services, deadline, order)
        seen.update(waiting, *(order.event_ids for order in found))
        again, _ = open_orders(services, deadline, ())
        waiting = [one for order in again for one in order.event_ids if one not in seen]
    return {"events": done}


def _carry_out(services: Services, deadline: Deadline, order: Order) -> int:
    """Carry out an order and record it; returns how many events that were."""
    content = order.content
    if not isinstance(content, SourceChanged):
        return 0
    try:
        _check_owners(services, order)
        outcome = fetch_source(services, deadline, content)
    except TransientError:
        raise  # of a store: what fails at the remote is no such error
    except PermanentError as error:
        log.warning("event failed", event_ids=order.event_ids[:10], reason=str(error))
        fail_all(services, order.event_ids, str(error))
    except Exception as error:  # nobody else may suffer from an order that nothing was made for
        log.exception("event failed unexpectedly", event_ids=order.event_ids[:10])
        fail_events(services, order.event_ids, error)
    else:
        record(services, order, outcome)
        log.info("event carried out", events=len(order.event_ids), **outcome)
    return len(order.event_ids)


def _check_owners(services: Services, order: Order) -> None:
    """Raise UsageError where a token says what is fetched, and with which credential file."""
    for event_id in order.event_ids:
        event = services.journal.job(event_id).event
        content = event.content()
        if isinstance(content, SourceChanged) and content.git is not None and owner(event):
            raise UsageError("git sources are added by `skillbus sources add` alone")


def fetch_source(
    services: Services, deadline: Deadline, content: SourceChanged
) -> dict[str, object]:
    """Fetch a git source and bring the catalog in step with its newest commit.

    Raises PermanentError with what went wrong at the remote, which the source keeps too.
    """
    known = _known(services, content.source_id)
    source = described(known, content)
    started = time.time()
    try:
        commit = _fetched(services, source)
        with _planning(services, deadline):
            if known is not None and _known(services, source.source_id) is None:
                raise PermanentError("the source was removed meanwhile")
            source = replace(source, commit=commit)
            return _follow(services, deadline, known, source, content.paths)
    except TransientError:
        raise
    except PermanentError as error:
        _note_failure(services, known, started, str(error))
        if known is None:
            drop_mirror(source.source_id, services.settings)
        raise PermanentError(f"{source.source_id}: {error}") from None


def _fetched(services: Services, source: Source) -> str:
    """The newest commit, fetched; raises PermanentError when the remote fails in any way, since
    the next poll tries again."""
    started = time.monotonic()
    try:
        check_source(source, services.settings)
        commit = Mirror(source, services.settings).fetch(services.stopping.is_set)
    except TransientError as error:
        if services.stopping.is_set():
            raise
        raise PermanentError(str(error)) from None
    seconds = round(time.monotonic() - started, 3)
    log.info("fetched", source=source.source_id, commit=commit, seconds=seconds)
    return commit


def _follow(
    services: Services,
    deadline: Deadline,
    known: Source | None,
    source: Source,
    paths: Sequence[str],
) -> dict[str, object]:
    """Bring the catalog in step with the source's commit, and look again at what was named."""
    now = time.time()
    source = replace(source, last_attempt=now)
    same = known is not None and replace(source, last_attempt=known.last_attempt) == known
    if same and not paths:
        services.graph.put_source(replace(source, last_success=now))
        found = len(services.graph.cursor(source.source_id))
        return {"found": found, "changed": 0, "removed": 0, "commit": source.commit}
    outcome: dict[str, object] = {}
    with open_git_reader(source, services.settings) as reader:
        if known is None and not reader.scan("").signatures:
            raise PermanentError("no SKILL.md in it; name another branch or folder (--path)")
        # Ingest reads at the commit of the catalog: it stands there before it is asked for.
        begun = replace(source, last_error=_HALF_DONE)
        services.graph.put_source(begun)
        if not same:
            outcome = follow(services, deadline, begun, reader)
        if paths:
            named = follow(services, deadline, begun, reader, paths)
            outcome = outcome or named
    services.graph.put_source(replace(source, last_success=time.time()))
    return outcome | {"commit": source.commit}


@contextmanager
def _planning(services: Services, deadline: Deadline) -> Iterator[None]:
    """Nothing else plans inside the block; raises DeadlineExceededError when it never ends."""
    while True:
        with services.activity.exclusive("plan") as first:
            if first:
                yield
                break
        deadline.check("fetch")
        services.stopping.wait(_TURN_SECONDS)
    # What came meanwhile was turned away.
    waiting = services.journal.open_jobs("event", 1)
    if waiting:
        services.send(PLAN.name, waiting)


def described(known: Source | None, content: SourceChanged) -> Source:
    """The source that an event speaks of; raises UsageError where it contradicts the catalog."""
    if known is not None and known.kind != "git":
        raise UsageError(f"source {known.source_id} is already {known.kind} {known.root}")
    root = content.root or (known.root if known is not None else "")
    if known is not None and root != known.root:
        raise UsageError(
            f"source {known.source_id} is already {known.root}: choose another id, or "
            f"`skillbus sources remove {known.source_id}` first"
        )
    source = known or Source(content.source_id, "git", root)
    source = replace(source, last_error="")
    return source if content.git is None else replace(source, **dict(content.git))


def _known(services: Services, source_id: str) -> Source | None:
    found = (one for one in services.graph.sources() if one.source_id == source_id)
    return next(found, None)


def _note_failure(services: Services, known: Source | None, when: float, reason: str) -> None:
    if known is not None and _known(services, known.source_id) is not None:
        services.graph.put_source(replace(known, last_attempt=when, last_error=reason))


def next_fetch(source: Source, settings: Settings) -> float:
    """When a git source is to be fetched next, in seconds since the epoch.

    Spread by a tenth, differently for each source and time, so that many do not come at once.
    After a failure it is soon, and ever later while failures go on.
    """
    wait = source.poll_seconds or settings.git.poll_seconds
    if source.last_error and source.last_success:
        failing = source.last_attempt - source.last_success
        wait = min(wait, max(_SOONEST_SECONDS, failing))
    salt = f"{source.source_id}|{source.last_attempt}".encode()
    share = int.from_bytes(hashlib.blake2b(salt, digest_size=4).digest()) / 2**32
    return max(source.last_attempt, source.last_success) + wait * (1 + _JITTER * (2 * share - 1))


def poll(services: Services) -> int:
    """Have the git sources fetched whose time has come; returns how many."""
    now, asked = time.time(), 0
    for source in services.graph.sources():
        if source.kind != "git" or next_fetch(source, services.settings) > now:
            continue
        if services.activity.is_due(f"fetch {source.source_id}", _SOONEST_SECONDS):
            event = new_event(SourceChanged(source_id=source.source_id), ORIGIN)
            services.journal.accept(event, "event")
            services.send(FETCH.name, [event.id])
            asked += 1
    return asked
