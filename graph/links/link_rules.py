"""Rules for typed links between skills: a function of the library, independent of ingest order.

The score of a pair depends only on the two skills. Each skill keeps its best K links of a type,
ties by skill_id. Mentions are resolved again when a name appears or disappears. All functions are
pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from graph.links.audiences import ONE_AUDIENCE, Audiences
from graph.links.mentions import SEQUENCE_STRIDE
from graph.records import Link, LinkFeatures, LinkType, Mention
from graph.skill_names import lookup_keys

SIMILARITY_LINK_TYPES = (LinkType.ALTERNATIVE, LinkType.SEMANTIC)
"""Types of links from scores of pairs; links of other types come from mentions."""

WEIGHT_STEPS = 1 << 15
"""Term weights are quantised to steps of 1 / WEIGHT_STEPS: products and sums of such numbers are
exact in float64 in any order, so that the cosine of a pair is the same everywhere."""

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
QuantisedVector = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint16]]
"""A sparse unit vector: its terms, ascending, and their weights in steps of 1 / WEIGHT_STEPS."""

DECLARED_WEIGHT = 0.999
"""Minimum weight of a dependency that counts as declared, and is added to bundles."""

_DEPENDENCY_WEIGHTS = {"depends": 1.0, "related": 0.9, "file": 0.85, "quoted": 0.8}
"""Weight of a dependency by the kind of its mention."""

_CROSS_COLLECTION_FACTOR = 0.75
"""Factor on the weight of an undeclared mention of a skill in another collection."""

_WORKFLOW_WEIGHT, _CONFLICT_WEIGHT = 0.8, 1.0


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Thresholds on cosines of body terms and of description terms, and lengths of lists.

    alternative_*: minimum cosines of an alternative. Skills with the same name need one of the two;
    other skills need both, because siblings made from one template are similar.
    semantic_*: minimum cosine of bodies and maximum cosine of descriptions for a semantic link.
    max_*: K, the maximum links of the type that one skill owns to each audience.
    """

    alternative_description_cosine: float = 0.8
    alternative_body_cosine: float = 0.75
    semantic_body_cosine: float = 0.1
    semantic_max_description_cosine: float = 0.6
    max_alternatives: int = 5
    max_semantic: int = 10

    def max_links(self, kind: LinkType) -> int:
        """Return the maximum links of a scored type that a skill keeps to each audience."""
        return self.max_alternatives if kind is LinkType.ALTERNATIVE else self.max_semantic


DEFAULT_LINK_SETTINGS = LinkSettings()

_PRECISION: dict[LinkType, tuple[tuple[float, float], ...]] = {
    LinkType.DEPENDENCY: ((0.6, 0.67), (0.675, 0.8), (0.8, 0.84), (0.85, 0.95), (1.0, 0.97)),
    LinkType.WORKFLOW: ((0.8, 0.95),),
    LinkType.CONFLICT: ((1.0, 0.97),),
    LinkType.ALTERNATIVE: ((0.75, 0.97),),
    LinkType.SEMANTIC: ((0.1, 0.56),),
    LinkType.USED_TOGETHER: ((0.0, 0.0), (1.0, 1.0)),
}
"""Type -> pairs of weight and share of such links that were correct on reading both skills; see
docs/decisions/0010-links-and-their-precision.md. The weight of a link from use is itself a share of
tasks."""


def estimate_confidence(kind: LinkType, weight: float) -> float:
    """Estimate the precision of a link: the share of similar labelled links that were correct.

    It depends on type and weight, and is interpolated between measured weights. The weight shows
    the kind of mention, or the cosine of a scored link.
    """
    weights, shares = zip(*_PRECISION[kind], strict=True)
    return float(np.interp(weight, weights, shares))


class ResolvedNames(NamedTuple):
    """Skills to which names may refer.

    by_name: published skills of the owner's source, sorted, by normalised name. by_skill_id:
    published skills of any source that are declared by skill_id.
    """

    by_name: Mapping[str, Sequence[str]]
    by_skill_id: Collection[str] = ()


def quantise_vector(vector: Mapping[int, float]) -> QuantisedVector:
    """Convert a sparse unit vector to sorted terms and quantised weights."""
    terms = np.fromiter(vector.keys(), dtype=np.uint64, count=len(vector))
    weights = np.fromiter(vector.values(), dtype=np.float64, count=len(vector))
    order = np.argsort(terms)
    steps = np.rint(np.clip(weights[order], 0.0, 1.0) * WEIGHT_STEPS)
    return terms[order], steps.astype(np.uint16)


def score_pairs(
    body: Floats,
    description: Floats,
    namesake: Booleans,
    may_be_same_skill: Callable[[int], bool],
    settings: LinkSettings,
) -> dict[LinkType, Floats]:
    """Return the weights of the alternative and the semantic link of each pair, float64 (pairs,).

    0 means no link; no pair has both links. body, description: cosines. namesake: whether both have
    the same name. may_be_same_skill: returns whether the two names of the pair at an index may
    denote one skill; called for few pairs.
    """
    similar_description, similar_body = (
        description >= settings.alternative_description_cosine,
        body >= settings.alternative_body_cosine,
    )
    alternative = namesake & (similar_description | similar_body)
    for place in np.flatnonzero(similar_description & similar_body & ~namesake).tolist():
        alternative[place] = may_be_same_skill(place)
    apart = (
        (body >= settings.semantic_body_cosine)
        & (description < settings.semantic_max_description_cosine)
        & ~namesake
    )
    return {
        LinkType.ALTERNATIVE: np.where(
            alternative, np.minimum(np.maximum(body, description), 1.0), 0.0
        ),
        LinkType.SEMANTIC: np.where(apart, np.minimum(body, 1.0), 0.0),
    }


