"""Linking: recomputes the links of marked skills, and of the skills whose lists they change.

The links of a skill are a function of the library (`build_links`). When a skill changes, the
catalog marks it and all skills that own a link to it or mention its name; this module finds the
skills whose lists it newly enters. One process links at a time.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace

from graph.links.audiences import Audiences
from graph.links.dismissed_links import DismissedLinks
from graph.links.learned_links import (
    LearnedLinks,
    get_note,
    get_own_evidence,
    is_learned,
    owners_of_outdated_weights,
)
from graph.links.link_rules import (
    DEFAULT_LINK_SETTINGS,
    SIMILARITY_LINK_TYPES,
    LinkSettings,
    ResolvedNames,
    build_links,
    is_declared,
    rank_key,
    select_top_links,
)
from graph.links.similarity_block import ListKey
from graph.links.similarity_index import SimilarityIndex, SimilarityScores
from graph.protocol import SkillGraph
from graph.records import Link, LinkFeatures
from graph.skill_names import lookup_keys

VERDICT_EVIDENCE = "language model "
"""Start of the evidence of links from verdicts; other evidence begins with a kind of mention or
with a similarity of texts."""

VerdictLinks = Callable[[Sequence[str]], Mapping[str, Sequence[Link]]]
"""Returns skill -> links from verdicts of a language model that start or end at it; every id has a
list. Links of a type that is also scored end at their owner, which distinguishes them from scored
links, which start there."""

_Moves = dict[str, Link | None]
"""Skill -> the new link to it in a list, None if it leaves the list."""


class Linker:
    """Links the skills that the catalog has marked; keeps the similarity index between runs."""

    def __init__(
        self,
        graph: SkillGraph,
        settings: LinkSettings = DEFAULT_LINK_SETTINGS,
        verdict_links: VerdictLinks | None = None,
        learned_links: LearnedLinks | None = None,
    ) -> None:
        """verdict_links: None without a language model. learned_links: None if learning is off."""
        self._graph = graph
        self._settings = settings
        self._verdict_links = verdict_links
        self._learned_links = learned_links
        self._dismissed = DismissedLinks(())
        self._index = SimilarityIndex(settings)
        self._lock = threading.Lock()

    def relink(
        self,
        marks: Sequence[tuple[str, int]],
        before_skill: Callable[[], None] = lambda: None,
        pending: Set[str] | None = None,
        before_batch: Callable[[], None] = lambda: None,
    ) -> None:
        """Link these skills, update the lists that they enter, leave or move in, clear their marks.

        Before, the changes of the library are read; in a new process, all skills. marks:
        (skill_id, epoch) from `list_awaiting_linking`. A mark that was renewed in the meantime
        stays, so that its skill is linked again. before_skill, before_batch: called before each
        skill, and before each batch of skills that is read, so that the caller can yield to other
        work; after an error of `before_batch` the next call goes on with the rest. pending: the
        skills of all marks of the same read, which the caller links in other calls: their lists are
        computed in full there, and not updated here [default: the skills of `marks`].
        """
        if not marks:
            return
        with self._lock:
            self._refresh_index(before_batch)
            self._relink(marks, before_skill, pending or {skill_id for skill_id, _ in marks})

    def _relink(
        self,
        marks: Sequence[tuple[str, int]],
        before_skill: Callable[[], None],
        pending: Set[str],
    ) -> None:
        marked = self._graph.get_link_features([skill_id for skill_id, _ in marks])
        resolve = self._resolve(marked.values())
        self._dismissed = DismissedLinks(self._graph.list_dismissed_links())
        current_links = self._graph.get_links(list(marked))
        found = self._find_given_links(list(marked))
        links: dict[str, list[Link]] = {}
        moves: defaultdict[str, _Moves] = defaultdict(dict)
        for skill_id, features in marked.items():
            before_skill()
            scores = self._index.score(features)
            listed = _lists_with(skill_id, current_links[skill_id], pending)
            own = build_links(
                features,
                self._best(scores),
                resolve[features.source_id],
                self._settings,
                self._index.audiences,
            )
            links[skill_id] = self._adapt(own)
            links[skill_id] += (one for one in found[skill_id] if one.owner == skill_id)
            for owner, now in _list_changes(skill_id, scores, listed, pending).items():
                if now is None or not self._dismissed.covers(owner, skill_id, now.type):
                    moves[owner][skill_id] = now
                elif owner in listed:
                    moves[owner][skill_id] = None
        links |= self._apply_moves(moves)
        self._graph.replace_links(links, marks)
        outdated = self._owners_of_outdated(marked, current_links, found)
        if outdated:
            self._graph.mark_for_linking(sorted(outdated))

    def _refresh_index(self, before_batch: Callable[[], None] = lambda: None) -> None:
        audiences = Audiences(self._graph.read_access().groups)
        if audiences != self._index.audiences:
            self._index = SimilarityIndex(self._settings, audiences)
        self._index.refresh(self._graph, before_batch)

    def find_alike(self, skill_id: str, limit: int) -> list[str]:
        """Return the published skills with the most similar texts, best first, ties by skill_id.

        They are similar enough for a semantic link. Empty for a skill that is not published.
        """
        with self._lock:
            self._refresh_index()
            features = self._graph.get_link_features([skill_id]).get(skill_id)
            if features is None:
                return []
            return self._index.score(features).most_alike(limit)

    def _find_given_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        """Return skill -> links from verdicts and outcomes that start or end at it."""
        found: dict[str, list[Link]] = {skill_id: [] for skill_id in skill_ids}
        verdicts = self._verdict_links(skill_ids) if self._verdict_links else {}
        for skill_id, links in verdicts.items():
            found[skill_id] += self._adapt(links)
        learned = self._learned_links.find_links(skill_ids) if self._learned_links else {}
        for skill_id, links in learned.items():
            found[skill_id] += self._dismissed.drop_from(links)
        return found

    def _adapt(self, links: Iterable[Link]) -> list[Link]:
        """Drop dismissed links, and adapt the weights of the others by outcomes."""
        kept = self._dismissed.drop_from(links)
        return [self._learned_links.adapt(link) for link in kept] if self._learned_links else kept

    def _best(self, scores: SimilarityScores) -> list[Link]:
        """Return candidates for the skill's lists, without dismissed links."""
        return self._dismissed.drop_from(scores.best(self._dismissed.count(scores.owner)))

    def _owners_of_outdated(
        self,
        skill_ids: Iterable[str],
        current_links: Mapping[str, Iterable[Link]],
        wanted: Mapping[str, Iterable[Link]],
    ) -> set[str]:
        """Return the other skills that own outdated links with these skills.

        A link is outdated if it differs from the present result of verdicts and outcomes.
        """
        owners = _owners_of_changed_links(skill_ids, current_links, wanted)
        for skill_id in skill_ids:
            owners |= owners_of_outdated_weights(current_links[skill_id], self._learned_links)
        return owners.difference(skill_ids)

    def _apply_moves(self, moves: Mapping[str, _Moves]) -> dict[str, list[Link]]:
        """Return all links that each of these skills owns after the moves in its lists."""
        owned = self._graph.get_owned_links(sorted(moves)) if moves else {}
        moved: dict[str, list[Link]] = {}
        beyond: list[str] = []
        for owner, links in owned.items():
            others = [link for link in links if not _is_scored(link)]
            scored = [link for link in links if _is_scored(link)]
            # Weights of adapted links are not the similarity of the texts.
            is_adapted = any(map(get_note, scored))
            now = None
            if not is_adapted:
                audiences = self._index.audiences
                now = _move_in_lists(scored, moves[owner], self._settings, audiences)
            moved[owner] = [*others, *self._adapt(now or ())]
            if now is None:
                beyond.append(owner)
        for owner, features in (self._graph.get_link_features(beyond) if beyond else {}).items():
            candidates = self._best(self._index.score(features))
            best = select_top_links(candidates, self._settings, self._index.audiences)
            moved[owner] += self._adapt(best)
        return moved

    def _resolve(self, owners: Iterable[LinkFeatures]) -> dict[str, ResolvedNames]:
        """Return source -> skills to which the mentions of these owners may refer."""
        names: defaultdict[str, set[str]] = defaultdict(set)
        whole: set[str] = set()
        for features in owners:
            names[features.source_id].update(
                key for mention in features.mentions for key in lookup_keys(mention.name)
            )
            whole.update(m.name for m in features.mentions if is_declared(m) and ":" in m.name)
        declared = self._graph.get_link_features(sorted(whole)) if whole else {}
        resolved = {}
        for source_id, keys in names.items():
            found = self._graph.find_by_name(source_id, sorted(keys))
            by_name = {name: sorted(skill_ids) for name, skill_ids in found.items()}
            resolved[source_id] = ResolvedNames(by_name, declared)
        return resolved


