"""Prompts that a language model wrote for skills, as training queries (SkillRouter §4.2).

If a near miss of one skill is similar to a prompt of another, the first skill becomes a negative
of that prompt: the model has said that such a request does not need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from search.protocol import Encoder, StoredRevision
from skills.parsing.language_detection import detect_language
from tasks.language_model.answer_store import RefinementKind
from tasks.refine.completion.completions import PROMPTS_VERSION
from tasks.services import Services

SAME_REQUEST_COSINE = 0.6
"""Cosine from which a near miss and a prompt count as the same request."""

_ROWS = 128


@dataclass(frozen=True, slots=True)
class StoredPrompts:
    """Prompts that need a skill, and near misses, which do not."""

    prompts: tuple[str, ...]
    near_misses: tuple[str, ...]


def read_prompts(
    services: Services, revisions: Mapping[str, StoredRevision], model: str
) -> dict[str, StoredPrompts]:
    """Return a language model's prompts for these skills, by skill id; none if `model` is ""."""
    if services.answers is None or not model:
        return {}
    kind = RefinementKind("prompts", model, PROMPTS_VERSION)
    hashes = list(dict.fromkeys(one.content_hash for one in revisions.values()))
    stored = services.answers.get_refinements(kind, hashes)
    found = {
        skill_id: StoredPrompts(
            tuple(stored[one.content_hash].get("prompts", ())),
            tuple(stored[one.content_hash].get("near_misses", ())),
        )
        for skill_id, one in revisions.items()
        if one.content_hash in stored
    }
    return {skill_id: one for skill_id, one in found.items() if one.prompts}


def match_near_misses(
    encoder: Encoder, prompts: Mapping[str, StoredPrompts]
) -> dict[str, tuple[str, ...]]:
    """Return the skills with a similar near miss, nearest first, by prompt."""
    taken = [(text, skill) for skill, one in prompts.items() for text in one.prompts]
    missed = [(text, skill) for skill, one in prompts.items() for text in one.near_misses]
    taken = [one for one in taken if detect_language(one[0]) in encoder.languages]
    missed = [one for one in missed if detect_language(one[0]) in encoder.languages]
    if not taken or not missed:
        return {}
    vectors = encoder.encode_queries([text for text, _ in taken])
    others = encoder.encode_queries([text for text, _ in missed])
    found: dict[str, dict[str, float]] = {}
    for start in range(0, len(missed), _ROWS):
        cosines = others[start : start + _ROWS] @ vectors.T
        for row, place in np.argwhere(cosines >= SAME_REQUEST_COSINE).tolist():
            text, owner = taken[place]
            skill = missed[start + row][1]
            if skill != owner:
                near = found.setdefault(text, {})
                near[skill] = max(near.get(skill, 0.0), float(cosines[row, place]))
    return {
        text: tuple(sorted(near, key=lambda skill: (-near[skill], skill)))
        for text, near in found.items()
    }
