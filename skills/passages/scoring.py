"""Scores of method F: relevance of each section and passage of a skill to a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skills.passages.inputs import Floats, PassageInput, PassageQuery, PassageWeights, cosines
from skills.record import Section


@dataclass(frozen=True, slots=True)
class PassageScores:
    """Scores of sections (S,) and passages (P,), with their components.

    terms: number of distinct terms of the query. owner: section of each passage (P,).
    section_bm25, passage_bm25, cosine: standardised within the skill; cosine (of sections) is None
    if no vector was used. section_terms, passage_terms: share by weight of the query's terms in the
    skill that the section or passage contains.
    """

    sections: Floats
    passages: Floats
    terms: int
    owner: npt.NDArray[np.intp]
    section_bm25: Floats
    passage_bm25: Floats
    section_terms: Floats
    passage_terms: Floats
    cosine: Floats | None = None

    @property
    def dense(self) -> bool:
        """Whether vectors were used."""
        return self.cosine is not None


def score_passages(
    query: PassageQuery, skill: PassageInput, weights: PassageWeights
) -> PassageScores:
    """Score every section and passage of a skill for a query (method F).

    Each term of the score is z-normalised within the skill and then weighted. A term that needs
    missing vectors is left out. Takes well under a millisecond for a skill of usual size.
    """
    count, held = len(skill.parsed.passages), len(skill.parsed.sections)
    owner = np.fromiter((p.section for p in skill.parsed.passages), np.intp, count)
    matches, lengths = _count_matches(query, skill, count)
    by_section = _sum_rows(matches, owner, held)
    section_lengths = np.bincount(owner, lengths, held).astype(np.float32)
    section_bm25 = standardise(_bm25(by_section, section_lengths, query, weights))
    passage_bm25 = standardise(_bm25(matches, lengths, query, weights))
    sections = weights.section_bm25 * section_bm25
    passages = weights.passage_bm25 * passage_bm25
    cosine = cosines(query, skill.section_vectors)
    if cosine is not None:
        cosine = standardise(cosine)
        sections = sections + weights.section_cosine * cosine
    nearness = cosines(query, skill.passage_vectors)
    if nearness is not None:
        passages = passages + weights.passage_cosine * standardise(nearness)
    chapters = _find_chapters(skill.parsed.sections)
    smoothed = _smooth(sections[owner] + passages, chapters[owner], weights)
    mass = _term_mass(matches, query)
    return PassageScores(
        sections.astype(np.float32),
        smoothed.astype(np.float32),
        len(query.terms),
        owner,
        section_bm25,
        passage_bm25,
        np.asarray((by_section > 0) @ mass, np.float32),
        np.asarray((matches > 0) @ mass, np.float32),
        cosine,
    )


def _count_matches(query: PassageQuery, skill: PassageInput, count: int) -> tuple[Floats, Floats]:
    """Return the counts of each query term in each passage (P, n), and passage lengths (P,)."""
    rows = np.repeat(np.arange(count), np.diff(skill.offsets))
    lengths = np.bincount(rows, skill.counts, count).astype(np.float32)
    matches = np.zeros((count, len(query.terms)), np.float32)
    if len(query.terms) and len(skill.terms):
        columns = np.minimum(np.searchsorted(query.terms, skill.terms), len(query.terms) - 1)
        hit = query.terms[columns] == skill.terms
        np.add.at(matches, (rows[hit], columns[hit]), skill.counts[hit])
    return matches, lengths


def _sum_rows(matches: Floats, owner: npt.NDArray[np.intp], count: int) -> Floats:
    summed = np.zeros((count, matches.shape[1]), np.float32)
    np.add.at(summed, owner, matches)
    return summed


def _bm25(matches: Floats, lengths: Floats, query: PassageQuery, weights: PassageWeights) -> Floats:
    """BM25 of each row within this skill (n,)."""
    if not matches.size:
        return np.zeros(len(matches), np.float32)
    found = (matches > 0).sum(axis=0)
    idf = np.log1p((len(matches) - found + 0.5) / (found + 0.5))
    mean = max(1.0, float(lengths.mean()))
    norm = weights.bm25_k1 * (1 - weights.bm25_b + weights.bm25_b * lengths / mean)
    saturated = matches * (weights.bm25_k1 + 1) / (matches + np.maximum(norm, 1e-6)[:, None])
    return np.asarray(saturated @ (idf * query.weights), np.float32)


def _term_mass(matches: Floats, query: PassageQuery) -> Floats:
    """Return each query term's share (n,) of the total weight of query terms in the skill."""
    found = (matches > 0).sum(axis=0)
    idf = np.log1p((len(matches) - found + 0.5) / (found + 0.5))
    mass = np.where(found, idf * query.weights, 0.0)
    return np.asarray(mass / max(float(mass.sum()), 1e-6), np.float32)


def standardise(values: Floats) -> Floats:
    """Scale values to zero mean and unit standard deviation; zeros if all are equal."""
    spread = float(values.std()) if values.size else 0.0
    if spread < 1e-9:
        return np.zeros_like(values)
    return np.asarray((values - values.mean()) / spread, np.float32)


def _find_chapters(sections: Sequence[Section]) -> npt.NDArray[np.intp]:
    """Return the chapter number of each section; headings of level 1 and 2 begin a chapter."""
    opens = np.fromiter((section.level <= 2 for section in sections), np.intp, len(sections))
    return np.cumsum(opens)


def _smooth(
    base: Floats, chapters: npt.NDArray[np.intp], weights: PassageWeights
) -> npt.NDArray[np.floating]:
    """Add weighted scores of the neighbours in the chapter, and of the chapter's best passage."""
    if not base.size:
        return base
    same = chapters[1:] == chapters[:-1]
    smoothed = base.astype(np.float64)
    smoothed[1:] += weights.neighbour * np.where(same, base[:-1], 0)
    smoothed[:-1] += weights.neighbour * np.where(same, base[1:], 0)
    best = np.full(int(chapters.max()) + 1, -np.inf)
    np.maximum.at(best, chapters, smoothed)
    return np.asarray(smoothed + weights.chapter * best[chapters])