def _owners_of_changed_links(
    skill_ids: Iterable[str],
    current_links: Mapping[str, Iterable[Link]],
    wanted_links: Mapping[str, Iterable[Link]],
) -> set[str]:
    """Return the owners of links with these skills that differ from `wanted_links`.

    wanted_links: skill -> links that verdicts and outcomes give.
    """
    owners: set[str] = set()
    for skill_id in skill_ids:
        wanted = wanted_links.get(skill_id, ())
        known = {one.owned_key: one for one in current_links[skill_id]}
        owners.update(one.owner for one in wanted if _is_missing(one, known.get(one.owned_key)))
        stored = {one for one in current_links[skill_id] if is_from_verdict(one) or is_learned(one)}
        owners.update(one.owner for one in stored.difference(wanted))
    return owners


def _is_missing(wanted: Link, stored: Link | None) -> bool:
    """Return whether a wanted link has to be stored: its key has no link, or a lighter one.

    A stored learned link is also replaced if it differs from a wanted learned link.
    """
    if stored is None or stored.weight < wanted.weight:
        return True
    return is_learned(wanted) and is_learned(stored) and stored != wanted


def is_from_verdict(link: Link) -> bool:
    """Return whether a link comes from a verdict of a language model."""
    return get_own_evidence(link).startswith(VERDICT_EVIDENCE)


