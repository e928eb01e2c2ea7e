"""Typed links between skills: a function of the library, not of the order in which it came.

A pair of skills has one score, whatever else is in the library; each skill keeps its best K of a
type, ties by skill_id; names are resolved anew when one comes or goes. Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from config.errors import UsageError
from graph.links.mentions import SEQUENCE_STRIDE
from graph.records import Link, LinkFeatures, LinkType, Mention
from graph.skill_names import lookup_keys, may_be_same_skill, normalise_name

SIMILARITY_LINK_TYPES = (LinkType.ALTERNATIVE, LinkType.SEMANTIC)
"""Types whose links come from scores of pairs; the others come from names."""

WEIGHT_STEPS = 1 << 15
"""Weights of terms are compared in whole steps of 1 / QUANTUM: products and sums of such numbers
are exact in float64 whatever their order, so that a pair of skills has one cosine everywhere."""

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
QuantisedVector = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint16]]
"""A sparse unit vector: its terms, ascending, and their weights in steps of 1 / QUANTUM."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Thresholds on cosines of signatures (texts) and of description terms, and weights.

    alternative, same: descriptions and texts at least this near; of skills with one name either
    will do, under another name both must be, because siblings made from one template are alike.
    complement: texts at least this near under descriptions below `different`.
    alternatives, complements: K, the most links of the type that one skill owns.
    far_share: what is left of the weight of a name whose bearer stands in another collection.
    """

    alternative_description_cosine: float = 0.8
    alternative_body_cosine: float = 0.75
    complement_body_cosine: float = 0.1
    complement_max_description_cosine: float = 0.6
    max_alternatives: int = 5
    max_complements: int = 10
    declared_weight: float = 1.0
    related_weight: float = 0.9
    file_weight: float = 0.85
    quoted_weight: float = 0.8
    cross_collection_factor: float = 0.75
    workflow_weight: float = 0.8
    conflict_weight: float = 1.0

    def __post_init__(self) -> None:
        if min(self.max_alternatives, self.max_complements) < 1:
            raise UsageError(
                "a skill keeps at least one link of each scored type, not "
                f"{self.max_alternatives} alternatives and {self.max_complements} complements"
            )
        if self.complement_max_description_cosine > self.alternative_description_cosine:
            raise UsageError("complements must end where alternatives begin, or below")
        if (
            min(
                self.alternative_description_cosine,
                self.alternative_body_cosine,
                self.complement_body_cosine,
            )
            <= 0
        ):
            raise UsageError("a threshold of 0 would link every skill with every other")

    def max_links(self, kind: LinkType) -> int:
        """How many links of a scored type a skill keeps."""
        return self.max_alternatives if kind is LinkType.ALTERNATIVE else self.max_complements


DEFAULT_LINK_SETTINGS = LinkSettings()

_RIGHT: dict[LinkType, tuple[tuple[float, float], ...]] = {
    LinkType.DEPENDENCY: ((0.6, 0.67), (0.675, 0.8), (0.8, 0.84), (0.85, 0.95), (1.0, 0.97)),
    LinkType.WORKFLOW: ((0.8, 0.95),),
    LinkType.CONFLICT: ((1.0, 0.97),),
    LinkType.ALTERNATIVE: ((0.75, 0.97),),
    LinkType.SEMANTIC: ((0.1, 0.56),),
}
"""By type, (weight, share of such links found right by reading both skills); see
`docs/decisions` on links and their precision."""


def estimate_confidence(kind: LinkType, weight: float) -> float:
    """How likely a link is right, from 0 to 1: the share of labelled links like it that were.

    Follows from type and weight, because the weight of a named link tells how it was named and
    that of a scored one is its cosine; between measured weights it runs straight.
    """
    weights, shares = zip(*_RIGHT[kind], strict=True)
    return float(np.interp(weight, weights, shares))


class ResolvedNames(NamedTuple):
    """Whom names stand for: published skills of the owner's source by normalised name, and those
    of any source that were declared by their whole skill_id."""

    by_name: Mapping[str, Sequence[str]]
    by_skill_id: Collection[str] = ()


class ScoredLink(NamedTuple):
    """A scored link as seen from its owner: the skill at the other end."""

    type: LinkType
    weight: float
    skill_id: str
    evidence: str


def quantise_vector(vector: Mapping[int, float]) -> QuantisedVector:
    """A sparse unit vector as it is compared."""
    terms = np.fromiter(vector.keys(), dtype=np.uint64, count=len(vector))
    weights = np.fromiter(vector.values(), dtype=np.float64, count=len(vector))
    order = np.argsort(terms)
    steps = np.rint(np.clip(weights[order], 0.0, 1.0) * WEIGHT_STEPS)
    return terms[order], steps.astype(np.uint16)


def cosine(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    """The dot product of two sparse unit vectors, exact on their quantised weights."""
    (terms, weights), (others, other_weights) = quantise_vector(one), quantise_vector(other)
    _, mine, theirs = np.intersect1d(terms, others, assume_unique=True, return_indices=True)
    return float(weights[mine].astype(np.float64) @ other_weights[theirs]) / WEIGHT_STEPS**2


def score_pairs(
    body: Floats,
    description: Floats,
    namesake: Booleans,
    may_be_same_skill: Callable[[int], bool],
    settings: LinkSettings,
) -> dict[LinkType, Floats]:
    """Weights (pairs,) of the alternative and the complement of each pair, 0 where there is none.

    body, description: cosines; namesake: whether both have one name; may_be_one: whether the two
    names of the pair at a place may stand for one skill, asked of few. Nobody has both links.
    """
    described, same = (
        description >= settings.alternative_description_cosine,
        body >= settings.alternative_body_cosine,
    )
    alternative = namesake & (described | same)
    for place in np.flatnonzero(described & same & ~namesake).tolist():
        alternative[place] = may_be_same_skill(place)
    apart = (
        (body >= settings.complement_body_cosine)
        & (description < settings.complement_max_description_cosine)
        & ~namesake
    )
    return {
        LinkType.ALTERNATIVE: np.where(
            alternative, np.minimum(np.maximum(body, description), 1.0), 0.0
        ),
        LinkType.SEMANTIC: np.where(apart, np.minimum(body, 1.0), 0.0),
    }


def similarity_evidence(body: float, description: float) -> str:
    """Why a pair is linked, in words."""
    return f"texts {body:.2f} alike, descriptions {description:.2f}"


def similarity_link(
    one: LinkFeatures, other: LinkFeatures, settings: LinkSettings = DEFAULT_LINK_SETTINGS
) -> ScoredLink | None:
    """The scored link from one skill to the other, of the same type and weight the other way."""
    body = cosine(one.body_terms, other.body_terms)
    description = cosine(one.description_terms, other.description_terms)
    names = normalise_name(one.name), normalise_name(other.name)
    found = score_pairs(
        np.array([body]),
        np.array([description]),
        np.array([names[0] == names[1]]),
        lambda _: may_be_same_skill(*names),
        settings,
    )
    for kind, weights in found.items():
        if weights[0] > 0:
            evidence = similarity_evidence(body, description)
            return ScoredLink(kind, float(weights[0]), other.skill_id, evidence)
    return None


def build_links(
    facts: LinkFeatures,
    scored: Iterable[ScoredLink],
    resolve: ResolvedNames,
    settings: LinkSettings = DEFAULT_LINK_SETTINGS,
) -> list[Link]:
    """Every link that one skill owns, by source, target and type.

    scored: its pairs with at least those that its lists can hold. Where several mentions give the
    same link, the heaviest stands, of those the first in the text.
    """
    found: dict[tuple[str, str, LinkType], Link] = {}
    best = select_top_links(scored, settings)
    for link in (*as_owned_links(facts.skill_id, best), *_named(facts, resolve, settings)):
        place = (link.source, link.target, link.type)
        if link.source != link.target and (place not in found or link.weight > found[place].weight):
            found[place] = link
    return [found[place] for place in sorted(found)]


def select_top_links(scored: Iterable[ScoredLink], settings: LinkSettings) -> list[ScoredLink]:
    """The K heaviest of each type, heaviest first, ties by skill_id."""
    ordered = sorted(scored, key=rank_key)
    return [
        one
        for kind in SIMILARITY_LINK_TYPES
        for one in [other for other in ordered if other.type is kind][: settings.max_links(kind)]
    ]


def rank_key(scored: ScoredLink) -> tuple[float, str]:
    """By what a list is sorted."""
    return (-scored.weight, scored.skill_id)


def as_owned_links(owner: str, scored: Iterable[ScoredLink]) -> list[Link]:
    """The links that these make for the skill that owns them."""
    return [Link(owner, owner, one.skill_id, one.type, one.weight, one.evidence) for one in scored]


def _named(facts: LinkFeatures, resolve: ResolvedNames, settings: LinkSettings) -> Iterable[Link]:
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
            share = settings.cross_collection_factor if _is_far(owner, target, mention) else 1.0
            weight = weights[mention.kind] * share
            yield Link(owner, owner, target, LinkType.DEPENDENCY, weight, evidence)
        elif mention.kind == "conflicts":
            yield Link(owner, owner, target, LinkType.CONFLICT, settings.conflict_weight, evidence)
        elif mention.kind == "order":
            sequence = mention.position // SEQUENCE_STRIDE
            if previous is not None and previous[0] == sequence:
                before = previous[1]
                weight = settings.workflow_weight
                yield Link(owner, before, target, LinkType.WORKFLOW, weight, evidence)
            previous = (sequence, target)


def resolve_mention(facts: LinkFeatures, mention: Mention, resolve: ResolvedNames) -> str | None:
    """The published skill a mention stands for: the one nearest by path, then by skill_id.

    A declared name may be a whole skill_id; any other is looked up in the owner's source.
    """
    if is_declared(mention) and mention.name in resolve.by_skill_id:
        return mention.name
    for key in lookup_keys(mention.name):
        candidates = [other for other in resolve.by_name.get(key, ()) if _in_source(other, facts)]
        if candidates:
            nearest = max(_nearness(facts, other) for other in candidates)
            return min(other for other in candidates if _nearness(facts, other) == nearest)
    return None


def is_declared(mention: Mention) -> bool:
    """Whether front matter declares it, so that it may name a skill of another source."""
    return mention.kind in ("depends", "conflicts")


def _is_far(owner: str, target: str, mention: Mention) -> bool:
    """Whether a name that is not declared stands for a skill of another collection.

    Collections are told apart where a mirror has flattened `collection__folder__skill` into one
    folder: in a source that is one collection every name is near.
    """
    if is_declared(mention):
        return False
    ends = [skill_id.partition(":")[2].split("__") for skill_id in (owner, target)]
    return min(map(len, ends)) > 1 and ends[0][0] != ends[1][0]


def _in_source(skill_id: str, facts: LinkFeatures) -> bool:
    return skill_id.startswith(f"{facts.source_id}:")


def _nearness(facts: LinkFeatures, other: str) -> tuple[int, int]:
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
