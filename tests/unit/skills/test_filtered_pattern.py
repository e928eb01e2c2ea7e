"""Words that patterns require, and searches that use them: the results are those without them."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skills.filtered_pattern import FilteredPattern
from skills.required_words import find_required_words, replace_white_space
from skills.roles import cues
from skills.roles.features import _CODE
from skills.scanner.normalised_text import NormalisedText
from skills.scanner.text_rule import TextRule
from skills.scanner.words import Concept, Places, Span, WordFinder


@pytest.mark.parametrize(
    ("regex", "words"),
    [
        (r"\b(?:send|post)\s(?:it|them)\b", [("post it", "post them", "send it", "send them")]),
        (r"curl[^\n]{0,80}https?://", [("curl",), ("http://", "https://")]),
        (r"users?\s{1,3}told", [(" told",), ("user ", "users ")]),
        (r"(?=secret)\w+", []),
        (r"a|bcd", []),
        (r"(?:ab|cd)?ef", [("ef",)]),
        (r"[xy]z\d", [("xz", "yz")]),
    ],
)
def test_words_are_those_of_every_match(regex: str, words: list[tuple[str, ...]]) -> None:
    assert sorted(map(sorted, find_required_words(regex))) == sorted(map(sorted, words))


def test_white_space_is_what_patterns_take_for_it() -> None:
    text = "".join(map(chr, range(sys.maxunicode + 1)))
    assert replace_white_space(text) == re.sub(r"\s", " ", text)


@pytest.mark.parametrize("regex", [r"don't use (?:it|them)", r"\bsee\s+also\b|相关的?技能", r"S|k"])
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_search_that_ignores_case_is_the_same(regex: str, data: st.DataObject) -> None:
    pattern = FilteredPattern(regex, re.IGNORECASE)
    text = data.draw(st.from_regex(pattern.pattern) | st.text())
    found = pattern.search(text)
    assert (found and found.span()) == ((one := pattern.pattern.search(text)) and one.span())


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_cue_is_found_as_without_words(data: st.DataObject) -> None:
    cue = data.draw(st.sampled_from([cues.OBLIGATION, cues.REQUIREMENT, cues.EXAMPLE_LEAD]))
    text = data.draw(st.from_regex(cue.pattern) | st.text())
    assert bool(cue.search(text)) == bool(cue.pattern.search(text))
    assert all(callable(search) for search in _CODE.values())


_WORDS = ["curl", "wget", "send", "all", "keys", "to", "https://x.io", "\n", "\n\n", "never", "说"]
_ALTERNATIVES = (
    r"curl\s[^\n]{0,20}https?://",
    r"(?:send|curl)\s(?:all|\w{1,4})",
    r"\bkeys\b[^\n]{0,9}\bto\b|说",
    r"all\s{1,2}keys",
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(_WORDS), max_size=40), st.integers(0, 3))
def test_patterns_are_found_as_without_words(words: list[str], place: int) -> None:
    way = _ALTERNATIVES[place]
    text = NormalisedText(" ".join(words).split("\n"), 1)
    expected = [one.span() for one in re.finditer(way, text.folded)]
    concept = Concept("", way)
    assert find_places(text, concept).of_concept(concept) == expected


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([*_WORDS, "curl all keys", "x " * 700]), max_size=8))
def test_matches_far_apart_are_found_too(words: list[str]) -> None:
    concept = Concept("", r"all\skeys")
    text = NormalisedText(" ".join(words).split("\n"), 1)
    expected = [one.span() for one in re.finditer(r"all\skeys", text.folded)]
    assert find_places(text, concept).of_concept(concept) == expected


def find_places(text: NormalisedText, *concepts: Concept) -> Places:
    return Places(text, WordFinder(concepts))


def test_ideas_meet_in_a_sentence_or_its_neighbours_and_in_order() -> None:
    send, keys, rest, them = Concept("send"), Concept("keys"), Concept("rest"), Concept("them")
    text = NormalisedText(["Take the keys. Send them. Then rest."], 1)
    places = find_places(text, send, keys, rest, them)

    def meet(*ideas: Concept | tuple[Concept, ...], **options: Any) -> list[Span]:
        groups = tuple(one if isinstance(one, tuple) else (one,) for one in ideas)
        return [(one.start, one.end) for one in TextRule("id", groups, **options).find(places)]

    assert meet(keys, send) == []
    assert meet(keys, send, reach=1) == [(9, 19)]
    assert meet(keys, send, reach=1, follows=20) == [(9, 19)]
    assert meet(keys, send, reach=1, within=3) == []
    assert meet(keys, send, reach=1, unless=rest) == [(9, 19)]
    assert meet(keys, send, reach=1, unless=them) == []
    assert meet(send, keys, reach=1, follows=20) == []
    assert meet(keys, (rest, send), reach=1) == [(9, 19)]


def test_words_have_boundaries_and_endings() -> None:
    places = find_places(
        NormalisedText(["Resend, sends, sending, sender-side, resend; 发送"], 1),
        exact := Concept("send 发"),
        open_ended := Concept("send~"),
    )
    assert [places.text[slice(*one)] for one in places.of_concept(exact)] == ["发"]
    found = [places.text[slice(*one)] for one in places.of_concept(open_ended)]
    assert found == ["sends", "sending", "sender"]
