"""Features of a skill's passages for a query, from which `model` estimates the passages' needs.

No feature depends on the collection of skills: scores are standardised within the skill, and the
other features describe form and place. Roles are not used, so the selection does not depend on how
roles were assigned.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

import numpy as np

from skills.passages.inputs import Floats, PassageInput
from skills.passages.scoring import PassageScores, standardise

FEATURES = (
    "margin",
    "skill_tokens",
    "skill_passages",
    "section_tokens",
    "tokens",
    "section_bm25",
    "passage_bm25",
    "section_terms",
    "passage_terms",
    "section_cosine",
    "shared_terms",
    "overview",
    "examples",
    "references",
    "output",
    "before_headings",
    "points_elsewhere",
    "gives_reasons",
)
"""Names of the columns of `compute_features`.

margin: method F's margin, see `selection`. *_tokens, skill_passages: logarithms of counts relative
to usual counts. section_*, passage_*: scores of the section and of the passage, standardised within
the skill, except *_terms, the share by weight of the query's terms that it contains. shared_terms:
rare terms that the passage shares with passages of high score, such as the name of a function that
a step calls. overview, examples, references, output: whether the section's heading has such words.
before_headings: whether the passage is above the first heading below the title. points_elsewhere,
gives_reasons: whether its first _OPENING characters refer to other texts, or give reasons.
"""

_USUAL_TOKENS, _USUAL_PASSAGES, _USUAL_SECTION, _USUAL_PASSAGE = 1400, 40, 150, 40
"""Usual counts: tokens and passages of a skill, tokens of a section and of a passage. They only
shift the features, so that 0 is usual."""

_SHARE_DECAY = 0.7
"""Decay of a passage's weight in `shared_terms` with the distance of its score from the best."""

_OPENING = 600
"""Characters at the start of a passage that are searched for words."""

_HEADINGS = {
    "overview": r"\b(?:overview|introduction|when to|background|about|purpose|what is|why"
    r"|philosophy|core concepts?)\b|概述|简介|背景|何时|适用",
    "examples": r"\b(?:examples?|samples?|demo|use cases?)\b|示例|例子|案例",
    "references": r"\b(?:references?|resources?|related|see also|links?|further|documentation"
    r"|changelog|files)\b|参考|资源|相关",
    "output": r"\b(?:outputs?|formats?|templates?|report|deliverables?|schema|structure|response)\b"
    r"|输出|格式|模板|结构",
}
_HEADING_CUES = tuple(re.compile(pattern, re.IGNORECASE) for pattern in _HEADINGS.values())
_ELSEWHERE = ("http://", "https://", "](", "see ", "refer to", "reference", "docs", "参见", "参考")
_REASONS = (
    "because",
    "so that",
    "this means",
    "allows",
    "helps",
    "provides",
    "enables",
    "designed",
    "因为",
    "帮助",
    "提供",
)


def compute_features(scores: PassageScores, margins: Floats, skill: PassageInput) -> Floats:
    """Return the features of all passages (P, len(FEATURES)).

    Takes about half a millisecond for 60 passages. margins: result of `compute_margins` (P,).
    """
    parsed, owner = skill.parsed, scores.owner
    count, sections = len(parsed.passages), len(parsed.sections)
    tokens = np.array([max(passage.tokens, 1) for passage in parsed.passages], np.float32)
    in_section = np.maximum(np.bincount(owner, tokens, sections), 1)
    cosine = np.zeros(sections) if scores.cosine is None else scores.cosine
    headings = np.array([_heading_signs(_heading(one.heading_path)) for one in parsed.sections])
    openings = [parsed.text(p.first_line, p.last_line)[:_OPENING].lower() for p in parsed.passages]
    above = np.array([section.level <= 1 for section in parsed.sections])
    columns = {
        "margin": margins,
        "skill_tokens": np.full(count, math.log(float(tokens.sum()) / _USUAL_TOKENS)),
        "skill_passages": np.full(count, math.log(count / _USUAL_PASSAGES)),
        "section_tokens": np.log(in_section / _USUAL_SECTION)[owner],
        "tokens": np.log(tokens / _USUAL_PASSAGE),
        "section_bm25": scores.section_bm25[owner],
        "passage_bm25": scores.passage_bm25,
        "section_terms": scores.section_terms[owner],
        "passage_terms": scores.passage_terms,
        "section_cosine": cosine[owner],
        "shared_terms": _shared_terms(scores, skill),
        **dict(zip(_HEADINGS, headings[owner].T, strict=True)),
        "before_headings": above[owner],
        "points_elsewhere": [any(map(text.__contains__, _ELSEWHERE)) for text in openings],
        "gives_reasons": [any(map(text.__contains__, _REASONS)) for text in openings],
    }
    return np.column_stack([columns[name] for name in FEATURES]).astype(np.float32)


def _heading(path: tuple[str, ...]) -> str:
    return path[-1] if path else ""


@lru_cache(maxsize=1 << 14)
def _heading_signs(heading: str) -> tuple[bool, ...]:
    return tuple(cue.search(heading) is not None for cue in _HEADING_CUES)


def _shared_terms(scores: PassageScores, skill: PassageInput) -> Floats:
    """Return the similarity of each passage's rare terms to passages of high score (P,).

    Sum of the cosines of binary TF-IDF rows with all other passages, weighted by
    exp(_SHARE_DECAY * (score - best score)), and standardised.
    """
    count = len(skill.parsed.passages)
    rows = np.repeat(np.arange(count), np.diff(skill.offsets))
    terms, places = np.unique(skill.terms, return_inverse=True)
    found = np.bincount(places, minlength=len(terms))
    rare = (found >= 2) & (found <= max(2.0, count / 4))
    idf = np.where(rare, np.log((count + 1) / np.maximum(found, 1)), 0.0)
    values = idf[places]
    lengths = np.sqrt(np.bincount(rows, values**2, count))
    values = values / np.maximum(lengths, 1e-6)[rows]
    heat = np.exp(_SHARE_DECAY * (scores.passages - scores.passages.max()))
    spread = np.bincount(places, values * heat[rows], len(terms))
    own = heat * (lengths > 0)
    return standardise((np.bincount(rows, values * spread[places], count) - own).astype(np.float32))
