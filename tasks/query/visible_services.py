"""The services of a query whose asker may not see the skills of all sources."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from graph.protocol import SkillGraph
from graph.visible_graph import VisibleGraph
from search.protocol import SearchIndex
from search.visible_index import VisibleIndex
from tasks.services import Services


def restrict_services(services: Services, visible: frozenset[str] | None) -> Services:
    """These services with stores that hold the skills of the visible sources alone.

    Whatever a stage reads through them, it cannot meet a hidden skill. Returned unchanged for None,
    which is all sources.
    """
    if visible is None:
        return services
    # They have the methods that a query calls, and none that changes the library.
    return replace(
        services,
        graph=cast(SkillGraph, VisibleGraph(services.graph, visible)),
        index=cast(SearchIndex, VisibleIndex(services.index, visible)),
        library=services.library.restricted_to(visible),
    )
