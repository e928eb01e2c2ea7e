"""Changes of a JSON text keep what stands around them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import UsageError
from workers.agent_hook.json_text import append_item, parse_json, remove_item

TEXTS = st.text(max_size=9)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
INDENTS = st.sampled_from([None, 0, 1, 2, 4, "\t"])


@given(VALUES, INDENTS)
def test_a_text_is_read_as_json_reads_it(value: Any, indent: int | str | None) -> None:
    text = f" \n{json.dumps(value, indent=indent)}\t"
    node = parse_json(text)
    assert node.value == json.loads(text)
    assert json.loads(text[node.start : node.end]) == node.value


@given(st.dictionaries(TEXTS, VALUES, max_size=4), INDENTS, VALUES, st.booleans())
def test_what_is_appended_and_removed_leaves_the_text(
    value: dict[str, Any], indent: int | str | None, item: Any, windows: bool
) -> None:
    value.pop("new", None)
    text = json.dumps(value, indent=indent)
    if windows:
        text = text.replace("\n", "\r\n")
    changed = append_item(text, [], item, "new")
    assert json.loads(changed) == value | {"new": item}
    assert remove_item(changed, ["new"]) == text


@given(st.lists(VALUES, min_size=1, max_size=4), INDENTS, st.data())
def test_any_item_can_be_removed(
    value: list[Any], indent: int | str | None, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(value) - 1))
    text = json.dumps({"list": value, "after": 1}, indent=indent)
    left = value[:place] + value[place + 1 :]
    assert json.loads(remove_item(text, ["list", place])) == {"list": left, "after": 1}


def test_the_indent_of_the_text_is_used() -> None:
    text = '{\n\t"a": [\n\t\t1\n\t]\n}\n'
    assert append_item(text, ["a"], {"b": 2}) == (
        '{\n\t"a": [\n\t\t1,\n\t\t{\n\t\t\t"b": 2\n\t\t}\n\t]\n}\n'
    )
    assert append_item('{"a": [1]}', ["a"], {"b": 2}) == '{"a": [1, {"b": 2}]}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,}', "line 1, column"),
        ('{\n  // comment\n  "a": 1}', "line 2"),
        ("", "line 1, column 1"),
        ("\ufeff{}", "not valid JSON"),
        ('{"a": 1, "a": 2}', "same key"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_not_valid_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_json(text)
