"""Balance between Chinese, Japanese or Korean terms and words of other scripts in a task.

In a library of which a fifth is Chinese, every Chinese bigram is rare: "需要" (need) would weigh as
much as the name of a product, and any Chinese skill would come before the English one that has the
name. A bigram therefore counts as rare only among the skills that are written in its language. In
a library with a few Japanese skills, each of them would match a Japanese task about anything: there
bigrams count in proportion to the number of these skills.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from search.protocol import TermIds
from search.text.idf import compute_idf
from search.text.query_understanding import Understanding
from search.text.task_language import detect_east_asian_language
from search.text.tokens import is_cjk, term_id, term_ids

_WORD_WEIGHT = 1.4
"""Weight of a word of another script, as a multiple of that of a bigram: a Chinese word of three or
four characters is two or three bigrams. From 1.25 to 1.5 four collections rank alike."""

_MIN_SHARE = 0.1
"""Share of the library in the language of the bigrams from which they count in full: few skills say
little about how common a bigram is in that language."""

_COMMON_BIGRAMS = {
    "zh": ("使用", "需要", "用户", "文件", "进行", "一个"),
    "ja": ("する", "です", "ます", "から", "ない", "こと"),
    "ko": ("니다", "하는", "으로", "에서", "합니", "하고"),
}
"""Bigrams of which nearly every skill in the language has one."""

_NO_TERM = "\0"
"""A term that no skill has, since terms consist of letters and digits."""


class TermCounts(Protocol):
    """Number of skills in a library, and of those with a term."""

    def __len__(self) -> int: ...

    def document_frequencies(self, terms: TermIds) -> npt.NDArray[np.int64]:
        """Return the number of skills with each term."""
        ...


def balance_scripts(task: Understanding, library: TermCounts) -> Understanding:
    """Return the task with the weights of its Chinese, Japanese and Korean terms adjusted.

    Each of these terms gets the idf that it has among the skills in the language of the task, whose
    number is taken to be that of the commonest bigram. The sum of weight times idf stays the same,
    so that scores keep their scale: as far as the library has too few of these skills, the rest
    goes to a term that no skill has.
    """
    bigrams = np.array([is_cjk(term) for term in task.terms], dtype=bool)
    if not bigrams.any():
        return task
    found, skills = library.document_frequencies(task.ids), len(library)
    written = max(int(library.document_frequencies(_list_common(task.terms)).max()), 1)
    share = min(written / max(_MIN_SHARE * skills, 1.0), 1.0)
    idf = compute_idf(found, skills)
    weights = task.weights * np.where(bigrams, share, _WORD_WEIGHT)
    weights[bigrams] *= (compute_idf(found, written) / np.maximum(idf, 1e-9))[bigrams]
    mass, balanced = float(task.weights @ idf), float(weights @ idf)
    whole = mass / max(balanced, 1e-9)
    weights *= min(1.0 + share * (whole - 1.0), whole)
    if share == 1.0:
        return replace(task, weights=weights.astype(np.float32))
    rest = max(mass - float(weights @ idf), 0.0) / compute_idf(np.zeros(1, np.int64), skills)[0]
    return replace(
        task,
        terms=(*task.terms, _NO_TERM),
        ids=np.append(task.ids, np.uint64(term_id(_NO_TERM))),
        weights=np.append(weights, rest).astype(np.float32),
    )


def _list_common(terms: Sequence[str]) -> TermIds:
    """Return the common bigrams of the language of a task, with those of the task itself that only
    this language has."""
    language = detect_east_asian_language("".join(terms))
    own = (one for one in terms if detect_east_asian_language(one) == language)
    return term_ids((*_COMMON_BIGRAMS[language], *own))
