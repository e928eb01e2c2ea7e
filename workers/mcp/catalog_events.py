"""Notifications of changed skills for `subscriptions/listen`, from the catalog's change feed.

The feed is polled while a client listens, by one task for all clients. Changes between two polls,
such as those of a sync, are one notification.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass
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
from skills.access import Reader
from skills.record import get_source_id
from skills.skill_uri import SKILL_FILE, SkillPlace, UriError, list_outer_ids, parse_skill_uri
from workers.library.skill_reader import SkillReader
from workers.mcp.query_runner import ThreadRunner

log = structlog.get_logger()

POLL_SECONDS = 1.0

Listener = Callable[[ServerEvent], None]


@dataclass(slots=True, eq=False)
class _Stream:
    """An open stream. uris: those that it watches. listener: None before it has subscribed."""

    reader: Reader
    uris: frozenset[str]
    listener: Listener | None = None


_STREAM: ContextVar[_Stream] = ContextVar("stream")
"""The stream that is being opened: the SDK's handler subscribes without its request."""


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
        self._streams: set[_Stream] = set()
        self._sources: dict[Reader, frozenset[str]] = {}
        self._epoch: int | None = None
        self._reviewed = 0
        self._polling: asyncio.Task[None] | None = None

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return len(self._streams)

    @asynccontextmanager
    async def open_stream(self, reader: Reader, uris: Iterable[str]) -> AsyncIterator[None]:
        """Count a stream and the URIs that it watches, and poll while a stream is open.

        The listener that subscribes inside the context is notified of changes that the reader may
        see. Every change after the start of the context is published. Raises TransientError if the
        catalog does not answer.
        """
        stream = _Stream(reader, frozenset(filter(_is_watchable, uris)))
        token = _STREAM.set(stream)
        self._streams.add(stream)
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
                # Without the context of this stream, whose trace would get the spans of all polls.
                self._polling = asyncio.create_task(
                    self._poll(), name="skillbus-mcp-changes", context=Context()
                )
            yield
        finally:
            _STREAM.reset(token)
            self._streams.discard(stream)
            if all(one.reader != reader for one in self._streams):
                self._sources.pop(reader, None)
            if not self._streams:
                self._stop_polling()

    @override
    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Register the listener of the stream that is being opened."""
        stream, unsubscribe = _STREAM.get(), super().subscribe(listener)
        stream.listener = listener

        def forget() -> None:
            stream.listener = None
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
        if changes.epoch == self._epoch and not is_reviewed:
            return
        found: dict[Reader, list[ServerEvent]] = {}
        sources: dict[Reader, frozenset[str]] = {}
        for reader in {one.reader for one in self._streams}:
            uris = {uri for one in self._streams if one.reader == reader for uri in one.uris}
            sources[reader] = await self._run_in_thread(partial(self._list_sources, reader), True)
            moved = self._sources.get(reader, sources[reader]) ^ sources[reader]
            find = partial(self._find_events, reader, uris, changes.pointers, moved, is_reviewed)
            found[reader] = await self._run_in_thread(find, True)
        # Only now: after a failure, the next poll finds all of it again.
        self._epoch, self._reviewed = changes.epoch, reviewed
        self._sources |= {one: sources[one] for one in sources.keys() & self._sources.keys()}
        for reader, events in found.items():
            for event in events:
                self._send(reader, event)
                await checkpoint()  # so that streams can send one event before the next

    def _send(self, reader: Reader, event: ServerEvent) -> None:
        for stream in list(self._streams):
            if stream.reader == reader and stream.listener is not None:
                stream.listener(event)

    def _find_events(
        self,
        reader: Reader,
        uris: Iterable[str],
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
        places = {uri: parse_skill_uri(uri) for uri in sorted(uris)}
        named = {one.skill_id for found in places.values() for one in found}
        whole = {one.skill_id for found in places.values() for one in found if _is_whole(one)}
        # Of a source that is hidden now, only watched skills without a change: the reader could see
        # their current state before.
        changed |= {one for one in named - pointers.keys() if get_source_id(one) in moved}
        changed = {
            one for one in changed if one in named or not whole.isdisjoint(list_outer_ids(one))
        }
        gone = {one for one in changed if pointers.get(one) == 0}
        shown = gone.union(self._skill_reader.read_allowed(sorted(changed - gone)))
        outer = {folder for one in shown for folder in list_outer_ids(one)}
        updated = (
            uri
            for uri, found in places.items()
            if any(
                one.skill_id in shown or (_is_whole(one) and one.skill_id in outer) for one in found
            )
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


def _is_whole(place: SkillPlace) -> bool:
    """Return whether a place is a skill with the skills inside it, not a single file of it."""
    return place.rest in ((), (SKILL_FILE,))
