"""Words that patterns require, and searches that use them: the results are those without them."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skills.filtered_pattern import FilteredPattern
from skills.required_words import find_required_words, replace_white_space
from skills.roles import cues
from skills.roles.features import _CODE
from skills.scanner.encoded_payloads import _RUN, _find_runs
from skills.scanner.normalised_text import NormalisedText
from skills.scanner.pattern_index import MAX_PARTS, PatternIndex
from skills.scanner.rule import Rule, make_rule
from skills.scanner.scan import ALL_SIGNALS, RULES
from skills.scanner.signals.phrases import Signal

_PATTERNS: list[Rule | Signal] = [*RULES, *ALL_SIGNALS]


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


@pytest.mark.parametrize("one", _PATTERNS, ids=lambda one: one.description)
def test_no_alternative_matches_without_its_words(one: Rule | Signal) -> None:
    @settings(max_examples=3, deadline=None, derandomize=True, database=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        way = data.draw(st.sampled_from(one.ways))
        text = data.draw(st.from_regex(way.pattern))
        match = way.pattern.search(text)
        assert match is not None
        assert match.group()
        assert way.may_match(replace_white_space(match.group()))

    check()


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


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(_WORDS), max_size=60))
def test_alternatives_are_found_as_by_one_pattern(words: list[str]) -> None:
    rule = make_rule("kind", 1, "what", ("curl", "send", "all", "keys", "说"), *_ALTERNATIVES)
    text = NormalisedText(" ".join(words).split("\n"), 1)
    whole = re.compile("|".join(f"(?:{way})" for way in _ALTERNATIVES), re.VERBOSE)
    expected = [match.span() for match in whole.finditer(text.folded)]
    found = PatternIndex([rule]).find_in(text.spaced, [0])
    spans = [match.span() for match in text.find_all(found[rule])] if found else []
    assert spans == expected
    lines = [
        match.span()
        for line in re.finditer(r"[^\n]+", text.folded)
        for match in whole.finditer(text.folded, *line.span())
    ]
    parted = PatternIndex([rule]).find_in(text.spaced, text.parts)
    assert (
        [one.span() for one in text.find_in_lines(parted[rule])] == lines if parted else not lines
    )


def test_a_text_of_many_paragraphs_has_few_parts() -> None:
    text = NormalisedText(["word", ""] * 500 + ["curl all keys"], 1)
    assert len(text.paragraphs) > MAX_PARTS >= len(text.parts)
    rule = make_rule("kind", 1, "what", ("keys",), r"all\skeys")
    (candidate,) = PatternIndex([rule]).find_in(text.spaced, text.parts).values()
    assert candidate.list_parts() == [len(text.parts) - 1]
    assert [match.group() for match in text.find_in_lines(candidate)] == ["all keys"]


def test_an_anchor_may_hold_a_line_feed() -> None:
    rule = make_rule("kind", 1, "what", ("a\nb",), r"a\sb")
    text = NormalisedText(["```", "a", "b", "```"], 1)
    (candidate,) = PatternIndex([rule], [rule]).find_in(text.spaced, text.parts).values()
    assert [match.group() for match in text.find_in_windows(candidate)] == ["a\nb"]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["a" * 23, "b" * 24, "C" * 4001, "=", " ", "/+", "="]), max_size=12)
)
def test_encoded_runs_are_those_of_the_pattern(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert [run.span() for run in _find_runs(text)] == [run.span() for run in _RUN.finditer(text)]
