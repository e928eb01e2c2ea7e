"""Functions that mark skills for linking if their links differ from those that outcomes imply.

The catalog stores the last processed change of outcomes, so that a crash loses no change, and
several workers process none twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import structlog

from graph.links.dismissed_links import DismissedLinks
from graph.links.learned_links import LearnedLinks, is_learned, owners_of_outdated_weights
from graph.protocol import SkillGraph
from graph.records import LinkInput
from skills.batches import batches
from tasks.services import Services

log = structlog.get_logger()

_OFF = "off"
_BATCH_SKILLS = 1_000


def has_unread_outcomes(services: Services) -> bool:
    """Return whether outcomes, or the settings of learning, changed since links were last
    compared."""
    learned = services.learned_links
    state = services.graph.get_input_version(LinkInput.OUTCOMES)
    if learned is None:
        return state not in ("", _OFF)
    origin, epoch = _split(state)
    last = services.outcomes.get_epoch()
    if origin != learned.describe_origin():
        return bool(epoch or last)
    # A lower epoch is that of another store: the store that links were compared with is gone.
    return last != epoch


def mark_for_outcomes(services: Services) -> int:
    """Read the changed outcomes, and mark the skills whose links they change; returns how many were
    marked. Call it before linking, in the task that links."""
    graph, learned = services.graph, services.learned_links
    state = graph.get_input_version(LinkInput.OUTCOMES)
    if learned is None:
        if state in ("", _OFF):
            return 0
        marked = _mark(graph, None, _list_published(graph))
        graph.set_input_version(LinkInput.OUTCOMES, _OFF)
        return marked
    touched, since = learned.refresh()
    now = f"{learned.describe_origin()} {learned.index.epoch}"
    if now == state or (state in ("", _OFF) and not learned.index.epoch):
        return 0
    origin, epoch = _split(state)
    # The changes read just now cover all unprocessed ones if the stored epoch is not before
    # `since`.
    is_known = origin == learned.describe_origin() and epoch <= learned.index.epoch
    is_covered = since and is_known and epoch >= since
    marked = _mark(graph, learned, touched if is_covered else _list_published(graph))
    graph.set_input_version(LinkInput.OUTCOMES, now)
    return marked


def _split(state: str) -> tuple[str, int]:
    """Return the origin and the epoch of a stored state."""
    origin, _, epoch = state.rpartition(" ")
    return origin, int(epoch) if epoch.isdigit() else 0


def _list_published(graph: SkillGraph) -> list[str]:
    return [entry.skill_id for entry in graph.get_entries() if entry.seq]


def _mark(graph: SkillGraph, learned: LearnedLinks | None, skill_ids: Iterable[str]) -> int:
    marked: set[str] = set()
    for batch in batches(sorted(skill_ids), _BATCH_SKILLS):
        marked |= find_outdated(graph, learned, batch)
    if marked:
        graph.mark_for_linking(sorted(marked))
        log.info("links are computed again: outcomes changed", skills=len(marked))
    return len(marked)


def find_outdated(
    graph: SkillGraph, learned: LearnedLinks | None, skill_ids: Sequence[str]
) -> set[str]:
    """Return the owners of links with these skills that differ from those that outcomes imply."""
    dismissed = DismissedLinks(graph.list_dismissed_links())
    stored = graph.get_links(skill_ids)
    wanted = learned.find_links(skill_ids) if learned else {}
    owners: set[str] = set()
    for skill_id in skill_ids:
        known = {link for link in stored[skill_id] if is_learned(link)}
        owners.update(
            link.owner for link in known ^ set(dismissed.drop_from(wanted.get(skill_id, ())))
        )
        owners |= owners_of_outdated_weights(stored[skill_id], learned)
    return owners
