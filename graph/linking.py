"""Linking: bring the links of marked skills, and of whom that concerns, up to the library.

What each skill owns is a function of the library (`links_of`). A skill that changes is marked by
the catalog together with everyone who has a link to it or mentions its name; whose lists it newly
enters is found here. One process links at a time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from graph.link_rules import (
    DEFAULT_SETTINGS,
    LinkSettings,
    Resolution,
    is_declared,
    links_of,
    pair_link,
)
from graph.names import name_keys
from graph.pool import LinkPool
from graph.protocol import Link, LinkFacts, LinkType, Row, SkillGraph

__all__ = ["DEFAULT_SETTINGS", "LinkReport", "LinkSettings", "Linker", "links_of", "relink"]

_EVERYTHING = 1 << 40
_SCORED = (LinkType.ALTERNATIVE, LinkType.SEMANTIC)


@dataclass(frozen=True, slots=True)
class LinkReport:
    """What one run of linking did.

    linked: skills whose marks were served; neighbours: others whose lists changed with them;
    links: how many links of each type all of these own now.
    """

    linked: int = 0
    neighbours: int = 0
    links: Mapping[LinkType, int] = field(default_factory=dict)


class Linker:
    """Links what the catalog has marked; keeps the pool of candidates between runs."""

    def __init__(self, graph: SkillGraph, settings: LinkSettings = DEFAULT_SETTINGS) -> None:
        self._graph = graph
        self._settings = settings
        self._pool = LinkPool()

    def relink(self, marks: Sequence[tuple[str, int]]) -> LinkReport:
        """Link these skills and everyone whose lists they enter or leave; clears their marks.

        A mark that has moved in the meantime stays, and its skill is linked again.
        """
        if not marks:
            return LinkReport()
        self._pool.refresh(self._graph)
        marked = self._graph.link_facts([skill_id for skill_id, _ in marks])
        pending = {skill_id for skill_id, _ in self._graph.unlinked(_EVERYTHING)} | marked.keys()
        concerned: set[str] = set()
        for facts in marked.values():
            concerned |= self._concerned(facts, pending | concerned)
        owners = marked | self._graph.link_facts(sorted(concerned))
        links = self._links(owners)
        self._graph.replace_links(links, marks)
        return LinkReport(
            linked=len(marked),
            neighbours=len(owners) - len(marked),
            links=dict(Counter(link.type for owned in links.values() for link in owned)),
        )

    def _links(self, owners: Mapping[str, LinkFacts]) -> dict[str, list[Link]]:
        """What each of these skills owns now."""
        candidates = {
            skill_id: self._pool.best(facts, self._settings) for skill_id, facts in owners.items()
        }
        needed = sorted({other for best in candidates.values() for other in best})
        known = self._graph.link_facts(needed)
        resolve = self._resolve(owners.values())
        return {
            skill_id: links_of(
                facts,
                {other: known[other] for other in candidates[skill_id] if other in known},
                resolve[facts.source_id],
                self._settings,
            )
            for skill_id, facts in owners.items()
        }

    def _resolve(self, owners: Iterable[LinkFacts]) -> dict[str, Resolution]:
        """Whom every mentioned name stands for, by source."""
        names: defaultdict[str, set[str]] = defaultdict(set)
        whole: set[str] = set()
        for facts in owners:
            names[facts.source_id].update(
                key for mention in facts.mentions for key in name_keys(mention.name)
            )
            whole.update(m.name for m in facts.mentions if is_declared(m) and ":" in m.name)
        declared = self._graph.link_facts(sorted(whole)) if whole else {}
        return {
            source_id: Resolution(self._graph.named(source_id, sorted(keys)), declared)
            for source_id, keys in names.items()
        }

    def _concerned(self, facts: LinkFacts, pending: set[str]) -> set[str]:
        """Skills whose scored lists this one enters, leaves or has another weight in.

        Those that are pending have their own turn.
        """
        near = set(self._pool.near(facts, self._settings))
        own = self._graph.rows([facts.skill_id], _EVERYTHING)[facts.skill_id]
        listing = {n.skill_id for n in own.neighbours if not n.forward and n.type in _SCORED}
        others = sorted((near | listing) - pending)
        if not others:
            return set()
        known = self._graph.link_facts(others)
        rows = self._graph.rows(others, _EVERYTHING)
        return {
            skill_id
            for skill_id, other in known.items()
            if _differs(other, facts, rows[skill_id], self._settings)
        }


def relink(
    graph: SkillGraph, marks: Sequence[tuple[str, int]], settings: LinkSettings = DEFAULT_SETTINGS
) -> LinkReport:
    """`Linker.relink` with a pool of its own; who links more than once keeps a `Linker`."""
    return Linker(graph, settings).relink(marks)


def _differs(owner: LinkFacts, other: LinkFacts, row: Row, settings: LinkSettings) -> bool:
    """Whether `other` has to enter, leave or move in the owner's lists, as stored in its row."""
    listed = {
        (n.type, n.weight)
        for n in row.neighbours
        if n.forward and n.skill_id == other.skill_id and n.type in _SCORED
    }
    now = pair_link(owner, other, settings)
    if now is None or listed:
        return listed != ({now[:2]} if now else set())
    kind, weight, _ = now
    ranked = [(-n.weight, n.skill_id) for n in row.neighbours if n.forward and n.type is kind]
    return len(ranked) < settings.per_type or (-weight, other.skill_id) < max(ranked)
