"""Directories that a caller may add as sources."""

from __future__ import annotations

from workers.backend.store_backend import StoreBackend
from workers.http.authentication import LOCAL_USER, Caller
from workers.library.access import allowed_roots


def resolve_root(backend: StoreBackend, caller: Caller, source_id: str, root: str) -> str:
    """Return the directory of a source, resolved; raises UsageError outside `gateway.roots`.

    The local user may name any directory.
    """
    if caller is LOCAL_USER:
        return root
    allowed = backend.settings.gateway.roots
    return allowed_roots.resolve_root(backend.graph, source_id, root, allowed, "gateway.roots")