def similarity_evidence(body: float, description: float) -> str:
    """Return the evidence of a scored link, in words."""
    return f"cosines: texts {body:.2f}, descriptions {description:.2f}"


def build_links(
    features: LinkFeatures,
    scored: Iterable[Link],
    resolve: ResolvedNames,
    settings: LinkSettings = DEFAULT_LINK_SETTINGS,
    audiences: Audiences = ONE_AUDIENCE,
) -> list[Link]:
    """Return all links that one skill owns, sorted by source, target and type.

    scored: its links from scores, at least those that can be among its best K of an audience.
    If several mentions give the same link, the heaviest is kept; on a tie, the first in the text.
    """
    found: dict[tuple[str, str, LinkType], Link] = {}
    best = select_top_links(scored, settings, audiences)
    for link in (*best, *_mentioned(features, resolve)):
        place = (link.source, link.target, link.type)
        if link.source != link.target and (place not in found or link.weight > found[place].weight):
            found[place] = link
    return [found[place] for place in sorted(found)]


def select_top_links(
    scored: Iterable[Link], settings: LinkSettings, audiences: Audiences = ONE_AUDIENCE
) -> list[Link]:
    """Return a skill's K heaviest links of each type to each audience, sorted by `rank_key`."""
    ordered = sorted(scored, key=rank_key)
    best: list[Link] = []
    for kind in SIMILARITY_LINK_TYPES:
        found = [one for one in ordered if one.type is kind]
        places = [
            place
            for members in audiences.split([one.target for one in found])
            for place in members[: settings.max_links(kind)]
        ]
        best += [found[place] for place in sorted(places)]
    return best


def rank_key(link: Link) -> tuple[float, str]:
    """Return the sort key of a skill's lists: heaviest first, ties by the other skill's id."""
    return (-link.weight, link.target)


def _mentioned(features: LinkFeatures, resolve: ResolvedNames) -> Iterable[Link]:
    owner = features.skill_id
    previous: tuple[int, str] | None = None
    for mention in sorted(features.mentions, key=lambda m: (m.position, m.line, m.kind, m.name)):
        target = resolve_mention(features, mention, resolve)
        if target is None:
            continue
        evidence = f"{mention.kind}, line {mention.line}: {mention.evidence}"
        if mention.kind in _DEPENDENCY_WEIGHTS:
            factor = _CROSS_COLLECTION_FACTOR if _is_far(owner, target, mention) else 1.0
            weight = _DEPENDENCY_WEIGHTS[mention.kind] * factor
            yield Link(owner, owner, target, LinkType.DEPENDENCY, weight, evidence)
        elif mention.kind == "conflicts":
            yield Link(owner, owner, target, LinkType.CONFLICT, _CONFLICT_WEIGHT, evidence)
        elif mention.kind == "order":
            sequence = mention.position // SEQUENCE_STRIDE
            if previous is not None and previous[0] == sequence:
                before = previous[1]
                yield Link(owner, before, target, LinkType.WORKFLOW, _WORKFLOW_WEIGHT, evidence)
            previous = (sequence, target)


def resolve_mention(features: LinkFeatures, mention: Mention, resolve: ResolvedNames) -> str | None:
    """Return the published skill to which a mention refers: the nearest by path, then by skill_id.

    A declared name may be a skill_id; any other name is looked up in the owner's source.
    """
    if is_declared(mention) and mention.name in resolve.by_skill_id:
        return mention.name
    for key in lookup_keys(mention.name):
        if candidates := resolve.by_name.get(key):
            return _find_nearest(f"{features.source_id}:{features.path}", candidates)
    return None


def is_declared(mention: Mention) -> bool:
    """Return whether a mention is declared in the frontmatter.

    Only a declared mention may name a skill of another source.
    """
    return mention.kind in ("depends", "conflicts")


def _is_far(owner: str, target: str, mention: Mention) -> bool:
    """Return whether an undeclared mention refers to a skill of another collection.

    Collections can be distinguished only if a mirror has flattened them into one folder, as
    `collection__folder__skill`.
    """
    if is_declared(mention):
        return False
    ends = [skill_id.partition(":")[2].split("__") for skill_id in (owner, target)]
    return min(map(len, ends)) > 1 and ends[0][0] != ends[1][0]


def _find_nearest(owner: str, candidates: Sequence[str]) -> str:
    """Return the skill that shares most leading folders, then characters, then the first by id.

    The characters matter if a mirror has flattened several folders into one. candidates: skills of
    the owner's source, sorted. Thousands may have the same name and mention each other.
    """
    # The neighbours in the order share most characters, and no other skill shares more folders.
    place = bisect_left(candidates, owner)
    around = candidates[max(place - 1, 0) : place + 1]
    prefix = max((commonprefix((owner, one)) for one in around), key=len)  # noqa: RUF071 - by characters
    first = bisect_left(candidates, prefix)
    if candidates[first] != prefix and owner[len(prefix) :][:1] in ("", "/"):
        # The prefix is a whole folder of the owner; skills in such a folder share it.
        inside = bisect_left(candidates, f"{prefix}/")
        if inside < len(candidates) and candidates[inside].startswith(f"{prefix}/"):
            return candidates[inside]
    return candidates[first]
