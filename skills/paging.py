"""Which passages of one skill a query needs.

A section (heading to next heading) is scored, a passage is sent: sections by cosine and BM25,
passages by what their section, their neighbours and their chapter are worth, kept down to a gap
below the best. SkillPager's rule (global MMR, its equations 2 to 4) is there as a setting.

Pure numpy. Term counts come as plain arrays, so that this module knows nothing of an engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skills.record import ParsedSkill, Section

TEXT_LIMIT = 1500
"""Characters of a text to embed; about what a 256-token encoder can read."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PagingWeights:
    """The constants of paging, each with where it comes from.

    Method F (its terms, neighbours, chapters and gap) was found on 54 queries over 18 skills;
    the values hold on 78 queries kept apart. BM25's are Robertson's usual ones. MMR's are
    SkillPager's (its equations 2 to 4).
    """

    section_cosine: float = 1.0
    section_bm25: float = 0.5
    passage_cosine: float = 0.25
    passage_bm25: float = 0.25
    neighbour: float = 0.3
    chapter: float = 0.4
    gap: float = 6.0
    gap_tokens: int = 1400
    gap_power: float = 0.3
    bm25_k1: float = 1.2
    bm25_b: float = 0.75
    mmr_lambda: float = 0.7
    mmr_small: int = 20
    mmr_large: int = 60
    mmr_many: int = 100


DEFAULT_WEIGHTS = PagingWeights()


@dataclass(frozen=True, slots=True)
class PageQuery:
    """What is asked: a unit vector (d,) or None, sorted term ids (n,) and their weights (n,)."""

    vector: Floats | None
    terms: npt.NDArray[np.uint64]
    weights: Floats


