"""Normal forms are those of Unicode, but for texts of nothing but marks."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from search.text.query_understanding import understand
from skills.unicode_normalization import MAX_MARKS, normalize

ABOVE, BELOW = "\u0300", "\u0316"


@given(st.text(st.sampled_from(f"aé한ä─\u0344\u093c\u200d{ABOVE}{BELOW}"), max_size=MAX_MARKS))
def test_a_normal_form_is_that_of_unicode(text: str) -> None:
    assert normalize("NFKC", text) == unicodedata.normalize("NFKC", text)


def test_characters_that_are_no_marks_are_kept() -> None:
    line = "─" * 200 + "\n" + "你好。" * 50 + "🔥" * 100
    assert normalize("NFC", line) == line


def test_a_million_marks_take_no_time() -> None:
    """By insertion, they would take minutes."""
    text = "a" + (ABOVE + BELOW) * 500_000 + "b"
    assert normalize("NFKD", text) == f"a{BELOW * (MAX_MARKS // 2)}{ABOVE * (MAX_MARKS // 2)}b"
    assert understand(f"fire the kiln {text}").terms[:2] == ("fire", "kiln")
