"""Notifications of changed skills for `subscriptions/listen`, from the catalog's change feed.

The feed is polled while a client listens, by one task for all clients. Changes between two polls,
such as those of a sync, are one notification.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial

import structlog
from anyio.lowlevel import checkpoint
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
)
from typing_extensions import override

from config.errors import SkillbusError
from skills.access import UNRESTRICTED, Reader
from skills.skill_policy import get_source_id
from skills.skill_uri import SKILL_FILE, UriError, get_inner_prefix, parse_skill_uri
from workers.library.skill_reader import SkillReader
from workers.mcp.query_runner import ThreadRunner

log = structlog.get_logger()

POLL_SECONDS = 1.0

Listener = Callable[[ServerEvent], None]

_READER: ContextVar[Reader] = ContextVar("reader", default=UNRESTRICTED)
"""Reader of the stream that is being opened: the SDK's handler subscribes without its request."""


class CatalogEvents(InMemorySubscriptionBus):
    """Notifies the streams of one server of changed skills."""

    def __init__(
        self,
        skill_reader: SkillReader,
        run_in_thread: ThreadRunner,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        super().__init__()
        self._skill_reader = skill_reader
        self._run_in_thread = run_in_thread
        self._poll_seconds = poll_seconds
        self._watched: Counter[tuple[Reader, str]] = Counter()
        self._readers: dict[Listener, Reader] = {}
        self._streams: Counter[Reader] = Counter()
        self._sources: dict[Reader, frozenset[str]] = {}
        self._epoch: int | None = None
        self._reviewed = 0
        self._polling: asyncio.Task[None] | None = None

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return self._streams.total()

    @asynccontextmanager
    async def open_stream(self, reader: Reader, uris: Iterable[str]) -> AsyncIterator[None]:
        """Count a stream and the URIs that it watches, and poll while a stream is open.

        Listeners that subscribe inside the context are notified of changes that the reader may see.
        Every change after the start of the context is published. Raises TransientError if the
        catalog does not answer.
        """
        watched = [(reader, uri) for uri in uris if _is_watchable(uri)]
        token = _READER.set(reader)
        self._streams[reader] += 1
        self._watched.update(watched)
        try:
            if self._epoch is None:
                epoch = await self._run_in_thread(self._skill_reader.get_epoch, True)
                reviewed = await self._run_in_thread(self._skill_reader.get_review_version, True)
                if self._epoch is None:
                    self._epoch, self._reviewed = epoch, reviewed
            if reader not in self._sources:
                sources = await self._run_in_thread(partial(self._list_sources, reader), True)
                self._sources.setdefault(reader, sources)
            if self._polling is None:
                self._polling = asyncio.create_task(self._poll(), name="skillbus-mcp-changes")
            yield
        finally:
            _READER.reset(token)
            self._streams[reader] -= 1
            self._watched.subtract(watched)
            self._streams += Counter()  # drops readers without an open stream
            self._watched += Counter()
            if reader not in self._streams:
                self._sources.pop(reader, None)
            if not self._streams:
                self._stop_polling()

    @override
    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Register a listener for changes that the reader of its stream may see."""
        unsubscribe = super().subscribe(listener)
        self._readers[listener] = _READER.get()

        def forget() -> None:
            self._readers.pop(listener, None)
            unsubscribe()

        return forget

    def _stop_polling(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
        self._polling, self._epoch = None, None

    async def _poll(self) -> None:
        failed = False
        while True:
            await asyncio.sleep(self._poll_seconds)
            try:
                await self._publish_changes()
                failed = False
            except SkillbusError as error:  # the next poll continues where this one began
                if not failed:
                    log.warning("changes of the catalog are not read", reason=str(error))
                failed = True

    async def _publish_changes(self) -> None:
        changes = await self._run_in_thread(
            partial(self._skill_reader.get_changes_since, self._epoch or 0), True
        )
        reviewed = await self._run_in_thread(self._skill_reader.get_review_version, True)
        is_reviewed = reviewed != self._reviewed
        if changes.epoch != self._epoch or is_reviewed:
            for reader in set(self._readers.values()):
                await self._notify(reader, changes.pointers, is_reviewed)
        # Set last: after a failure, the next poll finds what was not published.
        self._epoch, self._reviewed = changes.epoch, reviewed

    async def _notify(self, reader: Reader, pointers: Mapping[str, int], is_reviewed: bool) -> None:
        """Notify the streams of a reader of the changes for it."""
        sources = await self._run_in_thread(partial(self._list_sources, reader), True)
        moved = self._sources.get(reader, sources) ^ sources
        watched = sorted(uri for one, uri in self._watched if one == reader)
        find = partial(self._find_events, reader, watched, pointers, moved, is_reviewed)
        events = await self._run_in_thread(find, True)
        if reader in self._sources:  # its last stream may have been closed
            self._sources[reader] = sources
        for event in events:
            for listener, one in list(self._readers.items()):
                if one == reader:
                    listener(event)
            await checkpoint()  # so that streams can send one event before the next

    def _find_events(
        self,
        reader: Reader,
        uris: list[str],
        pointers: Mapping[str, int],
        moved: frozenset[str],
        is_reviewed: bool,
    ) -> list[ServerEvent]:
        """Return the notifications for the streams of a reader: only of skills that it may see and
        that the policy does not withhold.

        moved: sources that became visible to the reader, or hidden from it, since the
        last poll. Which skill was reviewed is unknown, so only readers who see all
        sources are notified of reviews.
        """
        skills = self._skill_reader.for_reader(reader)
        changed = skills.select_visible(pointers)
        if not changed and not moved:
            return [ResourcesListChanged()] if is_reviewed and skills.sees_all() else []
        # Of a source that is hidden now, only watched skills without a change: the reader could see
        # their present state before.
        named = {place.skill_id for uri in uris for place in parse_skill_uri(uri)}
        changed |= {one for one in named - pointers.keys() if get_source_id(one) in moved}
        concerned = {uri: ids for uri in uris if (ids := _find_concerned(uri, changed))}
        gone = {one for one, seq in pointers.items() if not seq}
        alive = {one for ids in concerned.values() for one in ids} - gone
        allowed = self._skill_reader.read_allowed(sorted(alive))
        updated = (
            uri
            for uri, ids in concerned.items()
            if any(one in allowed or one in gone for one in ids)
        )
        return [ResourcesListChanged(), *(ResourceUpdated(uri=uri) for uri in updated)]

    def _list_sources(self, reader: Reader) -> frozenset[str]:
        """Return the sources that a reader sees; empty for a reader from
        whom none is ever hidden."""
        if reader.sees_everything:
            return frozenset()
        sources = self._skill_reader.for_reader(reader).list_sources()
        return frozenset(one.source_id for one in sources)


def _is_watchable(uri: str) -> bool:
    with suppress(UriError):
        return bool(parse_skill_uri(uri))
    return False


def _find_concerned(uri: str, changed: Iterable[str]) -> list[str]:
    """Return the changed skills that a URI may belong to, or that lie inside the skill it names."""
    places = parse_skill_uri(uri)
    ids = {place.skill_id for place in places}
    inside = tuple(
        get_inner_prefix(place.skill_id) for place in places if place.rest in ((), (SKILL_FILE,))
    )
    return [one for one in changed if one in ids or one.startswith(inside)]
