from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from search.text import tokens as module
from search.text.tokens import MAX_TOKEN_LENGTH, bigram_ids, term_id, term_ids, tokenize, word_count


def test_words_split_at_case_and_digits_keep_the_whole() -> None:
    assert tokenize("GeoPandas") == ["geopanda", "geo", "panda"]
    assert tokenize("HTTPServer") == ["httpserver", "http", "server"]
    assert tokenize("mp4") == ["mp4", "mp"]


def test_letters_beyond_ascii_are_no_parts_of_their_own() -> None:
    assert tokenize("Größe2") == ["größe2", "größe"]
    assert tokenize("ÉtatCivil") == ["étatcivil", "état", "civil"]
    assert tokenize("İstanbul KAPI") == tokenize("istanbul kapı") == ["istanbul", "kapi"]


def test_single_letters_with_a_mark_are_parts_of_words() -> None:
    assert tokenize("A/B test, R&D and Q&A") == ["ab", "test", "rd", "qa"]
    assert tokenize("E-Mail") == tokenize("e-mail") == ["email", "mail"]
    assert tokenize("图 k-means 图") == ["图", "kmean", "mean", "图"]
    assert tokenize("and/or /a/etc 3-tier ab-test") == ["tier", "ab", "test"]


def test_stop_words_and_odd_lengths_are_left_out() -> None:
    assert tokenize("the x of " + "y" * (MAX_TOKEN_LENGTH + 1)) == []


def test_snake_and_kebab_case_are_words() -> None:
    assert tokenize("tide_table-reader") == ["tide", "tabl", "reader"]


def test_chinese_runs_become_bigrams_and_single_characters_stay() -> None:
    assert tokenize("读取日志 A 图") == ["读取", "取日", "日志", "图"]
    assert word_count(tokenize("读取日志 log")) == 2.5


def test_texts_are_not_kept_in_memory() -> None:
    """Each run of Chinese would take a kilobyte for good, a hostile one megabytes."""
    before = module._split_known_word.cache_info().currsize
    tokenize(f"一份从未见过的文本。 {'x' * 5_000} {'水' * 5_000}")
    assert module._split_known_word.cache_info().currsize == before


def test_compatibility_forms_are_folded() -> None:
    assert tokenize("ＰＤＦ ﬁle") == tokenize("PDF file")


def test_operators_are_not_tokens() -> None:
    assert tokenize('"loom" AND title:* NOT (x)^2 ~ \\ /') == ["loom", "titl"]


def test_term_ids_never_change() -> None:
    assert term_id("loom") == 626855758476604954
    assert term_ids(["loom", "loom"]).tolist() == [term_id("loom")] * 2


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_any_text_gives_plain_tokens(text: str) -> None:
    tokens = tokenize(text)
    assert tokens == tokenize(text)
    for token in tokens:
        assert token.split() == [token]
        assert 1 <= len(token) <= MAX_TOKEN_LENGTH
        assert 0 <= term_id(token) < 1 << 63


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["loom", "kiln", "tide", "图表"]), max_size=12))
def test_bigrams_are_of_neighbours_in_order(tokens: list[str]) -> None:
    pairs = bigram_ids(term_ids(tokens))
    assert len(pairs) == max(len(tokens) - 1, 0)
    known = dict(zip(pairwise(tokens), pairs.tolist(), strict=False))
    assert len(set(known.values())) == len(known)
    assert pairs.dtype == np.uint64


def test_traditional_characters_meet_simplified_ones() -> None:
    assert tokenize("代碼審查") == tokenize("代码审查")
    assert tokenize("資料庫 SQL") == tokenize("资料库 SQL")


def test_languages_with_a_sign_in_their_name() -> None:
    assert tokenize("C++ and c#, F#.") == ["cpp", "csharp", "fsharp"]
    assert "cpp" in tokenize("c++17")
    assert tokenize("page.html#c #channel") == ["page", "html", "channel"]


def test_words_of_indic_scripts_keep_their_vowel_signs() -> None:
    assert tokenize("हिन्दी में रिपोर्ट लिखो।") == ["हिन्दी", "में", "रिपोर्ट", "लिखो"]
    assert tokenize("தமிழ் বাংলা, తెలుగు PDF") == ["தமிழ்", "বাংলা", "తెలుగు", "pdf"]
