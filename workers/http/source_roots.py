"""Directories that may become sources, when somebody asks for it over a network."""

from __future__ import annotations

from workers.backend.store_backend import StoreBackend
from workers.http.access import LOCAL_USER, Caller
from workers.library import allowed_roots


def resolve_root(backend: StoreBackend, caller: Caller, source_id: str, root: str) -> str:
    """A directory as a caller may name it for a source; raises UsageError for any other.

    The user may name any.
    """
    if caller is LOCAL_USER:
        return root
    allowed = backend.settings.gateway.roots
    return allowed_roots.resolve_root(backend.graph, source_id, root, allowed, "gateway.roots")
