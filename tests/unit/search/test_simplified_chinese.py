"""Traditional characters as simplified ones."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from search.text.simplified_chinese import to_simplified
from tests.support.samples.data_files import build_character_table


def test_known_pairs() -> None:
    assert to_simplified("檔案轉換 後 PDF") == "档案转换 后 PDF"
    assert to_simplified("薴") == to_simplified("苧") == "苎"
    assert to_simplified("already simple 简体") == "already simple 简体"


@given(st.text(max_size=200))
@settings(max_examples=50, deadline=None)
def test_the_length_stays_and_twice_is_once(text: str) -> None:
    once = to_simplified(text)
    assert len(once) == len(text)
    assert to_simplified(once) == once


def test_packing_leaves_out_what_is_no_pair() -> None:
    table = ["見\t见 現\n", "同\t同\n", "ab\tc\n", "\U00020000\t见\n", "壞\n"]
    assert build_character_table(table) == build_character_table(["見\t见\n"])
