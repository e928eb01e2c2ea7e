"""Dismissal of links between skills, and its removal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from config.errors import NotFoundError
from graph.protocol import SkillGraph
from graph.records import DismissedLink, LinkPlace, LinkType, place_of
from workers.library.reasons import check_reason
from workers.library.skill_reader import require_entry


def find_dismissed(graph: SkillGraph, skill_id: str) -> list[DismissedLink]:
    """Return the dismissed links that start or end at a skill."""
    return [one for one in graph.list_dismissed_links() if skill_id in (one.source, one.target)]


def dismiss_link(graph: SkillGraph, place: LinkPlace, reason: str) -> DismissedLink:
    """Dismiss a link that exists, or change the reason of a dismissal.

    Raises NotFoundError if the link or a skill does not exist, UsageError for a reason that is
    empty, too long or holds control characters.
    """
    check_reason(reason, "a dismissal")
    place = place_of(*place)
    known = {one for one in find_dismissed(graph, place.source) if one.place == place}
    if not known:
        _require_link(graph, place)
    dismissed = DismissedLink(*place, reason.strip(), time.time())
    graph.dismiss_link(dismissed)
    return dismissed


def restore_link(graph: SkillGraph, place: LinkPlace) -> None:
    """Remove a dismissal; raises NotFoundError if there is none."""
    if not graph.restore_link(place):
        raise NotFoundError(
            f"the {place.type.value} link from {place.source} to {place.target} is not dismissed; "
            "`skillbus links dismissed` lists those that are"
        )


def _require_link(graph: SkillGraph, place: LinkPlace) -> None:
    for skill_id in place[:2]:
        require_entry(graph, skill_id)
    links = graph.get_links_among([place.source, place.target])
    if all(link.place != place for link in links):
        raise NotFoundError(
            f"no {place.type.value} link from {place.source} to {place.target}"
            f"{_name_others(sorted({_describe(link.source, link.type) for link in links}))}; "
            f"`skillbus skills show {place.source}` lists its links"
        )


def _name_others(others: Sequence[str]) -> str:
    return f", only {', '.join(others)}" if others else ""


def _describe(source: str, kind: LinkType) -> str:
    return f"{kind.value} from {source}" if kind.is_directed else kind.value
