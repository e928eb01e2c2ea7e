"""Linking: recompute the links of marked skills, and of the skills whose lists they change.

The links of a skill are a function of the library (`build_links`). When a skill changes, the
catalog marks it with all skills that own a link to it or mention its name; the skills whose lists
it newly enters are found here. One process links at a time.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
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

_NO_LIMIT = 1 << 40

VERDICT_EVIDENCE = "language model "
"""The evidence of links from verdicts begins so; that of others begins with a kind of mention, or
with how alike texts are."""

VerdictLinks = Callable[[Sequence[str]], Mapping[str, Sequence[Link]]]
"""Returns by skill the links from verdicts of a language model that start or end at it; every id
has a list. Those of a type that is also scored end at their owner, so that they are apart from its
scored ones, which start there."""

_Moves = dict[str, ScoredLink | None]
"""By skill, its new link in a list, None if it leaves the list."""


@dataclass(frozen=True, slots=True)
class LinkReport:
    """Result of one run of linking.

    linked: marked skills that were linked. updated_neighbours: other skills whose lists changed.
    links: number of links of each type that all of these own now.
    """

    linked: int = 0
    updated_neighbours: int = 0
    links: Mapping[LinkType, int] = field(default_factory=dict)


class Linker:
    """Links the skills that the catalog has marked; keeps the similarity index between runs."""

    def __init__(
        self,
        graph: SkillGraph,
        settings: LinkSettings = DEFAULT_LINK_SETTINGS,
        verdict_links: VerdictLinks | None = None,
    ) -> None:
        """verdict_links: None without a language model."""
        self._graph = graph
        self._settings = settings
        self._verdict_links = verdict_links
        self._index = SimilarityIndex(settings)
        self._lock = threading.Lock()

    def relink(self, marks: Sequence[tuple[str, int]]) -> LinkReport:
        """Link these skills, update the lists that they enter, leave or move in, clear their marks.

        marks: (skill_id, epoch) as of `list_awaiting_linking`. A mark that was renewed in the
        meantime stays, so that its skill is linked again.
        """
        if not marks:
            return LinkReport()
        with self._lock:
            return self._relink(marks)

    def _relink(self, marks: Sequence[tuple[str, int]]) -> LinkReport:
        self._index.refresh(self._graph)
        marked = self._graph.get_link_features([skill_id for skill_id, _ in marks])
        pending = {
            skill_id for skill_id, _ in self._graph.list_awaiting_linking(_NO_LIMIT)
        } | marked.keys()
        waiting = self._index.mask(pending)
        resolve = self._resolve(marked.values())
        current_links = self._graph.get_links(list(marked))
        verdicts = self._verdict_links(list(marked)) if self._verdict_links else {}
        links: dict[str, list[Link]] = {}
        moves: defaultdict[str, _Moves] = defaultdict(dict)
        for skill_id, features in marked.items():
            scores = self._index.score(features)
            best = scores.best()
            listed = _lists_with(skill_id, current_links[skill_id], pending)
            links[skill_id] = build_links(
                features, best, resolve[features.source_id], self._settings
            )
            links[skill_id] += (one for one in verdicts.get(skill_id, ()) if one.owner == skill_id)
            for owner, now in _list_changes(skill_id, scores, listed, waiting).items():
                moves[owner][skill_id] = now
        links |= self._apply_moves(moves)
        self._graph.replace_links(links, marks)
        outdated = _owners_of_outdated(marked, current_links, verdicts)
        if outdated:
            self._graph.mark_for_linking(sorted(outdated))
        return LinkReport(
            linked=len(marked),
            updated_neighbours=len(links) - len(marked),
            links=dict(Counter(link.type for owned in links.values() for link in owned)),
        )

    def find_alike(self, skill_id: str, limit: int) -> list[str]:
        """The published skills whose texts are most alike, best first, ties by skill_id.

        Only those alike enough for a semantic link. Empty for a skill that is not published.
        """
        with self._lock:
            self._index.refresh(self._graph)
            features = self._graph.get_link_features([skill_id]).get(skill_id)
            if features is None:
                return []
            return self._index.score(features).most_alike(limit)

    def _apply_moves(self, moves: Mapping[str, _Moves]) -> dict[str, list[Link]]:
        """All links that each of these skills owns after the moves in its lists."""
        owned = self._graph.get_owned_links(sorted(moves)) if moves else {}
        moved: dict[str, list[Link]] = {}
        beyond: list[str] = []
        for owner, links in owned.items():
            named, scored = _split_by_origin(links)
            now = _move_in_lists(scored, moves[owner], self._settings)
            moved[owner] = [*named, *as_owned_links(owner, now or ())]
            if now is None:
                beyond.append(owner)
        for owner, features in (self._graph.get_link_features(beyond) if beyond else {}).items():
            best = select_top_links(self._index.score(features).best(), self._settings)
            moved[owner] += as_owned_links(owner, best)
        return moved

    def _resolve(self, owners: Iterable[LinkFeatures]) -> dict[str, ResolvedNames]:
        """By source, the skills that the mentions of these owners may refer to."""
        names: defaultdict[str, set[str]] = defaultdict(set)
        whole: set[str] = set()
        for features in owners:
            names[features.source_id].update(
                key for mention in features.mentions for key in lookup_keys(mention.name)
            )
            whole.update(m.name for m in features.mentions if is_declared(m) and ":" in m.name)
        declared = self._graph.get_link_features(sorted(whole)) if whole else {}
        return {
            source_id: ResolvedNames(self._graph.find_by_name(source_id, sorted(keys)), declared)
            for source_id, keys in names.items()
        }


def _owners_of_outdated(
    skill_ids: Iterable[str],
    current_links: Mapping[str, Iterable[Link]],
    verdicts: Mapping[str, Iterable[Link]],
) -> set[str]:
    """The owners whose links from verdicts with these skills differ from the stored ones."""
    owners: set[str] = set()
    for skill_id in skill_ids:
        wanted = verdicts.get(skill_id, ())
        weights = {_place(one): one.weight for one in current_links[skill_id]}
        # A heavier link of a mention stands in the place of the one from the verdict.
        owners.update(one.owner for one in wanted if weights.get(_place(one), 0.0) < one.weight)
        stored = {one for one in current_links[skill_id] if is_from_verdict(one)}
        owners.update(one.owner for one in stored.difference(wanted))
    return owners - set(skill_ids)


def _place(link: Link) -> tuple[str, str, str, LinkType]:
    return (link.owner, link.source, link.target, link.type)


def is_from_verdict(link: Link) -> bool:
    """Whether a link comes from a verdict of a language model."""
    return link.evidence.startswith(VERDICT_EVIDENCE)


def _is_scored(link: Link) -> bool:
    return link.type in SIMILARITY_LINK_TYPES and link.source == link.owner


def _lists_with(
    skill_id: str, links: Iterable[Link], pending: Set[str]
) -> dict[str, tuple[LinkType, float, str]]:
    """By owner, type, weight and evidence of the link by which this skill is in the owner's list.

    Pending owners are left out: their lists are computed in full.
    """
    return {
        link.owner: (link.type, link.weight, link.evidence)
        for link in links
        if link.target == skill_id and _is_scored(link) and link.owner not in pending
    }


def _list_changes(
    skill_id: str,
    scores: SimilarityScores,
    listed: Mapping[str, tuple[LinkType, float, str]],
    waiting: Booleans,
) -> _Moves:
    """By owner, this skill's link in the owner's lists, if it differs from the stored one; None if
    it is not in the lists any more."""
    now = scores.links_entering(waiting) | scores.links_with(listed)
    turned = {owner: one._replace(skill_id=skill_id) for owner, one in now.items()}
    return {
        owner: turned.get(owner)
        for owner in now.keys() | listed.keys()
        if owner not in listed or owner not in now or _stored_values(now[owner]) != listed[owner]
    }


def _stored_values(one: ScoredLink) -> tuple[LinkType, float, str]:
    """The stored values of a link; the evidence may change while the weight does not."""
    return one.type, one.weight, one.evidence


def _split_by_origin(links: Iterable[Link]) -> tuple[list[Link], list[ScoredLink]]:
    """Split the links that a skill owns into those from mentions or verdicts and from scores."""
    named: list[Link] = []
    scored: list[ScoredLink] = []
    for link in links:
        if _is_scored(link):
            scored.append(ScoredLink(link.type, link.weight, link.target, link.evidence))
        else:
            named.append(link)
    return named, scored


def _move_in_lists(
    listed: Sequence[ScoredLink], moves: _Moves, settings: LinkSettings
) -> list[ScoredLink] | None:
    """The lists after these moves; None if a skill that is not listed might move up.

    All skills that a full list left out rank below its last entry, so that the list is known as
    long as no entry falls below that.
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
