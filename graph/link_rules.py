"""Typed links between skills: a function of the library, not of the order in which it came.

A pair of skills has one score, whatever else is in the library; each skill keeps its best K of a
type, ties by skill_id; names are resolved anew when one comes or goes. Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import fsum
from typing import NamedTuple

from config.errors import UsageError
from graph.mentions import SEQUENCE_STRIDE
from graph.names import name_keys, normalise_name
from graph.protocol import Link, LinkFacts, LinkType, Mention


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Thresholds on cosines of signatures (bodies) and of description terms, and weights.

    alternative: descriptions at least this near, and under another name bodies at least as near
    as `renamed`: siblings made from one template describe themselves alike. copy: bodies at least
    this near. complement: bodies at least this near under descriptions below
    `different`. per_type: K, the most links that one skill owns of a type that is scored.
    """

    alternative: float = 0.8
    renamed: float = 0.75
    copy: float = 0.9
    complement: float = 0.3
    different: float = 0.6
    per_type: int = 5
    declared_weight: float = 1.0
    related_weight: float = 0.9
    file_weight: float = 0.9
    quoted_weight: float = 0.8
    workflow_weight: float = 0.8
    conflict_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.per_type < 1:
            raise UsageError(f"per_type must be at least 1, not {self.per_type}")
        if self.different > self.alternative:
            raise UsageError("complements must end where alternatives begin, or below")


DEFAULT_SETTINGS = LinkSettings()


class Resolution(NamedTuple):
    """Whom names stand for: published skills of the owner's source by normalised name, and those
    of any source that were declared by their whole skill_id."""

    named: Mapping[str, Sequence[str]]
    declared: Collection[str] = ()


def cosine(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    """The dot product of two sparse unit vectors.

    Exactly rounded, so that it does not depend on the order of terms or of the two skills.
    """
    if len(other) < len(one):
        one, other = other, one
    return fsum(weight * other[term] for term, weight in one.items() if term in other)


def pair_link(
    one: LinkFacts, other: LinkFacts, settings: LinkSettings = DEFAULT_SETTINGS
) -> tuple[LinkType, float, str] | None:
    """Type, weight and evidence of the scored link between two skills; the same both ways."""
    body = cosine(one.signature, other.signature)
    description = cosine(one.description_terms, other.description_terms)
    evidence = f"bodies {body:.2f} alike, descriptions {description:.2f}"
    renamed = normalise_name(one.name) != normalise_name(other.name)
    near = description >= settings.alternative and not (renamed and body < settings.renamed)
    weight = max(description if near else 0.0, body if body >= settings.copy else 0.0)
    if weight > 0.0:
        return (LinkType.ALTERNATIVE, min(1.0, weight), evidence)
    if body >= settings.complement and description < settings.different:
        return (LinkType.SEMANTIC, min(1.0, body), evidence)
    return None


def links_of(
    facts: LinkFacts,
    pool: Mapping[str, LinkFacts],
    resolve: Resolution,
    settings: LinkSettings = DEFAULT_SETTINGS,
) -> list[Link]:
    """Every link that one skill owns, by source, target and type.

    pool: the skills it is scored against. Where several rules or mentions give the same link, the
    heaviest stands, of those the first in the text.
    """
    found: dict[tuple[str, str, LinkType], Link] = {}
    for link in (*_scored(facts, pool, settings), *_named(facts, resolve, settings)):
        place = (link.source, link.target, link.type)
        if link.source != link.target and (place not in found or link.weight > found[place].weight):
            found[place] = link
    return [found[place] for place in sorted(found)]


def _scored(
    facts: LinkFacts, pool: Mapping[str, LinkFacts], settings: LinkSettings
) -> Iterable[Link]:
    best: dict[LinkType, list[tuple[float, str, str]]] = {}
    for other in pool.values():
        if other.skill_id == facts.skill_id:
            continue
        kept = pair_link(facts, other, settings)
        if kept is not None:
            best.setdefault(kept[0], []).append((-kept[1], other.skill_id, kept[2]))
    for kind, scored in best.items():
        for weight, skill_id, evidence in sorted(scored)[: settings.per_type]:
            yield Link(facts.skill_id, facts.skill_id, skill_id, kind, -weight, evidence)


def _named(facts: LinkFacts, resolve: Resolution, settings: LinkSettings) -> Iterable[Link]:
    weights = {
        "depends": settings.declared_weight,
        "related": settings.related_weight,
        "file": settings.file_weight,
        "quoted": settings.quoted_weight,
    }
    owner = facts.skill_id
    previous: tuple[int, str] | None = None
    for mention in sorted(facts.mentions, key=lambda m: (m.position, m.line, m.kind, m.name)):
        target = resolve_mention(facts, mention, resolve)
        if target is None:
            continue
        evidence = f"{mention.kind}, line {mention.line}: {mention.evidence}"
        if mention.kind in weights:
            yield Link(owner, owner, target, LinkType.DEPENDENCY, weights[mention.kind], evidence)
        elif mention.kind == "conflicts":
            yield Link(owner, owner, target, LinkType.CONFLICT, settings.conflict_weight, evidence)
        elif mention.kind == "order":
            sequence = mention.position // SEQUENCE_STRIDE
            if previous is not None and previous[0] == sequence:
                before = previous[1]
                weight = settings.workflow_weight
                yield Link(owner, before, target, LinkType.WORKFLOW, weight, evidence)
            previous = (sequence, target)


def resolve_mention(facts: LinkFacts, mention: Mention, resolve: Resolution) -> str | None:
    """The published skill a mention stands for: the one nearest by path, then by skill_id.

    A declared name may be a whole skill_id; any other is looked up in the owner's source.
    """
    if is_declared(mention) and mention.name in resolve.declared:
        return mention.name
    for key in name_keys(mention.name):
        candidates = [other for other in resolve.named.get(key, ()) if _in_source(other, facts)]
        if candidates:
            nearest = max(_nearness(facts, other) for other in candidates)
            return min(other for other in candidates if _nearness(facts, other) == nearest)
    return None


def is_declared(mention: Mention) -> bool:
    """Whether front matter declares it, so that it may name a skill of another source."""
    return mention.kind in ("depends", "conflicts")


def _in_source(skill_id: str, facts: LinkFacts) -> bool:
    return skill_id.startswith(f"{facts.source_id}:")


def _nearness(facts: LinkFacts, other: str) -> tuple[int, int]:
    """Leading folders that two skills of a source share, then leading characters.

    The characters tell apart what a mirror has flattened into one folder.
    """
    theirs = other[len(facts.source_id) + 1 :]
    folders = _shared(facts.path.split("/"), theirs.split("/"))
    return (folders, _shared(facts.path, theirs))


def _shared(one: Sequence[str], two: Sequence[str]) -> int:
    """How many leading parts two sequences have in common."""
    pairs = zip(one, two, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
