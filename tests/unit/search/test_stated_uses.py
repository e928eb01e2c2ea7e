from __future__ import annotations

import numpy as np
import pytest

from search.blob_codec import pack_forward, unpack_forward
from search.protocol import TermIds
from search.skill_analysis import analyse_skill
from search.text.stated_uses import find_quoted_phrases, is_exclusion_heading, split_exclusions
from search.text.tokens import term_ids, tokenize
from skills.parsing.parse_skill import parse_skill


def ids(text: str) -> TermIds:
    return np.unique(term_ids(tokenize(text)))


@pytest.mark.parametrize(
    ("description", "kept", "excluded"),
    [
        (
            "Prunes oaks. Not for watering; use hose.",
            "Prunes oaks.",
            ["Not for watering; use hose."],
        ),
        (
            "Reads meters. Do NOT use for billing. Use it for audits.",
            "Reads meters. Use it for audits.",
            ["Do NOT use for billing."],
        ),
        (
            "Sets type. NOT for web pages, and not for slides.",
            "Sets type.",
            ["NOT for web pages,", "and not for slides."],
        ),
        ("修剪橡树。不适用于浇水。", "修剪橡树。", ["不适用于浇水。"]),
        ("检查电表；不要用于开账单。", "检查电表；", ["不要用于开账单。"]),
        (
            "Says what is not yet known for each field.",
            "Says what is not yet known for each field.",
            [],
        ),
    ],
)
def test_exclusions_are_split_off(description: str, kept: str, excluded: list[str]) -> None:
    assert split_exclusions(description) == (kept, tuple(excluded))


def test_headings_of_exclusions() -> None:
    assert is_exclusion_heading("When NOT to use")
    assert is_exclusion_heading("不适用场景")
    assert not is_exclusion_heading("When to use")


def test_quoted_phrases() -> None:
    text = "Use for \"cut the oak\", 'trim it' or 「修剪」; the user's tree isn't one."
    assert find_quoted_phrases(text) == ["cut the oak", "trim it", "修剪"]


TEXT = """---
name: oak-care
description: Prunes oaks when a user says "crown is too dense". Not for watering.
---
# Oak care

Cut in winter.

## When not to use

- Felling a tree
- Moving a stump

## Tools

A saw.
"""


def test_a_record_holds_examples_and_exclusions_and_is_stored_with_them() -> None:
    forward = analyse_skill(parse_skill("oak-care", TEXT.encode())).forward
    assert forward.examples.tolist() == ids("crown too dense").tolist()
    assert [terms.tolist() for terms in forward.excluded] == [
        ids(text).tolist() for text in ("Not for watering.", "Felling a tree", "Moving a stump")
    ]
    stored = unpack_forward(pack_forward(forward))
    assert stored.examples.tolist() == forward.examples.tolist()
    assert len(stored.excluded) == 3
    assert all(map(np.array_equal, stored.excluded, forward.excluded))
    assert stored.completed == ()


def test_a_record_without_them_is_stored_as_before() -> None:
    forward = analyse_skill(
        parse_skill("oak", b"---\nname: oak\ndescription: Oaks.\n---\nCut.")
    ).forward
    assert forward.excluded == ()
    stored = unpack_forward(pack_forward(forward))
    assert stored.excluded == ()
    assert not len(stored.examples)
