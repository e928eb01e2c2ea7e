from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.protocol import TermIds
from search.text.query_understanding import Understanding, understand
from search.text.script_balance import balance_scripts
from search.text.tokens import term_id

TASK = "我需要寫一份 Zettelkasten 使用文件"
COMMON = {"使用": 2000, "需要": 1600, "文件": 1500}


class Library:
    def __init__(self, known: Mapping[str, int], skills: int) -> None:
        self.counts = {term_id(term): count for term, count in known.items()}
        self.skills = skills

    def __len__(self) -> int:
        return self.skills

    def document_frequencies(self, terms: TermIds) -> npt.NDArray[np.int64]:
        return np.array([self.counts.get(one, 0) for one in terms.tolist()], dtype=np.int64)


def balance(task: str, known: Mapping[str, int], skills: int) -> Understanding:
    return balance_scripts(understand(task), Library(known, skills))


def weights_of(understanding: Understanding) -> dict[str, float]:
    return dict(zip(understanding.terms, understanding.weights.tolist(), strict=True))


def mass(understanding: Understanding, known: Mapping[str, int], skills: int) -> float:
    found = np.array([known.get(term, 0) for term in understanding.terms])
    return float(understanding.weights @ np.log1p((skills - found + 0.5) / (found + 0.5)))


def test_a_word_of_letters_outweighs_common_chinese_words_of_a_mixed_library() -> None:
    found = weights_of(balance(TASK, COMMON | {"zettelkasten": 3}, 10_000))
    assert found["zettelkasten"] > 1.4
    assert found["需要"] < 0.5
    assert found["使用"] < found["需要"]
    assert found["使用"] >= 0


def test_chinese_words_keep_their_order_in_a_chinese_library() -> None:
    known = {"使用": 9900, "需要": 6000, "文件": 500}
    found = weights_of(balance("需要使用文件", known, 10_000))
    assert found["需要"] == pytest.approx(found["文件"], rel=0.05)


@pytest.mark.parametrize(
    ("task", "common", "bigram"),
    [
        ("私の Zettelkasten のメモを整理して書き直す", "する", "整理"),
        ("내 Zettelkasten 메모를 정리하고 다시 쓰기", "니다", "정리"),
        ("整理我的 Zettelkasten 笔记", "使用", "整理"),
    ],
)
def test_terms_of_a_language_that_few_skills_have_count_little(
    task: str, common: str, bigram: str
) -> None:
    known = {common: 40, bigram: 2, "zettelkasten": 3}
    few = weights_of(balance(task, known, 10_000))
    assert few["zettelkasten"] == pytest.approx(1.4, abs=0.5)
    assert few[bigram] < 0.05
    assert few["\0"] > 1.0  # what the terms of the language lose, and no skill has
    many = weights_of(balance(task, known | {common: 4_000}, 10_000))
    assert many[bigram] > 0.5
    assert "\0" not in many


def test_a_chinese_task_with_a_kana_in_a_name_is_chinese() -> None:
    known = COMMON | {"鲜の": 3}
    found = weights_of(balance("我需要使用鲜の每日的订单文件", known, 10_000))
    assert found["订单"] > 0.5


def test_a_task_without_chinese_words_is_unchanged() -> None:
    task = understand("write a Zettelkasten note")
    assert balance_scripts(task, Library({}, 10)) is task


@settings(max_examples=100, deadline=None)
@given(
    st.text(alphabet="使用需要文件寫ab 12", min_size=1).filter(str.strip),
    st.integers(0, 3000),
    st.integers(0, 100_000),
)
def test_the_mass_of_a_task_stays_the_same(task: str, count: int, skills: int) -> None:
    known = {term: min(count, skills) for term in ("使用", "需要", "文件", "ab")}
    balanced = balance(task, known, skills)
    assert np.isfinite(balanced.weights).all()
    assert (balanced.weights >= 0).all()
    before, after = mass(understand(task), known, skills), mass(balanced, known, skills)
    assert after == pytest.approx(before, rel=1e-3, abs=1e-6)
