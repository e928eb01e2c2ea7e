"""Dismissal of links between skills, and its removal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from config.errors import NotFoundError
from graph.protocol import SkillGraph
from graph.records import DismissedLink, LinkKey, LinkType, link_key
from workers.library.reasons import check_reason
from workers.library.skill_reader import require_entry


def dismiss_link(graph: SkillGraph, key: LinkKey, reason: str) -> DismissedLink:
    """Dismiss a link that exists, or change the reason of a dismissal.

    Raises NotFoundError if the link or a skill does not exist, UsageError for a reason that is
    empty, too long or holds control characters.
    """
    check_reason(reason, "a dismissal")
    key = link_key(*key)
    if all(one.key != key for one in graph.list_dismissed_links()):
        _require_link(graph, key)
    dismissed = DismissedLink(*key, reason.strip(), time.time())
    graph.dismiss_link(dismissed)
    return dismissed


def restore_link(graph: SkillGraph, key: LinkKey) -> None:
    """Remove a dismissal; raises NotFoundError if there is none."""
    if not graph.restore_link(key):
        raise NotFoundError(
            f"the {key.type.value} link from {key.source} to {key.target} is not dismissed; "
            "`skillbus links dismissed` lists those that are"
        )


def _require_link(graph: SkillGraph, key: LinkKey) -> None:
    for skill_id in key[:2]:
        require_entry(graph, skill_id)
    links = graph.get_links_among([key.source, key.target])
    if all(link.key != key for link in links):
        raise NotFoundError(
            f"no {key.type.value} link from {key.source} to {key.target}"
            f"{_name_others(sorted({_describe(link.source, link.type) for link in links}))}; "
            f"`skillbus skills show {key.source}` lists its links"
        )


def _name_others(others: Sequence[str]) -> str:
    return f", only {', '.join(others)}" if others else ""


def _describe(source: str, kind: LinkType) -> str:
    return f"{kind.value} from {source}" if kind.is_directed else kind.value