@dataclass(frozen=True, slots=True)
class PageInput:
    """One skill to page.

    offsets, terms, counts: term counts of `passage_texts(parsed)` in compressed sparse rows,
    (P + 1,), (n,), (n,). section_vectors: unit vectors of `section_texts(parsed)`, (S, d), None
    while they are not embedded. passage_vectors: the same of the passages, (P, d).
    """

    parsed: ParsedSkill
    offsets: npt.NDArray[np.int32]
    terms: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.uint16]
    section_vectors: Floats | None = None
    passage_vectors: Floats | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of sections (S,) and passages (P,); `dense` is False where no vector was used."""

    sections: Floats
    passages: Floats
    dense: bool


def section_texts(parsed: ParsedSkill) -> tuple[str, ...]:
    """The text to embed for each section: heading path without the H1, newline, its text."""
    return tuple(
        _headed(section, parsed.text(_after_heading(section), section.last_line))
        for section in parsed.sections
    )


def passage_texts(parsed: ParsedSkill) -> tuple[str, ...]:
    """The text to embed for each passage, under the heading path of its section."""
    return tuple(
        _headed(
            parsed.sections[passage.section], parsed.text(passage.first_line, passage.last_line)
        )
        for passage in parsed.passages
    )


def score_passages(query: PageQuery, page: PageInput, weights: PagingWeights) -> Scores:
    """Score every section and passage of a skill for a query (method F).

    Each term is z-normalised within the skill before it is weighed. A term whose vectors are
    missing weighs nothing. Takes well under a millisecond for a usual skill.
    """
    count = len(page.parsed.passages)
    owner = np.fromiter((p.section for p in page.parsed.passages), np.intp, count)
    matches, lengths = _matches(query, page, count)
    by_section = _sum_rows(matches, owner, len(page.parsed.sections))
    section_lengths = np.bincount(owner, lengths, len(page.parsed.sections)).astype(np.float32)
    sections = weights.section_bm25 * _z(_bm25(by_section, section_lengths, query, weights))
    passages = weights.passage_bm25 * _z(_bm25(matches, lengths, query, weights))
    cosine = _cosine(query, page.section_vectors)
    if cosine is not None:
        sections = sections + weights.section_cosine * _z(cosine)
    nearness = _cosine(query, page.passage_vectors)
    if nearness is not None:
        passages = passages + weights.passage_cosine * _z(nearness)
    chapters = _chapters(page.parsed.sections)
    smoothed = _smooth(sections[owner] + passages, chapters[owner], weights)
    return Scores(sections.astype(np.float32), smoothed.astype(np.float32), cosine is not None)


def choose(
    scores: Scores,
    page: PageInput,
    gap: float,
    max_tokens: int | None = None,
    weights: PagingWeights = DEFAULT_WEIGHTS,
) -> list[int]:
    """The passages within a gap below the best, ascending; at most `max_tokens` of them.

    The gap shrinks with the skill's length T: gap * (gap_tokens / T) ** gap_power. Where the
    tokens run out, the best passages that still fit are kept.
    """
    if not scores.passages.size:
        return []
    tokens = np.fromiter((p.tokens for p in page.parsed.passages), np.int64)
    width = gap * (weights.gap_tokens / max(1, int(tokens.sum()))) ** weights.gap_power
    kept = np.flatnonzero(scores.passages >= scores.passages.max() - width)
    if max_tokens is not None:
        kept = _within(kept, scores.passages, tokens, max_tokens)
    return [int(index) for index in np.sort(kept)]


def mmr(query: PageQuery, page: PageInput, weights: PagingWeights) -> list[int]:
    """SkillPager's choice: greedy MMR over all passages, stopping below zero; ascending.

    Needs the query's and the passages' vectors; without them nothing is chosen.
    """
    relevance = _cosine(query, page.passage_vectors)
    if relevance is None or page.passage_vectors is None:
        return []
    count = len(relevance)
    limit = weights.mmr_small if count <= weights.mmr_many else weights.mmr_large
    gain = weights.mmr_lambda * relevance
    redundancy = np.zeros(count, np.float32)
    chosen: list[int] = []
    while len(chosen) < min(limit, count):
        worth = gain - (1 - weights.mmr_lambda) * redundancy
        worth[chosen] = -np.inf
        best = int(worth.argmax())
        if worth[best] < 0:
            break
        chosen.append(best)
        redundancy = np.maximum(redundancy, page.passage_vectors @ page.passage_vectors[best])
    return sorted(chosen)


def lines_of(parsed: ParsedSkill, chosen: Sequence[int]) -> list[tuple[int, int]]:
    """The line ranges to show for the chosen passages, in document order, merged.

    The heading of each kept section comes along.
    """
    spans = set()
    for index in chosen:
        passage = parsed.passages[index]
        spans.add((passage.first_line, passage.last_line))
        heading = parsed.sections[passage.section].heading_line
        if heading:
            spans.add((heading, heading))
    return _merge(parsed, sorted(spans))


def _after_heading(section: Section) -> int:
    return section.heading_line + 1 if section.heading_line else section.first_line


def _headed(section: Section, text: str) -> str:
    path = section.heading_path[1:] if section.level > 1 else section.heading_path
    return f"{' > '.join(path)}\n{text}"[:TEXT_LIMIT]


def _matches(query: PageQuery, page: PageInput, count: int) -> tuple[Floats, Floats]:
    """Counts of each query term in each passage (P, n), and passage lengths (P,)."""
    rows = np.repeat(np.arange(count), np.diff(page.offsets))
    lengths = np.bincount(rows, page.counts, count).astype(np.float32)
    matches = np.zeros((count, len(query.terms)), np.float32)
    if len(query.terms) and len(page.terms):
        columns = np.minimum(np.searchsorted(query.terms, page.terms), len(query.terms) - 1)
        hit = query.terms[columns] == page.terms
        np.add.at(matches, (rows[hit], columns[hit]), page.counts[hit])
    return matches, lengths


def _sum_rows(matches: Floats, owner: npt.NDArray[np.intp], count: int) -> Floats:
    summed = np.zeros((count, matches.shape[1]), np.float32)
    np.add.at(summed, owner, matches)
    return summed


def _bm25(matches: Floats, lengths: Floats, query: PageQuery, weights: PagingWeights) -> Floats:
    """BM25 of each row within this skill (n,)."""
    if not matches.size:
        return np.zeros(len(matches), np.float32)
    found = (matches > 0).sum(axis=0)
    idf = np.log1p((len(matches) - found + 0.5) / (found + 0.5))
    mean = max(1.0, float(lengths.mean()))
    norm = weights.bm25_k1 * (1 - weights.bm25_b + weights.bm25_b * lengths / mean)
    saturated = matches * (weights.bm25_k1 + 1) / (matches + np.maximum(norm, 1e-6)[:, None])
    return np.asarray(saturated @ (idf * query.weights), np.float32)


def _cosine(query: PageQuery, vectors: Floats | None) -> Floats | None:
    if query.vector is None or vectors is None:
        return None
    return np.asarray(vectors @ query.vector, np.float32)


def _z(values: Floats) -> Floats:
    """Zero mean and unit spread; zeros where all are alike."""
    spread = float(values.std()) if values.size else 0.0
    if spread < 1e-9:
        return np.zeros_like(values)
    return np.asarray((values - values.mean()) / spread, np.float32)


def _chapters(sections: Sequence[Section]) -> npt.NDArray[np.intp]:
    """The chapter of each section: a heading of level 1 or 2 opens one."""
    opens = np.fromiter((section.level <= 2 for section in sections), np.intp, len(sections))
    return np.cumsum(opens)


def _smooth(
    base: Floats, chapters: npt.NDArray[np.intp], weights: PagingWeights
) -> npt.NDArray[np.floating]:
    """Add what the neighbours in the chapter and the chapter's best are worth."""
    if not base.size:
        return base
    same = chapters[1:] == chapters[:-1]
    smoothed = base.astype(np.float64)
    smoothed[1:] += weights.neighbour * np.where(same, base[:-1], 0)
    smoothed[:-1] += weights.neighbour * np.where(same, base[1:], 0)
    best = np.full(int(chapters.max()) + 1, -np.inf)
    np.maximum.at(best, chapters, smoothed)
    return np.asarray(smoothed + weights.chapter * best[chapters])


def _within(
    kept: npt.NDArray[np.intp], scores: Floats, tokens: npt.NDArray[np.int64], max_tokens: int
) -> npt.NDArray[np.intp]:
    """The best of the kept passages whose tokens fit together."""
    order = kept[np.argsort(-scores[kept], kind="stable")]
    fitting, left = [], max_tokens
    for index in order:
        if tokens[index] <= left:
            fitting.append(index)
            left -= int(tokens[index])
    return np.array(fitting, np.intp)


def _merge(parsed: ParsedSkill, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that touch or that only blank lines part."""
    merged: list[tuple[int, int]] = []
    for first, last in spans:
        if merged and not parsed.text(merged[-1][1] + 1, first - 1).strip():
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged
