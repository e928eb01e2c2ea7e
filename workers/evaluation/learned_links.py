"""Ranking with links learned from given outcomes, which are not written to the library."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from graph.links.dismissed_links import DismissedLinks
from graph.links.learned_links import LearnedLinks, is_learned, without_note
from graph.protocol import LinkStore, SkillGraph
from graph.records import Adjacency, Link, LinkType, Neighbour
from tasks.outcomes.links.links_from_use import LinksFromUse
from tasks.outcomes.protocol import OutcomeStore
from tasks.services import Services


class LearnedGraph:
    """A catalog with the links that linking would write from what was learned. Links that the
    library itself has learned are left out.

    learned: None for no learned links.
    """

    def __init__(self, graph: LinkStore, learned: LearnedLinks | None) -> None:
        self._graph = graph
        self._learned = learned

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    def get_adjacency(self, skill_ids: Sequence[str], fan_out: int) -> dict[str, Adjacency]:
        """Return the rows of `LinkStore.get_adjacency`, with learned links and adapted weights."""
        stored = self._graph.get_links(skill_ids)
        links = {
            skill_id: [without_note(link) for link in stored[skill_id] if not is_learned(link)]
            for skill_id in skill_ids
        }
        if self._learned is not None:
            dismissed = DismissedLinks(self._graph.list_dismissed_links())
            learned = self._learned.find_links(skill_ids)
            links = {
                skill_id: [
                    *map(self._learned.adapt, links[skill_id]),
                    *dismissed.drop_from(learned[skill_id]),
                ]
                for skill_id in skill_ids
            }
        return {
            skill_id: _to_adjacency(skill_id, links[skill_id], fan_out) for skill_id in skill_ids
        }


def _to_adjacency(skill_id: str, links: Iterable[Link], fan_out: int) -> Adjacency:
    neighbours: list[Neighbour] = []
    totals: defaultdict[tuple[LinkType, bool], float] = defaultdict(float)
    for link in links:
        if skill_id not in link.ends:
            continue  # it owns a link between two other skills
        forward = link.source == skill_id
        other = link.target if forward else link.source
        neighbours.append(Neighbour(other, link.type, forward, link.weight))
        totals[link.type, forward] += link.weight
    neighbours.sort(
        key=lambda one: (
            one.type is not LinkType.CONFLICT,
            -one.weight,
            one.type,
            not one.forward,
            one.skill_id,
        )
    )
    return Adjacency(tuple(neighbours[:fan_out]), totals)


def with_learned_links(services: Services, learned: LearnedLinks | None) -> Services:
    """Return services whose queries follow these learned links, and no links that the library
    itself has learned. learned: None for no learned links."""
    return replace(services, graph=cast(SkillGraph, LearnedGraph(services.graph, learned)))


def learn_links(services: Services, store: OutcomeStore) -> LinksFromUse:
    """Return the links learned from a store of outcomes in a library."""
    learned = LinksFromUse(store, services.graph, services.settings.learning)
    learned.refresh()
    return learned
