"""Whatever a skill says, it stays where it stands: at a terminal, in MCP results, in JSON, and in
server-sent events, as in the Markdown (`test_framing`)."""

from __future__ import annotations

import contextlib
import io
import json
import unicodedata

import click
from hypothesis import given, reject, settings

from search.protocol import StoredRevision
from skills.bundle.escaping import dump_terminal_json
from skills.bundle.model import Bundle, Withheld, WithheldSkill
from skills.parsing.decoding import ParseError
from tests.support.samples.documents import tiny_document
from tests.unit.skills.bundle.test_framing import HOSTILE, bundle_of, kind, outside
from workers.cli.common import print_table
from workers.cli.library.query import _print_summary
from workers.http.queries.query_service import _event
from workers.mcp.line_excerpt import clip_line_ranges, render_lines

_BOLD = ("\x1b[1m", "\x1b[22m", "\x1b[0m")
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"


def full_bundle(text: str) -> Bundle:
    """A bundle whose every value from a skill, what is withheld too, is the same text."""
    withheld = WithheldSkill(skill_id=f"home:{text}", kind="licence", reason=text)
    return bundle_of(text).model_copy(
        update={
            "reason": text,
            "degraded": (text,),
            "withheld": Withheld(count=1, kinds={"licence": 1}, skills=(withheld,)),
        }
    )


def at_terminal(bundle: Bundle) -> str:
    """What the command line prints, colours included."""
    printed = io.StringIO()
    with click.Context(click.Command("query"), color=True), contextlib.redirect_stdout(printed):
        _print_summary(bundle)
        _print_summary(bundle.model_copy(update={"status": "NO_SKILL_HIT"}))
        print_table([(bundle.skills[0].name, bundle.reason)], ("name", "reason"))
    return printed.getvalue()


def steers(text: str) -> list[str]:
    """Characters that could steer a terminal or show nothing."""
    plain = text
    for style in _BOLD:
        plain = plain.replace(style, "")
    return [
        c for c in plain if c not in "\n" + _JOINERS and unicodedata.category(c) in ("Cc", "Cf")
    ]


PLAIN = at_terminal(full_bundle("x"))


@given(HOSTILE)
@settings(max_examples=50, deadline=None)
def test_a_terminal_shows_the_same_lines_whatever_a_skill_says(text: str) -> None:
    printed = at_terminal(full_bundle(text))
    assert printed.count("\n") == PLAIN.count("\n")
    assert len(printed.splitlines()) == len(PLAIN.splitlines())
    assert [printed.count(style) for style in _BOLD] == [PLAIN.count(style) for style in _BOLD]
    assert steers(printed) == []


@given(HOSTILE)
@settings(max_examples=50, deadline=None)
def test_json_is_the_same_data_and_steers_no_terminal(text: str) -> None:
    data = full_bundle(text).model_dump(mode="json") | {text: [text, "\x7f"]}
    shown = dump_terminal_json(data)
    assert json.loads(shown) == data
    assert not [c for c in shown if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs")]


@given(HOSTILE)
@settings(max_examples=50, deadline=None)
def test_an_event_of_a_stream_is_one_event(text: str) -> None:
    data = full_bundle(text).model_dump(mode="json")
    lines = _event("done", data).encode().decode().replace("\r\n", "\n").split("\n")
    assert [line.partition(":")[0] for line in lines] == ["event", "data", "", ""]
    assert json.loads(lines[1].removeprefix("data: ")) == data


def kinds(lines: list[str]) -> list[str]:
    """The frame's lines, but for what the scanner says."""
    reported = [kind(line) for line in lines]
    return [one for one in reported if one and not one.startswith("- caution")]


@given(HOSTILE)
@settings(max_examples=50, deadline=None)
def test_what_mcp_reads_of_a_skill_stays_in_its_frame(text: str) -> None:
    def read(body: str) -> str:
        lines = [line for line in f"{body} a".splitlines() if line.strip()]
        try:
            document = tiny_document("anvil", "\n\n".join(["word", *lines, "end"]))
        except ParseError:
            reject()  # so many control characters that the file is binary
        revision = StoredRevision(
            document.key, "0" * 64, document.parsed, document.passage_terms, ()
        )
        spans = clip_line_ranges(document.parsed, [])
        result = render_lines(revision, "/srv/anvil/SKILL.md", spans, 50_000)
        assert json.loads(result.model_dump_json())["text"] == result.text
        return result.text

    found, passages = outside(read(text))
    plain, _ = outside(read("x"))
    assert passages
    assert kinds(found) == kinds(plain)
