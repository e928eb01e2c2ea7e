from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import UsageError
from search.text.query_understanding import MAX_TASK_TERMS, understand

TASK = """Read `/data/tides.xlsx` and compute the mean range for each port.
- Write the result to results/summary.pdf
- Compare it with last year's range.
"""


def test_formats_and_language_of_a_task() -> None:
    found = understand(TASK)
    assert set(found.formats) == {"pdf", "xlsx"}
    assert "excel" in found.formats["xlsx"]
    assert found.language == "en"


def test_repeated_terms_weigh_more() -> None:
    found = understand("loom loom loom kiln")
    weights = dict(zip(found.terms, found.weights.tolist(), strict=True))
    assert weights["kiln"] == 1.0
    assert weights["loom"] == pytest.approx(1 + 0.5 * 1.0986, abs=1e-3)


def test_formats_are_named_without_a_suffix() -> None:
    assert set(understand("Turn the PowerPoint deck into a PDF").formats) == {"pdf", "pptx"}


@pytest.mark.parametrize(
    ("task", "formats"),
    [
        ("把ＰＤＦ转成．ｘｌｓｘ", {"pdf", "xlsx"}),
        ("把plan.dwg转换成png图片", {"dwg", "png"}),
        ("打开/data/plan.dwg并转换成图片", {"dwg"}),
    ],
)
def test_formats_are_found_between_chinese_characters(task: str, formats: set[str]) -> None:
    assert set(understand(task).formats) == formats


def test_an_address_or_version_is_no_format() -> None:
    assert "5" not in understand("use release 3.5 of the tool").formats


@pytest.mark.parametrize("text", ["", "  \n\t", "\0"])
def test_an_empty_task_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        understand(text)


def test_stop_words_alone_have_no_terms() -> None:
    found = understand("what is it")
    assert found.terms == ()
    assert len(found.ids) == len(found.weights) == len(found.pairs) == 0


def test_a_huge_task_is_bounded() -> None:
    huge = " ".join(f"word{i % 9973}x{i % 7919}" for i in range(100_000)) + " final buoy"
    start = time.thread_time()
    found = understand(huge)
    assert time.thread_time() - start < 60
    assert len(found.terms) <= MAX_TASK_TERMS
    assert found.text.endswith("final buoy")


@pytest.mark.parametrize(
    "unit", ["-", ".", "~", "`", "a-", "--a", "1.", "a.b", "-.", "/", "@a.", "\n"]
)
def test_no_run_of_characters_takes_long_to_read(unit: str) -> None:
    """A regular expression with backtracking would let one query block the process for minutes."""
    start = time.thread_time()
    understand("x " + unit * (200_000 // len(unit)))
    assert time.thread_time() - start < 30


@settings(max_examples=100, deadline=None)
@given(st.text(min_size=1, max_size=300))
def test_any_text_is_understood_alike_twice(text: str) -> None:
    if not text.replace("\0", " ").strip():
        return
    first, second = understand(text), understand(text)
    assert (first.terms, first.formats) == (second.terms, second.formats)
    assert len(first.terms) == len(first.ids) == len(first.weights)
    assert first.pair_positions.shape == (len(first.pairs), 2)


def test_a_chinese_question_has_as_many_words_as_an_english_one() -> None:
    chinese = understand("如何把扫描的发票批量转换成可以搜索的表格文件")
    assert len(chinese.terms) > 18
    assert chinese.words == len(chinese.terms) / 2
    assert understand("turn scanned invoices into tables").words == 4
