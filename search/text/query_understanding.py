"""Query understanding without a model: weighted terms, bigrams, file formats, language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from config.errors import UsageError
from search.protocol import TermIds, Vector
from search.text.background_frequencies import load_background
from search.text.file_formats import find_formats
from search.text.function_words import drop_function_words
from search.text.tokens import bigram_ids, term_ids, tokenize, word_count
from skills.parsing.language_detection import detect_language

FIRST_CHARACTERS, LAST_CHARACTERS = 48_000, 16_000
"""Characters that are used of the start and the end of a longer task: about 8,000 and 2,500 English
words."""

MAX_TASK_TERMS = 600
"""Maximum distinct terms; those of the highest weight times background idf are kept."""


@dataclass(frozen=True, slots=True)
class Understanding:
    """A task, analysed for search.

    terms, ids, weights: the distinct terms in order of first use, their hashes (uint64) and query
    weights 1 + .5 ln(count) (float32), all (n,). pairs, pair_positions: hashes of the distinct
    adjacent pairs, (p,), and the positions of their terms in `terms`, (p, 2). formats: the file
    formats named, each with the index terms of its names. language: `en`, `zh` or another code.
    """

    text: str
    terms: tuple[str, ...]
    ids: TermIds
    weights: Vector
    pairs: TermIds
    pair_positions: np.ndarray
    formats: dict[str, tuple[str, ...]]
    language: str

    @property
    def has_words(self) -> bool:
        """Whether the task has a letter or a digit."""
        return any(map(str.isalnum, self.text))

    @property
    def words(self) -> float:
        """Number of distinct words; a Chinese bigram counts as half a word."""
        return word_count(self.terms)


def understand(task: str) -> Understanding:
    """Analyse a task; raises UsageError if it is empty.

    Deterministic. Function words are no terms. Of a very long task only the first FIRST_CHARACTERS
    and the last LAST_CHARACTERS are used, which bounds the time (about 30 ms).
    """
    text = clean_text(task)
    stream = drop_function_words(tokenize(text), text)
    terms, weights = _weigh_terms(stream)
    pairs, places = _find_pairs(stream, terms)
    return Understanding(
        text=text,
        terms=terms,
        ids=term_ids(terms),
        weights=weights,
        pairs=pairs,
        pair_positions=places,
        formats=find_formats(text),
        language=detect_language(text),
    )


def clean_text(task: str) -> str:
    """Return the part of a task that is analysed; raises UsageError if it is empty."""
    text = _truncate(task.replace("\0", " ").strip())
    if not text:
        raise UsageError("the task is empty; describe what is to be done")
    return text


def _truncate(text: str) -> str:
    if len(text) <= FIRST_CHARACTERS + LAST_CHARACTERS:
        return text
    return f"{text[:FIRST_CHARACTERS]}\n{text[-LAST_CHARACTERS:]}"


def _weigh_terms(stream: Sequence[str]) -> tuple[tuple[str, ...], Vector]:
    counts = Counter(stream)
    terms = list(counts)
    weights = 1.0 + 0.5 * np.log(np.array([counts[term] for term in terms], dtype=np.float64))
    if len(terms) > MAX_TASK_TERMS:
        mass = weights * load_background().idf(term_ids(terms))
        kept = np.sort(np.argsort(-mass, kind="stable")[:MAX_TASK_TERMS])
        terms, weights = [terms[place] for place in kept.tolist()], weights[kept]
    return tuple(terms), weights.astype(np.float32)


def _find_pairs(stream: Sequence[str], terms: Sequence[str]) -> tuple[TermIds, np.ndarray]:
    places = {term: place for place, term in enumerate(terms)}
    ends: dict[int, tuple[int, int]] = {}
    for pair, left, right in zip(
        bigram_ids(term_ids(stream)).tolist(), stream, stream[1:], strict=False
    ):
        if left in places and right in places:
            ends.setdefault(pair, (places[left], places[right]))
    ordered = sorted(ends)
    return (
        np.array(ordered, dtype=np.uint64),
        np.array([ends[pair] for pair in ordered], dtype=np.intp).reshape(len(ordered), 2),
    )
