"""Parts of pages that open browsers load every few seconds, rendered once for readers with the same
rights: ten consoles that are left open take no more processor time from queries than one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from markupsafe import Markup

from workers.http.authentication import Caller
from workers.http.tokens import TokenScope

KEPT_SECONDS = 2.0
"""Age up to which a fragment is sent again."""

_MAX_FRAGMENTS = 500


@dataclass(slots=True)
class _Fragment:
    """A fragment, "" until it is rendered. at: when, by the monotonic clock."""

    html: Markup = field(default_factory=Markup)
    at: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)


class SharedFragments:
    """The newest fragments; threads may share it."""

    def __init__(self) -> None:
        self._fragments: dict[Hashable, _Fragment] = {}
        self._lock = threading.Lock()

    def get(
        self, caller: Caller, name: Hashable, render: Callable[[], Markup], *, fresh: bool = False
    ) -> Markup:
        """Return a fragment as `render` gives it, or gave it to a caller with the same rights.

        render: its result may depend on the rights of the caller and on `name` only. fresh: render
        it now. Of several threads that need a new one, one renders it.
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
    """Return what decides what a caller sees: admins see the same, others also their own jobs."""
    own = "" if caller.scope >= TokenScope.ADMIN else caller.name
    return caller.scope, caller.groups, own
