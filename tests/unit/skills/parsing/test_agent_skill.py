"""The Agent Skills format, and frontmatter as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skills.parsing.agent_skill import FormatError, read_agent_skill
from skills.parsing.json_yaml import parse_json_yaml
from skills.parsing.strict_yaml import YamlError, YamlLimits


def read(text: str) -> dict[str, object]:
    return dict(read_agent_skill(text.split("\n")).frontmatter)


def test_every_field_is_kept_as_written() -> None:
    frontmatter = read(
        "---\nname: kiln\ndescription: |\n  Fire a kiln.\n  Slowly.\nlicense: MIT\n"
        'metadata:\n  version: "1.0"\n  build: 7\n  ratio: 1.50\n  since: 2026-01-31\n'
        "  on: yes\n  tested: true\n  owner: ~\nallowed-tools: [Bash(git log:*), Read]\n"
        "tags:\n- clay\n- {hot: True}\n---\n# Kiln\n"
    )
    assert frontmatter == {
        "name": "kiln",
        "description": "Fire a kiln.\nSlowly.\n",
        "license": "MIT",
        "metadata": {
            "version": "1.0",
            "build": 7,
            "ratio": 1.5,
            "since": "2026-01-31",
            "on": "yes",
            "tested": True,
            "owner": None,
        },
        "allowed-tools": ["Bash(git log:*)", "Read"],
        "tags": ["clay", {"hot": True}],
    }
    assert list(frontmatter) == [
        "name",
        "description",
        "license",
        "metadata",
        "allowed-tools",
        "tags",
    ]


HEAD = "---\nname: kiln\ndescription: Fire\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# Kiln\n", "does not begin with a frontmatter"),
        ("\n" + HEAD + "---\n", "does not begin with a frontmatter"),
        (HEAD + "# Kiln\n", "no closing"),
        ("---\n- a\n---\n", "not a mapping"),
        ("---\n---\n", "not a mapping"),
        ("---\nname: kiln\n---\n", "no description"),
        ("---\nname: kiln\ndescription: ''\n---\n", "no description"),
        ("---\nname: kiln\ndescription: [a]\n---\n", "no description"),
        ("---\ndescription: Fire\n---\n", "its name"),
        ("---\nname: Kiln Firing\ndescription: Fire\n---\n", "its name"),
        ("---\nname: yes\ndescription: a: b\n---\n", "not YAML"),
        ("---\nname: 12\ndescription: Fire\n---\n", "its name"),
        (f"---\nname: kiln\ndescription: {'a' * 1025}\n---\n", "1025 characters; 1024"),
        (HEAD + f"compatibility: {'a' * 501}\n---\n", "501 characters; 500"),
        (HEAD + "name: other\n---\n", "'name' is given twice"),
        (HEAD + "x: .inf\n---\n", "not finite"),
        (HEAD + "x: 1e999\n---\n", "not finite"),
        (HEAD + "x: !!binary aGk=\n---\n", "a tag"),
        (HEAD + "x: !thing {a: b}\n---\n", "a tag"),
        (HEAD + "1: a\n---\n", "a key that is not a text"),
        (HEAD + "x: &a [1]\ny: *a\n---\n", "an alias that is not of a scalar"),
        (HEAD + "x: " + "[" * 40 + "]" * 40 + "\n---\n", "nested too deeply"),
        (HEAD + 'x: "\\ud800"\n---\n', "not YAML"),
    ],
)
def test_what_breaks_the_format_has_a_reason(text: str, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        read(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0o17", 15),
        ("0xff", 255),
        ("017", 17),
        ("+3", 3),
        ("-.5", -0.5),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("no", "no"),
        ("'7'", "7"),
        ("!!str 7", "7"),
        ("9" * 500, "9" * 500),
        ("", None),
    ],
)
def test_the_core_schema(text: str, value: object) -> None:
    assert parse_json_yaml(text, YamlLimits()) == value


@given(st.text(max_size=200))
def test_any_text_is_json_or_an_error(text: str) -> None:
    try:
        value = parse_json_yaml(text, YamlLimits())
    except YamlError:
        return
    assert json.loads(json.dumps(value, allow_nan=False)) == value
