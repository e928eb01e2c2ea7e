"""Parts of pages that open browsers load every few seconds, rendered once for readers with the same
rights, so that many open consoles take no more processor time than one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from markupsafe import Markup

from workers.http.authentication import Caller

KEPT_SECONDS = 2.0
"""Age up to which a fragment is sent again instead of rendered."""

_MAX_FRAGMENTS = 500


@dataclass(slots=True)
class _Fragment:
    """A fragment, "" until it is rendered. at: monotonic time at which rendering started."""

    html: Markup = field(default_factory=Markup)
    at: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)


class SharedFragments:
    """Cache of the newest fragments; threads may share it."""

    def __init__(self) -> None:
        self._fragments: dict[Hashable, _Fragment] = {}
        self._lock = threading.Lock()

    def get(
        self, caller: Caller, name: Hashable, render: Callable[[], Markup], *, fresh: bool = False
    ) -> Markup:
        """Return a fragment: a recent one for a caller with the same rights,
        or a new one of `render`.

        render: its result may depend only on the rights of the caller and on `name`. fresh: render
        it now. If several threads need a new fragment, one renders it.
        """
        fragment = self._find((_get_rights(caller), name))
        asked = time.monotonic()
        with fragment.lock:
            if fragment.at < asked - (0.0 if fresh else KEPT_SECONDS):
                started = time.monotonic()
                fragment.html = render()
                fragment.at = started
            return fragment.html

    def _find(self, key: Hashable) -> _Fragment:
        with self._lock:
            if key not in self._fragments and len(self._fragments) >= _MAX_FRAGMENTS:
                oldest = time.monotonic() - KEPT_SECONDS
                self._fragments = {n: one for n, one in self._fragments.items() if one.at > oldest}
            return self._fragments.setdefault(key, _Fragment())


def _get_rights(caller: Caller) -> Hashable:
    """Return the key of a caller's view: admins see the same, other callers also their own jobs."""
    own = "" if caller.is_admin else caller.name
    return caller.scope, caller.groups, own