def _is_scored(link: Link) -> bool:
    return link.type in SIMILARITY_LINK_TYPES and link.source == link.owner


def _lists_with(skill_id: str, links: Iterable[Link], pending: Set[str]) -> dict[str, Link]:
    """Return owner -> link to this skill in the owner's list.

    Pending owners are left out, since their lists are computed in full.
    """
    return {
        link.owner: link
        for link in links
        if link.target == skill_id and _is_scored(link) and link.owner not in pending
    }


def _list_changes(
    skill_id: str,
    scores: SimilarityScores,
    listed: Mapping[str, Link],
    pending: Set[str],
) -> _Moves:
    """Return owner -> link to this skill in the owner's lists, if it differs from the stored link.

    None means that the skill is no longer in the lists. The evidence may change while the weight
    does not.
    """
    found = scores.links_entering(pending) | scores.links_with(listed)
    now = {
        owner: replace(link, owner=owner, source=owner, target=skill_id)
        for owner, link in found.items()
    }
    return {
        owner: now.get(owner)
        for owner in now.keys() | listed.keys()
        if now.get(owner) != listed.get(owner)
    }


def _move_in_lists(
    listed: Sequence[Link], moves: _Moves, settings: LinkSettings, audiences: Audiences
) -> list[Link] | None:
    """Return the lists after these moves; None if a skill that is not listed might move up.

    All skills that do not fit into a full list rank below its last entry. So the new list is known
    as long as no entry falls below that rank.
    """

    def by_list(links: Iterable[Link]) -> dict[ListKey, list[Link]]:
        lists: dict[ListKey, list[Link]] = {}
        for one in links:
            lists.setdefault((one.type, audiences.of(one.target)), []).append(one)
        return lists

    before = by_list(listed)
    kept = [one for one in listed if one.target not in moves]
    after = by_list([*kept, *(one for one in moves.values() if one is not None)])
    best: list[Link] = []
    for key in sorted(before.keys() | after.keys()):
        limit = settings.max_links(key[0])
        now, then = sorted(after.get(key, ()), key=rank_key)[:limit], before.get(key, ())
        if len(then) >= limit:
            last = max(map(rank_key, then))
            if len(now) < len(then) or rank_key(now[-1]) > last:
                return None
        best += now
    return best
