"""Cache of the reviews in this process, with checks of the store for changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from config.errors import TransientError
from search.review_store import ReviewStore
from skills.review import NO_REVIEWS, POLICY_KINDS, Reviews

log = structlog.get_logger()

CHECK_SECONDS = 0.5
"""Maximum age in seconds of reviews from a server; reviews in a file are checked each time."""
_PAUSE_SECONDS = 3.0


class ReviewCache:
    """Cache of the reviews that policy needs: waivers and confirmations; thread-safe.

    store: None if there are no reviews. check_seconds: minimum time between checks of the version.
    """

    def __init__(
        self,
        store: ReviewStore | None = None,
        check_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._check_seconds = check_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._reviews: Reviews | None = None
        self._ask_at = float("-inf")

    def get(self) -> Reviews:
        """Return the present reviews; those read last while another thread reads the store.

        If the store does not answer, return those read last, and do not call it for 3 seconds.
        Raises TransientError if none were read: without reviews, skills that a person confirmed as
        harmful would be sent.
        """
        known = self._reviews
        if self._store is None:
            return NO_REVIEWS
        if known is not None and self._clock() < self._ask_at:
            return known
        if not self._lock.acquire(blocking=known is None):
            return known or NO_REVIEWS
        try:
            return self._ask(self._store)
        finally:
            self._lock.release()

    def _ask(self, store: ReviewStore) -> Reviews:
        known, seconds = self._reviews, self._check_seconds
        self._ask_at = float("-inf")
        try:
            if known is None or store.get_version() != known.version:
                known = _keep_for_policy(store.get_all())
        except TransientError as error:
            if known is None:
                raise
            log.warning("reviews could not be read; the last ones are used", reason=str(error))
            seconds = _PAUSE_SECONDS
        self._reviews, self._ask_at = known, self._clock() + seconds
        return known

    def expire(self) -> None:
        """Make the next call read the store in any case."""
        with self._lock:
            self._ask_at = float("-inf")


def _keep_for_policy(reviews: Reviews) -> Reviews:
    """Return the reviews without those about updates, of which each skill of a source may have
    one."""
    kept = {
        skill_id: tuple(one for one in records if one.kind in POLICY_KINDS)
        for skill_id, records in reviews.by_skill.items()
    }
    return Reviews(reviews.version, {skill_id: found for skill_id, found in kept.items() if found})
