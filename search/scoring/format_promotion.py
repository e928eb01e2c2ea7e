"""Promotion of skills about a file format that the task names.

A task often needs, in addition to its subject, the skill for a format that it names once, and the
words of the subject outweigh that one word. Such a skill is moved up to a place among the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from search.packed_records import HashLists
from search.scoring.library_statistics import LibraryStatistics
from search.text.tokens import term_ids

MIN_DEDICATED_SHARE = 0.02
"""Minimum ratio of skills named after a format to skills that mention it.

It excludes formats that need no skill: many skills mention JSON and hardly any is about it. The
ratio hardly depends on the size of the library.
"""

MIN_FORMAT_IDF = 1.0
"""Formats with a lower idf are mentioned by too much of the library to single out a skill."""

MIN_OWNER_SHARE = 0.5
"""Minimum share of the format in the idf mass of a skill's name, for a skill to own it."""

_SHARE_WEIGHT = 5.0
"""Weight of that share, added to the score, when several skills own a format."""


def has_dedicated_skills(words: Sequence[str], library: LibraryStatistics) -> bool:
    """Return whether the library has skills about a format; `words`: index terms of the format's
    names."""
    ids = term_ids(words)
    mentions = int(library.document_frequencies(ids).sum())
    owners = int(library.name_frequencies(ids).sum())
    rare = float(library.idf(ids).min(initial=np.inf)) >= MIN_FORMAT_IDF
    return rare and owners > 0 and owners >= MIN_DEDICATED_SHARE * mentions


def promote_format_owners(
    formats: Mapping[str, Sequence[str]],
    names: HashLists,
    scores: npt.NDArray[np.float64],
    library: LibraryStatistics,
    order: list[int],
    places: int,
) -> tuple[list[int], dict[int, str]]:
    """Move the best owner of each format with dedicated skills into the first `places`.

    formats: index terms of each format that the task names. names: name terms of each candidate,
    in the order of `scores`. order: candidates, best first. At most half of the places are used;
    the last of the first `places` that own no such format make room.

    Returns the new order, and the format of each candidate that was moved up.
    """
    slots: dict[int, str] = {}
    first = order[:places]
    kept: set[int] = set()
    for kind, words in formats.items() if places > 0 else ():
        owners = _owners(words, names, library) if has_dedicated_skills(words, library) else {}
        if not owners:
            continue
        # Ties go to the candidate that ranks higher.
        best = max(
            (i for i in order if i in owners),
            key=lambda i: scores[i] + _SHARE_WEIGHT * owners[i],
        )
        if best in first:
            kept.add(best)
        elif len(slots) < places // 2:
            slots.setdefault(best, kind)
    leaving = [i for i in reversed(first) if i not in kept][: len(slots)]
    head = [i for i in first if i not in leaving]
    placed = {*head, *slots}
    return [*head, *slots, *(i for i in order if i not in placed)], slots


def _owners(words: Sequence[str], names: HashLists, library: LibraryStatistics) -> dict[int, float]:
    """Return the candidates whose name is mostly the format, with the share of the format in it."""
    terms, owners = names.values, names.owners
    is_format = np.isin(terms, term_ids(words))
    named = np.unique(owners[is_format])
    kept = np.isin(owners, named)
    idf = library.idf(terms[kept]).astype(np.float64)
    mass = np.bincount(owners[kept], weights=idf, minlength=len(names))
    format_mass = np.bincount(owners[kept], weights=idf * is_format[kept], minlength=len(names))
    shares = {i: float(format_mass[i] / max(mass[i], 1e-9)) for i in named.tolist()}
    return {i: share for i, share in shares.items() if share >= MIN_OWNER_SHARE}
