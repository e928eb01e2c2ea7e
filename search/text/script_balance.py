"""Balance between Chinese, Japanese or Korean terms and words of other scripts in a task.

In a library of which a fifth is Chinese, every Chinese bigram is rare: "需要" (need) would weigh as
much as the name of a product, and any Chinese skill would come before the English one that has the
name. A bigram therefore counts as rare only among the skills that are written in Chinese.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from search.protocol import TermIds
from search.text.idf import compute_idf
from search.text.query_understanding import Understanding
from search.text.tokens import is_cjk, term_ids

_WORD_WEIGHT = 1.4
"""Weight of a word of another script, as a multiple of that of a bigram: a Chinese word of three or
four characters is two or three bigrams. From 1.25 to 1.5 four collections rank alike."""

_MIN_SHARE = 0.1
"""Minimum share of the library that counts as written in Chinese: few skills say little about how
common a bigram is in that language."""


@cache
def _common_terms() -> TermIds:
    """Return bigrams of which nearly every Chinese skill has one: use, need, user, file, carry out,
    one."""
    return term_ids(("使用", "需要", "用户", "文件", "进行", "一个"))


class TermCounts(Protocol):
    """Number of skills in a library, and of those with a term."""

    def __len__(self) -> int: ...

    def document_frequencies(self, terms: TermIds) -> npt.NDArray[np.int64]:
        """Return the number of skills with each term."""
        ...


def balance_scripts(task: Understanding, library: TermCounts) -> Understanding:
    """Return the task with the weights of its Chinese, Japanese and Korean terms adjusted.

    Each of these terms gets the idf that it has among the skills in Chinese, whose number is taken
    to be that of the commonest bigram. The sum of weight times idf stays the same, so that scores
    keep their scale.
    """
    chinese = np.array([is_cjk(term) for term in task.terms], dtype=bool)
    if not chinese.any():
        return task
    found, skills = library.document_frequencies(task.ids), len(library)
    common = np.concatenate([library.document_frequencies(_common_terms()), found[chinese]])
    written = max(int(common.max()), round(_MIN_SHARE * skills))
    idf = compute_idf(found, skills)
    weights = task.weights * np.where(chinese, 1.0, _WORD_WEIGHT)
    weights[chinese] *= (compute_idf(found, written) / np.maximum(idf, 1e-9))[chinese]
    mass, balanced = float(task.weights @ idf), float(weights @ idf)
    return replace(task, weights=(weights * (mass / max(balanced, 1e-9))).astype(np.float32))
