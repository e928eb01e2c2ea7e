"""Links in the form that pages list: one for each pair of skills, type and direction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from graph.records import LinkKey, LinkType, link_key


def merge_links(links: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the first link of each key, in their order.

    Both ends may own a link; links of an undirected type are one link, as for a dismissal.
    """
    keys: dict[LinkKey, Mapping[str, Any]] = {}
    for link in links:
        key = link_key(link["source"], link["target"], LinkType(link["type"]))
        keys.setdefault(key, link)
    return list(keys.values())
