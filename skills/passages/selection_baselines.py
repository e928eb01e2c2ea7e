"""SkillPager's MMR and the selection methods that it was compared with (sections 3.2 and 4.3).

Each function returns indexes of passages, ascending. All except `select_all` need the vectors of
query and passages, and select nothing without them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from skills.passages.inputs import (
    DEFAULT_WEIGHTS,
    PassageInput,
    PassageQuery,
    PassageWeights,
    cosines,
)
from skills.record import ParsedSkill, Passage, PassageKind, Role
from skills.token_count import count_tokens

PassageEdge = tuple[int, int]
"""A directed link between two passages: source and target."""


def select_all(skill: PassageInput) -> list[int]:
    """Select all passages: the reference with the most tokens."""
    return list(range(len(skill.parsed.passages)))


def select_mmr(
    query: PassageQuery, skill: PassageInput, weights: PassageWeights = DEFAULT_WEIGHTS
) -> list[int]:
    """Select by SkillPager's method: greedy MMR over all passages, until the score is negative.

    Implements equations 2 and 3, with the two limits on the number of passages (equation 4).
    """
    relevance = cosines(query, skill.passage_vectors)
    if relevance is None or skill.passage_vectors is None:
        return []
    redundancy = np.zeros(len(relevance), np.float32)
    chosen: list[int] = []
    limit = weights.mmr_small if len(relevance) <= weights.mmr_many else weights.mmr_large
    while len(chosen) < min(limit, len(relevance)):
        worth = weights.mmr_lambda * relevance - (1 - weights.mmr_lambda) * redundancy
        worth[chosen] = -np.inf
        best = int(worth.argmax())
        if worth[best] < 0:
            break
        likeness = skill.passage_vectors @ skill.passage_vectors[best]
        redundancy = np.maximum(redundancy, likeness) if chosen else likeness
        chosen.append(best)
    return sorted(chosen)


def select_top_k(
    query: PassageQuery,
    skill: PassageInput,
    edges: Iterable[PassageEdge],
    weights: PassageWeights = DEFAULT_WEIGHTS,
) -> list[int]:
    """Select the passages nearest to the query, and all passages with a link to one of them."""
    relevance = cosines(query, skill.passage_vectors)
    if relevance is None:
        return []
    nearest = set(np.argsort(-relevance, kind="stable")[: weights.top_k].tolist())
    return sorted(nearest | {source for source, target in edges if target in nearest})


def select_by_graph_walk(
    query: PassageQuery,
    skill: PassageInput,
    edges: Iterable[PassageEdge],
    weights: PassageWeights = DEFAULT_WEIGHTS,
) -> list[int]:
    """Select by a walk from an entry passage along links in both directions.

    The entry is the first step of the skill, or else its first passage, regardless of the query:
    the baseline shows the bias of a single entry (SkillPager, section 5.2.1). The next passage is
    the one nearest to the query among those linked to selected passages. The walk ends when its
    cosine is below graph_gain.
    """
    relevance = cosines(query, skill.passage_vectors)
    if relevance is None or not relevance.size:
        return []
    adjacent: defaultdict[int, set[int]] = defaultdict(set)
    for source, target in edges:
        adjacent[source].add(target)
        adjacent[target].add(source)
    steps = (p.index for p in skill.parsed.passages if p.role is Role.STEP)
    latest = next(steps, 0)
    taken, open_ends = {latest}, set(adjacent[latest])
    while open_ends:
        latest = min(open_ends, key=lambda index: (-relevance[index], index))
        if relevance[latest] < weights.graph_gain:
            break
        taken.add(latest)
        open_ends = (open_ends | adjacent[latest]) - taken
    return sorted(taken)


def split_into_chunks(
    parsed: ParsedSkill, weights: PassageWeights = DEFAULT_WEIGHTS
) -> ParsedSkill:
    """Return the skill with chunks of consecutive lines, headings included, as passages.

    A chunk ends before the line that would exceed chunk_tokens; a longer line is a single chunk.
    `select_mmr` over these chunks is the paper's comparison with fixed windows. All chunks have the
    role concept and the section in which they begin.
    """
    chunks: list[Passage] = []
    first, spent, section = 0, 0, 0

    def close(last: int) -> None:
        if first:
            place = (len(chunks), section, PassageKind.PARAGRAPH, Role.CONCEPT, 0.0)
            chunks.append(Passage(*place, first, last, spent))

    starts = {one.first_line: one.index for one in parsed.sections}
    current = 0
    for number in range(parsed.body_line, len(parsed.lines) + 1):
        current = starts.get(number, current)
        tokens = count_tokens(parsed.lines[number - 1])
        if not tokens:
            continue
        if not first or spent + tokens > weights.chunk_tokens:
            close(number - 1)
            first, spent, section = number, 0, current
        spent += tokens
    close(len(parsed.lines))
    return replace(parsed, passages=tuple(chunks))
