"""Directories that may become sources, when somebody asks for it over a network."""

from __future__ import annotations

from workers.backend.channel import Channel
from workers.http.access import OWN, Caller
from workers.library import source_roots


def check_root(channel: Channel, caller: Caller, source_id: str, root: str) -> str:
    """A directory as a caller may name it for a source; raises UsageError for any other.

    The user may name any.
    """
    if caller is OWN:
        return root
    allowed = channel.settings.gateway.roots
    return source_roots.check_root(channel.graph, source_id, root, allowed, "gateway.roots")
