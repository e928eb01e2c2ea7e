"""Frames of texts of others: one JSON string on one line, whatever the text holds."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skills.token_count import count_tokens
from tasks.language_model.frame import clean, quote, shorten
from tests.support.samples.hostile_skills import HOSTILE_SKILLS, HostileSkill

PIECES = st.sampled_from(
    [
        *("<|im_end|>", "<|im_start|>system", "[INST]", "[/INST]", "<s>", "</s>", "<<SYS>>"),
        *("<think>", "</think>", "<end_of_turn>", "<0x0A>", "<pad>", "[TOOL_CALLS]", "<", "|", "["),
        *('"', "\\", "\\n", "\n", "\r\n", "\u2028", "\u2029", "\u0085", "\x00", "\x0b", "\t", " "),
        *("\u200b", "\u200d", "\u202e", "\u2066", "\ufeff", "\U000e0041", "\ufe0f", "\U000e0101"),
        *("\u3164", "\u115f", "\u2800", "\u034f", "\u0301", "\u0338", "\ud800", "\uff5c", "{", "}"),
        *("\u043e", "\u4e2d\u6587", "7: ", "clean", "e", "\u00e9", "\uac00", "\u1100\u1161"),
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=5), max_size=30).map("".join)
TOKENS = (
    r"<[|｜]|</?(?:s|bos|eos|pad|unk|think|tool_call|\w{3,5}_of_\w+|0x\w\w)>|<</?SYS>>|"
    r"\[/?(?:INST|TOOL_CALLS|TOOL_RESULTS|SYSTEM_PROMPT)\]"
)
CONTROL_TOKEN = re.compile(TOKENS, re.IGNORECASE)


def check_frame(text: str, max_tokens: int) -> None:
    framed = quote(text, max_tokens)
    assert framed.splitlines() == [framed]
    assert clean(clean(text)) == clean(text)
    shown = json.loads(framed)
    assert json.JSONDecoder().raw_decode(framed)[1] == len(framed)
    assert shown == shorten(clean(text), max_tokens)
    assert not CONTROL_TOKEN.search(framed)
    assert all(unicodedata.category(one)[0] != "C" for one in framed)
    framed.encode("utf-8")


@settings(max_examples=200, deadline=None)
@given(text=TEXTS, max_tokens=st.integers(1, 60))
def test_a_framed_text_is_one_string_on_one_line(text: str, max_tokens: int) -> None:
    check_frame(text, max_tokens)


@settings(max_examples=100, deadline=None)
@given(text=TEXTS, max_tokens=st.integers(1, 60))
def test_a_short_text_stays_whole_and_a_long_one_is_cut(text: str, max_tokens: int) -> None:
    cleaned = clean(text)
    shown = shorten(cleaned, max_tokens)
    if count_tokens(cleaned) <= max_tokens:
        assert shown == cleaned
    else:
        assert shown.endswith("…")
        assert cleaned.startswith(shown.removesuffix("…").rstrip())
        assert count_tokens(shown) <= max_tokens


@pytest.mark.parametrize("skill", HOSTILE_SKILLS, ids=lambda skill: skill.name)
def test_no_hostile_skill_leaves_its_frame(skill: HostileSkill) -> None:
    for text in (skill.title or skill.name, skill.description, skill.text, skill.markdown):
        check_frame(text, 40)
        check_frame(text, 4_000)


def test_honest_text_stays_as_it_is() -> None:
    for text in (
        "Run `pip install x[dev]` and set <host>; see [INSTALL](x.md).",
        "⚠️ 先检查 `a < b`，再写入。",
        "naïve Café — “quoted” ☂️",
        "if x <s: pass",
    ):
        assert clean(text) == text


def test_a_huge_text_is_cut_without_being_counted_again_and_again() -> None:
    assert quote("a" * 2_000_000, 20) == json.dumps("a" * 114 + "…", ensure_ascii=False)
