"""File formats that a task names, and the skills that are about them.

A task often needs, besides its subject, the skill for a format that it mentions once: the words
of the subject outnumber that one. Such a skill gets a place of its own among the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from search.protocol import TermIds, Vector
from search.text.tokens import term_ids

MIN_DEDICATED_SHARE = 0.02
"""Skills named after a format, over skills that mention it, from which it is a craft of its own.

Many skills mention JSON and next to none is about it: nobody needs a skill to write JSON. The
ratio hardly moves with the size of the library.
"""

MIN_FORMAT_IDF = 1.0
"""A format that more of the library mentions than this idf says is its everyday business."""

MIN_OWNER_SHARE = 0.5
"""Share of the idf mass of a skill's name that must be the format's."""

_OWNING_WORTH = 5.0
"""What a name that says nothing else counts beside the score, when several own a format."""


class TermStatistics(Protocol):
    """What is asked of the library."""

    def idf(self, terms: TermIds) -> Vector:
        """Inverse document frequency of each term."""
        ...

    def document_frequencies(self, terms: TermIds) -> npt.NDArray[np.int64]:
        """In how many skills each term is."""
        ...

    def name_frequencies(self, terms: TermIds) -> npt.NDArray[np.int64]:
        """In how many names each term is."""
        ...


def has_dedicated_skills(words: Sequence[str], library: TermStatistics) -> bool:
    """Whether a format, by the index terms it goes by, is one that skills are about."""
    ids = term_ids(words)
    mentions = int(library.document_frequencies(ids).sum())
    owners = int(library.name_frequencies(ids).sum())
    rare = float(library.idf(ids).min(initial=np.inf)) >= MIN_FORMAT_IDF
    return rare and owners > 0 and owners >= MIN_DEDICATED_SHARE * mentions


def promote_format_owners(
    formats: Mapping[str, Sequence[str]],
    names: Sequence[TermIds],
    scores: npt.NDArray[np.float64],
    library: TermStatistics,
    order: list[int],
    places: int,
) -> tuple[list[int], dict[int, str]]:
    """Give the owner of each special format that the task names one of the first `places`, up to
    half of them.

    Who makes room for them are the last of these that own no such format themselves.

    names: the name terms of each candidate, in the order of `scores`; order: candidates best
    first. Returns the new order, and for each candidate that was moved up the format.
    """
    slots: dict[int, str] = {}
    first = order[:places]
    held: set[int] = set()
    for kind, words in formats.items() if places > 0 else ():
        owners = _owners(words, names, library) if has_dedicated_skills(words, library) else {}
        if not owners:
            continue
        # Ties go to the candidate that ranks higher.
        best = max(
            (i for i in order if i in owners),
            key=lambda i: scores[i] + _OWNING_WORTH * owners[i],
        )
        if best in first:
            held.add(best)
        elif len(slots) < places // 2:
            slots.setdefault(best, kind)
    leaving = [i for i in reversed(first) if i not in held][: len(slots)]
    head = [i for i in first if i not in leaving]
    placed = {*head, *slots}
    return [*head, *slots, *(i for i in order if i not in placed)], slots


def _owners(
    words: Sequence[str], names: Sequence[TermIds], library: TermStatistics
) -> dict[int, float]:
    """Candidates whose name is mostly the format, with the share of the name that is."""
    together = np.concatenate(names)
    owners = np.repeat(np.arange(len(names)), [len(name) for name in names])
    said = np.isin(together, term_ids(words))
    about = np.unique(owners[said])
    kept = np.isin(owners, about)
    idf = library.idf(together[kept]).astype(np.float64)
    mass = np.bincount(owners[kept], weights=idf, minlength=len(names))
    own = np.bincount(owners[kept], weights=idf * said[kept], minlength=len(names))
    shares = {i: float(own[i] / max(mass[i], 1e-9)) for i in about.tolist()}
    return {i: share for i, share in shares.items() if share >= MIN_OWNER_SHARE}
