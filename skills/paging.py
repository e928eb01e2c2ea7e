"""Which passages of one skill a query needs.

A section (heading to next heading) is scored, a passage is sent: sections by cosine and BM25,
passages by what their section, their neighbours and their chapter are worth, kept down to a gap
below the best. SkillPager's rule (global MMR, its equations 2 to 4) is there as a setting.

Pure numpy. Term counts come as plain arrays, so that this module knows nothing of an engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skills.headings import paths_below_title
from skills.record import ParsedSkill, Section
from skills.tokens import count_tokens

TEXT_LIMIT = 1500
"""Characters of a text to embed; about what a 256-token encoder can read."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PagingWeights:
    """The constants of paging, each with where it comes from.

    section_*, passage_*, neighbour, chapter: the weights of method F's terms, found on 54 queries
    over 18 skills. neighbour, gap_power and bm25_b were chosen again from a grid of 27 by
    `tests/bench/choose_paging.py`: constants and gap chosen without the skill they are tried on
    give .778 sufficient at a reduction of .585, .907 at .409. The values stand in the middle of
    the good ones, not at the best.
    gap: passages this far below the best are kept, for a skill of gap_tokens tokens; 5.1, 5.9 and
    7.0 give reductions of about .59, .49 and .39. gap_power: a longer skill has more passages by
    chance near the best; a square root. lexical_gap: without vectors scores spread less; the gap
    is this share of it. bm25_k1: Robertson's usual. mmr_*: SkillPager's (its section 4.3).
    """

    section_cosine: float = 1.0
    section_bm25: float = 0.5
    passage_cosine: float = 0.25
    passage_bm25: float = 0.25
    neighbour: float = 0.2
    chapter: float = 0.4
    gap: float = 5.1
    gap_tokens: int = 1400
    gap_power: float = 0.5
    lexical_gap: float = 0.6
    bm25_k1: float = 1.2
    bm25_b: float = 0.5
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

    offsets, terms, counts: term counts of the passages' own text in compressed sparse rows,
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
    """The text to embed for each section: heading path without the title, newline, its text."""
    return tuple(
        _headed(path, parsed.text(_after_heading(section), section.last_line))
        for path, section in zip(paths_below_title(parsed.sections), parsed.sections, strict=True)
    )


def passage_texts(parsed: ParsedSkill) -> tuple[str, ...]:
    """The text to embed for each passage, under the heading path of its section."""
    paths = paths_below_title(parsed.sections)
    return tuple(
        _headed(paths[passage.section], parsed.text(passage.first_line, passage.last_line))
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
    """The passages within a gap below the best, ascending.

    The gap shrinks with the skill's length T: gap * (gap_tokens / T) ** gap_power, and by
    lexical_gap where no vectors were used. With `max_tokens`, the best passages are kept whose
    lines, as `lines_of` gives them, cost no more than that.
    """
    if not scores.passages.size:
        return []
    total = max(1, sum(passage.tokens for passage in page.parsed.passages))
    width = gap * (weights.gap_tokens / total) ** weights.gap_power
    if not scores.dense:
        width *= weights.lexical_gap
    kept = np.flatnonzero(scores.passages >= scores.passages.max() - width)
    best_first = kept[np.argsort(-scores.passages[kept], kind="stable")].tolist()
    if max_tokens is None:
        return sorted(best_first)
    return sorted(_within(page.parsed, best_first, max_tokens))


def mmr(query: PageQuery, page: PageInput, weights: PagingWeights) -> list[int]:
    """SkillPager's choice: greedy MMR over all passages, stopping below zero; ascending.

    Its equations 2 and 3, and its two budgets. Needs the query's and the passages' vectors;
    without them nothing is chosen.
    """
    relevance = _cosine(query, page.passage_vectors)
    if relevance is None or page.passage_vectors is None:
        return []
    count = len(relevance)
    limit = weights.mmr_small if count <= weights.mmr_many else weights.mmr_large
    redundancy = np.zeros(count, np.float32)
    chosen: list[int] = []
    while len(chosen) < min(limit, count):
        worth = weights.mmr_lambda * relevance - (1 - weights.mmr_lambda) * redundancy
        worth[chosen] = -np.inf
        best = int(worth.argmax())
        if worth[best] < 0:
            break
        likeness = page.passage_vectors @ page.passage_vectors[best]
        redundancy = np.maximum(redundancy, likeness) if chosen else likeness
        chosen.append(best)
    return sorted(chosen)


def lines_of(
    parsed: ParsedSkill, chosen: Iterable[int], *, context: bool = True
) -> list[tuple[int, int]]:
    """The line ranges of the chosen passages, in document order; ranges that touch are merged.

    With `context`, the heading of each kept section comes along, and the passage that introduces
    a kept one.
    """
    wanted = set(chosen)
    if context:
        wanted |= {parsed.passages[index].lead_in for index in wanted} - {-1}
    spans = set()
    for index in wanted:
        passage = parsed.passages[index]
        spans.add((passage.first_line, passage.last_line))
        heading = parsed.sections[passage.section].heading_line
        if heading and context:
            spans.add((heading, heading))
    return _merge(parsed, sorted(spans))


def _after_heading(section: Section) -> int:
    return section.heading_line + 1 if section.heading_line else section.first_line


def _headed(path: tuple[str, ...], text: str) -> str:
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


def _within(parsed: ParsedSkill, best_first: Sequence[int], max_tokens: int) -> list[int]:
    """As many of the best passages as fit together, headings and lead-ins paid for."""
    fitting: list[int] = []
    paid: set[int] = set()
    left = max_tokens
    for index in best_first:
        lines = {
            number for first, last in lines_of(parsed, [index]) for number in range(first, last + 1)
        }
        cost = sum(count_tokens(parsed.lines[number - 1]) for number in lines - paid)
        if cost <= left:
            fitting.append(index)
            paid |= lines
            left -= cost
    return fitting


def _merge(parsed: ParsedSkill, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that touch or that only blank lines part."""
    merged: list[tuple[int, int]] = []
    for first, last in spans:
        if merged and not parsed.text(merged[-1][1] + 1, first - 1).strip():
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged
