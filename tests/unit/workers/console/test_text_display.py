"""Text of others as pages print it."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from workers.console.pages import build_url
from workers.console.text_display import (
    MAX_CHARACTERS,
    MAX_LINE_CHARACTERS,
    format_bytes,
    format_event_type,
    format_iso_time,
    format_sentence,
    format_time,
    shorten,
    show_code,
    show_line,
    show_value,
    skill_path,
)
from workers.quantities import format_duration


def test_plain_values_are_unchanged() -> None:
    for value in ("kiln <b>", "Töpfern 窯", "👩‍🔬 🏴󠁧󠁢󠁥󠁮󠁧󠁿", 7, None, Markup("<i>")):
        assert show_value(value) == value


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\x00", "\x1b[31m"[0], "\u2066\u2069"])
def test_invisible_characters_of_values_are_named(hidden: str) -> None:
    shown = show_value(f"a{hidden}b")
    assert shown == f"a[hidden characters: {len(hidden)}]b"


def test_values_are_bounded() -> None:
    assert show_value("x" * 10_000) == "x" * MAX_CHARACTERS + "… [8,000 more characters]"
    for mark in "\u0301\u0e47\u0489":
        assert show_value("a" + mark * 100) == "a" + mark * 6 + "[94 more marks]"
    assert show_value("\ud800x") == "[U+D800]x"


def test_a_text_that_is_cut_says_so() -> None:
    assert shorten("a kiln", 6) == "a kiln"
    assert shorten("a kiln of bricks", 8) == "a kiln…"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("no skill", "No skill."), ("log in.", "Log in."), ("why?", "Why?"), ("cut…", "Cut…")],
)
def test_a_reason_is_printed_as_a_sentence(text: str, sentence: str) -> None:
    assert format_sentence(text) == sentence


def test_urls_are_printed_whole() -> None:
    url = build_url("/console/ask", {"task": "x" * MAX_CHARACTERS})
    assert show_value(url) == f"/console/ask?task={'x' * MAX_CHARACTERS}"
    path = skill_path(f"a:{'窯' * 300}")
    assert len(path) > MAX_CHARACTERS
    assert show_value(path) == path


def test_text_between_backticks_is_code() -> None:
    assert show_code("see `a <b>`; or <c>") == "see <code>a &lt;b&gt;</code>; or &lt;c&gt;"
    assert show_code("one ` and `\u202e`") == "one <code> and </code>[hidden characters: 1]`"


def test_lines_are_escaped_and_name_their_characters() -> None:
    assert show_line("a <b> & c") == "a &lt;b&gt; &amp; c"
    assert show_line("\tindented") == "\tindented"
    shown = show_line("x\u202e<b>")
    assert "RIGHT-TO-LEFT OVERRIDE" in shown
    assert "U+202E" in shown
    assert "\u202e" not in shown
    assert shown.endswith("&lt;b&gt;")
    assert "and 8 more" in show_line("\u200b" * 20)
    assert "2,000 more characters" in show_line("x" * (MAX_LINE_CHARACTERS + 2_000))


def test_the_path_of_a_skill_holds_any_id() -> None:
    assert skill_path("team:deploy/blue") == "/console/skills/team:deploy/blue"
    assert skill_path("a:b c?d#e%f<") == "/console/skills/a:b%20c%3Fd%23e%25f%3C"
    assert skill_path("a:\ud800") == "/console/skills/a:%ED%A0%80"


def test_numbers_have_units() -> None:
    assert [format_duration(one) for one in (None, 0.2, 42, 60, 7_200, 900_000)] == [
        *("never", "200 ms", "42 s", "1 min", "2 h", "10 days")
    ]
    assert [format_bytes(one) for one in (812, 14_240, 3_100_000)] == [
        *("812 B", "14.2 kB", "3.1 MB")
    ]
    assert format_time(0) == "never"
    assert format_time(86_400) == "1970-01-02 00:00:00 UTC"
    assert format_iso_time("2026-01-02T03:04:05+01:00") == "2026-01-02 02:04:05 UTC"
    assert format_iso_time(None) == "unknown"
    assert format_event_type("skillbus.skill.removed.v1") == "skill removed"
