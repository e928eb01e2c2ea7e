"""Copies superseded and withdrawn revisions to the history before their last pointer is gone.

The published revision is in the index only. It is copied to the history before the catalog's
pointer moves, so that a crash in between leaves it in both, and again before the reconciler deletes
it from the index, in case the first copy failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graph.records import CatalogEntry
from search.revision_history import KeptRevision
from skills.batches import batches
from skills.record import RevisionKey
from tasks.services import Services

_BATCH = 64
_MAX_AT_ONCE = 256
"""Maximum withdrawn skills whose revisions are copied at once; the reconciler copies larger
sets."""


def keep_superseded(services: Services, entries: Sequence[CatalogEntry]) -> None:
    """Copy the published revisions of these entries to the history; idempotent."""
    published = {entry.key: entry.updated for entry in entries}
    _copy(services, {key: when for key, when in published.items() if key.seq}, {})


def keep_orphans(
    services: Services, keys: Sequence[RevisionKey], published: Mapping[str, str]
) -> None:
    """Copy revisions that are about to be deleted from the index.

    published: published content hash by skill_id. A revision with this content is not copied: it is
    the published content before a language model completed it.
    """
    _copy(services, dict.fromkeys(keys, 0.0), published)


def withdraw(services: Services, keys: Sequence[RevisionKey]) -> list[str]:
    """Withdraw pointers older than the keys' seqs, and keep the revisions that they pointed to.

    Returns the skills that were withdrawn.
    """
    if services.history is not None and 0 < len(keys) <= _MAX_AT_ONCE:
        keep_superseded(services, services.graph.get_entries([key.skill_id for key in keys]))
    return services.graph.remove(keys)


def _copy(
    services: Services, keys: Mapping[RevisionKey, float], published: Mapping[str, str]
) -> None:
    """Copy revisions from the index; those that it lacks are left out.

    keys: keys with their times of publication.
    """
    if services.history is None:
        return
    for batch in batches(keys, _BATCH):
        services.coordinator.yield_to_queries()
        known = services.history.find_kept(batch)
        stored = services.index.get_revisions([key for key in batch if key not in known])
        services.history.keep(
            [
                KeptRevision(key, one.content_hash, one.parsed, keys[key])
                for key, one in stored.items()
                if one.content_hash != published.get(key.skill_id)
            ]
        )
