"""Terms that a language model wrote about skills: their tokens in the index, and their use.

They are kept apart from a skill's own terms and by origin (stage, version of the prompt, model), so
that a setting can switch them off at once and no two models are mixed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from search.protocol import FIELDS, TEXT_FIELDS, CompletedTerms, ForwardRecord, Vector
from search.text.tokens import term_ids, tokenize, word_count
from skills.record import Completion

COMPLETED = FIELDS.index("completed")
"""Index of the field `completed` in per-field arrays."""

_Number = TypeVar("_Number", bound=np.generic)
_MAX_COUNT = np.iinfo(np.uint8).max


@lru_cache(maxsize=256)
def origin_tag(origin: str) -> str:
    """Return the short tag that marks tokens of an origin in the index."""
    return blake2b(origin.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def completion_tokens(completion: Completion) -> list[str]:
    """Return the index terms of all texts of a completion."""
    return tokenize("\n".join(text for texts in completion.fields.values() for text in texts))


def tag_tokens(completions: Iterable[Completion]) -> tuple[str, ...]:
    """Return the token stream of the field `completed`: each token with the tag of its origin."""
    return tuple(
        f"{origin_tag(completion.origin)}:{token}"
        for completion in completions
        for token in completion_tokens(completion)
    )


def tag_terms(terms: Mapping[str, float], origin: str) -> dict[str, float]:
    """Return query terms with their weights as terms of the field `completed`, of one origin."""
    tag = origin_tag(origin)
    return {f"{tag}:{term}": weight for term, weight in terms.items()}


def count_completed(completion: Completion) -> CompletedTerms:
    """Return the term counts of a completion."""
    tokens = completion_tokens(completion)
    terms, counts = np.unique(term_ids(tokens), return_counts=True)
    return CompletedTerms(
        completion.origin,
        terms,
        np.minimum(counts, _MAX_COUNT).astype(np.uint8),
        float(word_count(tokens)),
    )


def use_completed(record: ForwardRecord, origins: Collection[str]) -> ForwardRecord:
    """Return the record with the terms of these origins as its field `completed`.

    A record without any of these origins keeps the fields of its own text.
    """
    if not record.completed:
        return record
    used = [one for one in record.completed if one.origin in origins]
    if not used:
        return replace(record, completed=())
    terms = np.unique(np.concatenate([record.terms, *(one.terms for one in used)]))
    counts = np.zeros((len(terms), len(FIELDS)), dtype=np.uint8)
    counts[np.searchsorted(terms, record.terms), :COMPLETED] = record.counts
    totals = np.zeros(len(terms), dtype=np.int64)
    for one in used:
        totals[np.searchsorted(terms, one.terms)] += one.counts
    counts[:, COMPLETED] = np.minimum(totals, _MAX_COUNT)
    lengths = np.append(record.lengths, np.float32(sum(one.length for one in used)))
    return replace(record, terms=terms, counts=counts, lengths=lengths, completed=())


def stack_fields(
    counts: Sequence[npt.NDArray[np.uint8]], lengths: Sequence[Vector]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float64]]:
    """Return the counts of all records below each other, and their lengths (records, fields).

    All records get the field `completed` if any record has it.
    """
    if not counts:
        fields = len(TEXT_FIELDS)
        return np.empty((0, fields), dtype=np.uint8), np.empty((0, fields))
    if len({len(one) for one in lengths}) > 1:
        counts, lengths = [*map(widen, counts)], [*map(widen, lengths)]
    return np.concatenate(counts), np.stack(lengths).astype(np.float64)


def widen(fields: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """Return an array with zeros added to its last axis, so that it covers all FIELDS."""
    added = len(FIELDS) - fields.shape[-1]
    return np.pad(fields, [(0, 0)] * (fields.ndim - 1) + [(0, added)])
