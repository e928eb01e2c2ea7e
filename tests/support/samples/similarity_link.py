"""The scored link of one pair of skills: the reference for `graph.links.similarity_index`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graph.links.link_rules import (
    DEFAULT_LINK_SETTINGS,
    WEIGHT_STEPS,
    LinkSettings,
    quantise_vector,
    score_pairs,
    similarity_evidence,
)
from graph.records import Link, LinkFeatures
from graph.skill_names import may_be_same_skill, normalise_name


def cosine(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    """The dot product of two sparse unit vectors, exact on their quantised weights."""
    (terms, weights), (others, other_weights) = quantise_vector(one), quantise_vector(other)
    _, mine, theirs = np.intersect1d(terms, others, assume_unique=True, return_indices=True)
    return float(weights[mine].astype(np.float64) @ other_weights[theirs]) / WEIGHT_STEPS**2


def similarity_link(
    one: LinkFeatures, other: LinkFeatures, settings: LinkSettings = DEFAULT_LINK_SETTINGS
) -> Link | None:
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
            ends = (one.skill_id, one.skill_id, other.skill_id)
            return Link(*ends, kind, float(weights[0]), evidence)
    return None
