"""Links in the form that pages list: one for each pair of skills, type and direction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from graph.records import LinkPlace, LinkType, place_of


def merge_links(links: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the first link of each place, in their order.

    Both ends may own a link; links of an undirected type are one link, as for a dismissal.
    """
    places: dict[LinkPlace, Mapping[str, Any]] = {}
    for link in links:
        place = place_of(link["source"], link["target"], LinkType(link["type"]))
        places.setdefault(place, link)
    return list(places.values())
