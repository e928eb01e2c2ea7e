"""Linking: bring the links of marked skills, and of whom that concerns, up to the library.

What each skill owns is a function of the library (`links_of`). A skill that changes is marked by
the catalog together with everyone who has a link to it or mentions its name; whose lists it newly
enters is found here. One process links at a time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from graph.links.link_rules import (
    DEFAULT_LINK_SETTINGS,
    SIMILARITY_LINK_TYPES,
    Booleans,
    LinkSettings,
    ResolvedNames,
    ScoredLink,
    as_owned_links,
    build_links,
    is_declared,
    rank_key,
    select_top_links,
)
from graph.links.similarity_index import SimilarityIndex, SimilarityScores
from graph.protocol import SkillGraph
from graph.records import Link, LinkFeatures, LinkType
from graph.skill_names import lookup_keys

__all__ = ["DEFAULT_LINK_SETTINGS", "LinkReport", "LinkSettings", "Linker", "relink"]

_EVERYTHING = 1 << 40

_Moves = dict[str, ScoredLink | None]
"""By skill, the link that it has now, None where it has none."""


@dataclass(frozen=True, slots=True)
class LinkReport:
    """What one run of linking did.

    linked: skills whose marks were served; neighbours: others whose lists changed with them;
    links: how many links of each type all of these own now.
    """

    linked: int = 0
    updated_neighbours: int = 0
    links: Mapping[LinkType, int] = field(default_factory=dict)


class Linker:
    """Links what the catalog has marked; keeps the pool of candidates between runs."""

    def __init__(self, graph: SkillGraph, settings: LinkSettings = DEFAULT_LINK_SETTINGS) -> None:
        self._graph = graph
        self._settings = settings
        self._pool = SimilarityIndex(settings)

    def relink(self, marks: Sequence[tuple[str, int]]) -> LinkReport:
        """Link these skills and everyone whose lists they enter, leave or move in; clears their
        marks.

        A mark that has moved in the meantime stays, and its skill is linked again.
        """
        if not marks:
            return LinkReport()
        self._pool.refresh(self._graph)
        marked = self._graph.get_link_features([skill_id for skill_id, _ in marks])
        pending = {
            skill_id for skill_id, _ in self._graph.list_awaiting_linking(_EVERYTHING)
        } | marked.keys()
        waiting = self._pool.mask(pending)
        resolve = self._resolve(marked.values())
        current_links = self._graph.get_links(list(marked))
        links: dict[str, list[Link]] = {}
        moves: defaultdict[str, _Moves] = defaultdict(dict)
        for skill_id, facts in marked.items():
            scores = self._pool.score(facts)
            best = scores.best()
            listed = _listing(skill_id, current_links[skill_id], pending)
            links[skill_id] = build_links(facts, best, resolve[facts.source_id], self._settings)
            for owner, now in _moves(skill_id, scores, listed, waiting).items():
                moves[owner][skill_id] = now
        links |= self._moved(moves)
        self._graph.replace_links(links, marks)
        return LinkReport(
            linked=len(marked),
            updated_neighbours=len(links) - len(marked),
            links=dict(Counter(link.type for owned in links.values() for link in owned)),
        )

    def _moved(self, moves: Mapping[str, _Moves]) -> dict[str, list[Link]]:
        """What each of these skills owns once the moves are made in its lists."""
        owned = self._graph.get_owned_links(sorted(moves)) if moves else {}
        moved: dict[str, list[Link]] = {}
        beyond: list[str] = []
        for owner, links in owned.items():
            named, scored = _parted(links)
            now = _after(scored, moves[owner], self._settings)
            moved[owner] = [*named, *as_owned_links(owner, now or ())]
            if now is None:
                beyond.append(owner)
        for owner, facts in (self._graph.get_link_features(beyond) if beyond else {}).items():
            best = select_top_links(self._pool.score(facts).best(), self._settings)
            moved[owner] += as_owned_links(owner, best)
        return moved

    def _resolve(self, owners: Iterable[LinkFeatures]) -> dict[str, ResolvedNames]:
        """Whom every mentioned name stands for, by source."""
        names: defaultdict[str, set[str]] = defaultdict(set)
        whole: set[str] = set()
        for facts in owners:
            names[facts.source_id].update(
                key for mention in facts.mentions for key in lookup_keys(mention.name)
            )
            whole.update(m.name for m in facts.mentions if is_declared(m) and ":" in m.name)
        declared = self._graph.get_link_features(sorted(whole)) if whole else {}
        return {
            source_id: ResolvedNames(self._graph.find_by_name(source_id, sorted(keys)), declared)
            for source_id, keys in names.items()
        }


def relink(
    graph: SkillGraph,
    marks: Sequence[tuple[str, int]],
    settings: LinkSettings = DEFAULT_LINK_SETTINGS,
) -> LinkReport:
    """`Linker.relink` with a pool of its own; who links more than once keeps a `Linker`."""
    return Linker(graph, settings).relink(marks)


def _listing(
    skill_id: str, links: Iterable[Link], pending: Set[str]
) -> dict[str, tuple[LinkType, float, str]]:
    """Who has this skill in a list, with type, weight and evidence of the link; who is pending
    has a turn of its own."""
    return {
        link.owner: (link.type, link.weight, link.evidence)
        for link in links
        if link.target == skill_id
        and link.type in SIMILARITY_LINK_TYPES
        and link.owner not in pending
    }


def _moves(
    skill_id: str,
    scores: SimilarityScores,
    listed: Mapping[str, tuple[LinkType, float, str]],
    waiting: Booleans,
) -> _Moves:
    """By owner, this skill's link in the owner's lists where another is stored, or none."""
    now = scores.links_entering(waiting) | scores.links_with(listed)
    turned = {owner: one._replace(skill_id=skill_id) for owner, one in now.items()}
    return {
        owner: turned.get(owner)
        for owner in now.keys() | listed.keys()
        if owner not in listed or owner not in now or _stored_values(now[owner]) != listed[owner]
    }


def _stored_values(one: ScoredLink) -> tuple[LinkType, float, str]:
    """What is stored of a link between two skills: the weight may stay while its evidence moves."""
    return one.type, one.weight, one.evidence


def _parted(links: Iterable[Link]) -> tuple[list[Link], list[ScoredLink]]:
    """A skill's own links, those from names and those from scores."""
    named: list[Link] = []
    scored: list[ScoredLink] = []
    for link in links:
        if link.type in SIMILARITY_LINK_TYPES:
            scored.append(ScoredLink(link.type, link.weight, link.target, link.evidence))
        else:
            named.append(link)
    return named, scored


def _after(
    listed: Sequence[ScoredLink], moves: _Moves, settings: LinkSettings
) -> list[ScoredLink] | None:
    """The lists after some skills moved in them; None when one not listed might follow up.

    Whoever a full list left out stands behind its last place, so that what stands before that
    place is known without looking at anybody else.
    """
    best: list[ScoredLink] = []
    for kind in SIMILARITY_LINK_TYPES:
        before = [one for one in listed if one.type is kind]
        kept = [one for one in before if one.skill_id not in moves]
        came = [one for one in moves.values() if one is not None and one.type is kind]
        after = sorted([*kept, *came], key=rank_key)[: settings.max_links(kind)]
        if len(before) >= settings.max_links(kind):
            last = max(map(rank_key, before))
            if len(after) < len(before) or rank_key(after[-1]) > last:
                return None
        best += after
    return best
