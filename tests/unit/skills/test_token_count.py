from hypothesis import given, settings
from hypothesis import strategies as st

from skills.token_count import count_tokens


def test_an_empty_text_has_no_tokens() -> None:
    assert count_tokens("") == 0
    assert count_tokens(" \n\t ") == 0


def test_short_words_count_one_and_long_words_more() -> None:
    assert count_tokens("read the file") == 3
    assert count_tokens("internationalisation") == 4


def test_each_chinese_character_counts_one() -> None:
    assert count_tokens("读取文件") == 4


def test_punctuation_counts_each_mark() -> None:
    assert count_tokens("(a, b)") == 5


def test_an_unbroken_run_counts_by_its_length() -> None:
    run = "aGVsbG8gd29ybGQh" * 100
    assert count_tokens(run) >= len(run) / 6


@settings(deadline=None, max_examples=100)
@given(st.text(), st.text())
def test_counts_add_up_over_blanks(one: str, other: str) -> None:
    assert count_tokens(f"{one} {other}") == count_tokens(one) + count_tokens(other)
