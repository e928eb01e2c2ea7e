"""Directories that may become sources, when somebody asks for it over a network."""

from __future__ import annotations

from pathlib import Path

from config.errors import UsageError
from workers.channel import Channel
from workers.gateway.door import OWN, Caller


def check_root(channel: Channel, caller: Caller, source_id: str, root: str) -> str:
    """A directory as it may be read for a source; raises UsageError for any other.

    The user may name any. A token may name what the source has already, and directories below
    those of `gateway.roots`, links followed.
    """
    if caller is OWN:
        return root
    if any(one.source_id == source_id and one.root == root for one in channel.graph.sources()):
        return root
    refusal = UsageError("root: only directories below those of gateway.roots can become sources")
    try:
        real = Path(root).resolve(strict=True)
        roots = [one.resolve(strict=True) for one in channel.settings.gateway.roots]
    except (OSError, ValueError, RuntimeError):
        raise refusal from None
    if not Path(root).is_absolute() or not any(real.is_relative_to(one) for one in roots):
        raise refusal
    if not real.is_dir():
        raise refusal
    return str(real)
