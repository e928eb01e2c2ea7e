"""Traditional characters as simplified ones."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from search.text.characters import pack, simplified


def test_known_pairs() -> None:
    assert simplified("檔案轉換 後 PDF") == "档案转换 后 PDF"
    assert simplified("薴") == simplified("苧") == "苎"
    assert simplified("already simple 简体") == "already simple 简体"


@given(st.text(max_size=200))
@settings(max_examples=50, deadline=None)
def test_the_length_stays_and_twice_is_once(text: str) -> None:
    once = simplified(text)
    assert len(once) == len(text)
    assert simplified(once) == once


def test_packing_leaves_out_what_is_no_pair() -> None:
    table = ["見\t见 現\n", "同\t同\n", "ab\tc\n", "\U00020000\t见\n", "壞\n"]
    assert pack(table) == pack(["見\t见\n"])
