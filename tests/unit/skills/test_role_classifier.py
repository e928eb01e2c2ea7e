"""The classifier of roles: its features, its weights file, and how it goes together with rules."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from importlib.resources import files

import numpy as np
import pytest

from config.errors import PermanentError
from skills.record import Role
from skills.roles.classifier import (
    FORMAT,
    LIST_SHARE,
    ROLES,
    RoleClassifier,
    blend_probabilities,
    dump_weights,
    load_default_classifier,
    parse_weights,
    pick_likeliest_roles,
    rules_only_classifier,
)
from skills.roles.features import FEATURE_COUNT, INDICATOR_BUCKETS, extract_features
from skills.roles.passage_context import PassageContext, build_passage_contexts
from skills.roles.rules import classify_by_rules
from tests.support.samples.fragments import split_lines

TEXT = """# Tides

What the tool knows.

## Installation

```bash
pip install tides
```

## Steps

Fetch the levels:

```python
a = 1

b = 2

c = 3
d = 4

e = 5
f = 6
g = 7

h = 8
i = 9
```

- Open the chart
- Save it
- The harbour

| Error | Remedy |
|---|---|
| E1 | wait |
"""


def blocks_of(text: str) -> list[PassageContext]:
    lines = text.split("\n")
    return build_passage_contexts(lines, *split_lines(lines, 1))


def some_weights(seed: int = 0) -> RoleClassifier:
    random = np.random.default_rng(seed)
    weights = np.zeros((FEATURE_COUNT, len(ROLES)), np.float32)
    rows = random.choice(FEATURE_COUNT, 2000, replace=False)
    weights[rows] = random.normal(size=(len(rows), len(ROLES))).astype(np.float16)
    return RoleClassifier(weights, random.normal(size=len(ROLES)).astype(np.float32), 0.25)


def test_features_have_a_row_a_block_within_the_width() -> None:
    blocks = blocks_of(TEXT)
    features = extract_features(blocks)
    assert len(features.starts) == len(blocks) + 1
    assert features.starts[-1] == len(features.places) == len(features.values)
    assert np.all(np.diff(features.starts) > 0)
    assert 0 <= features.places.min() <= features.places.max() < FEATURE_COUNT


def test_the_words_of_a_group_weigh_one_together() -> None:
    one, three = (
        extract_features(blocks_of(f"## {title}\n\nText")) for title in ("tides", "tides of may")
    )
    for features, words in ((one, 1), (three, 5)):
        values = features.values[features.places >= INDICATOR_BUCKETS]
        heading = values[values == np.float32(words**-0.5)]
        assert np.isclose((heading[:words] ** 2).sum(), 1)


def test_features_are_the_same_in_every_process() -> None:
    code = (
        "from tests.unit.skills.test_role_classifier import TEXT, blocks_of, extract_features\n"
        "print(extract_features(blocks_of(TEXT)).places.tolist())"
    )
    # This process has another seed of hashes.
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": "."},
    ).stdout
    assert found == f"{extract_features(blocks_of(TEXT)).places.tolist()}\n"


def test_probabilities_are_those_of_a_plain_computation() -> None:
    classifier, blocks = some_weights(), blocks_of(TEXT)
    given = classifier.predict_probabilities(blocks)
    features = extract_features(blocks)
    for row in range(len(blocks)):
        part = slice(features.starts[row], features.starts[row + 1])
        scores = classifier.intercepts.astype(np.float64)
        for place, value in zip(features.places[part], features.values[part], strict=True):
            scores = scores + value * classifier.weights[place]
        powers = np.exp(scores - scores.max())
        np.testing.assert_allclose(given[row], powers / powers.sum(), atol=1e-5)


def test_without_blocks_there_is_nothing_to_judge() -> None:
    assert some_weights().predict([]) == []
    assert rules_only_classifier().predict([]) == []


def test_a_full_share_of_the_rules_leaves_their_order_to_lists_only() -> None:
    blocks = blocks_of(TEXT)
    by_rule = [role for role, _ in classify_by_rules(blocks)]
    assert [role for role, _ in rules_only_classifier().predict(blocks)] == by_rule


def test_chunks_of_one_block_agree_and_items_lean_on_their_list() -> None:
    blocks = blocks_of(TEXT)
    chunks = [i for i in range(1, len(blocks)) if blocks[i].continues_code_of(blocks[i - 1])]
    assert chunks
    alone = some_weights().predict_probabilities(blocks)
    mixed = blend_probabilities(blocks, classify_by_rules(blocks), alone, 0.0)
    for chunk in chunks:
        np.testing.assert_allclose(mixed[chunk], mixed[chunk - 1])
    items = [i for i, block in enumerate(blocks) if block.passage.kind.value == "list_item"]
    np.testing.assert_allclose(
        np.ptp(mixed[items], axis=0), np.ptp(alone[items], axis=0) * (1 - LIST_SHARE)
    )
    np.testing.assert_allclose(mixed.sum(axis=1), 1)


def test_equal_roles_go_to_the_first() -> None:
    [(role, share)] = pick_likeliest_roles(np.full((1, 6), 1 / 6))
    assert role is Role.STEP
    assert share == pytest.approx(1 / 6)


def test_weights_come_back_from_their_file() -> None:
    classifier = some_weights()
    content = dump_weights(classifier)
    again = parse_weights(content)
    np.testing.assert_array_equal(again.weights, classifier.weights)
    np.testing.assert_array_equal(again.intercepts, classifier.intercepts)
    assert again.rules_share == 0.25
    assert dump_weights(again) == content


def an_array() -> bytes:
    out = io.BytesIO()
    np.save(out, np.zeros(3))
    return out.getvalue()


def damaged() -> bytes:
    """An archive whose first member says that it is deflated otherwise than it is."""
    content = bytearray(dump_weights(some_weights()))
    at = content.index(b"weights.npy") + len("weights.npy") + 24
    content[at : at + 8] = b"\xff" * 8
    return bytes(content)


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", dump_weights(rules_only_classifier())[:200], an_array(), damaged()],
    ids=["empty", "text", "cut off", "one array", "damaged"],
)
def test_a_file_that_holds_no_weights_is_refused(content: bytes) -> None:
    with pytest.raises(PermanentError, match="train them with `skillbus train roles`"):
        parse_weights(content)


def test_weights_of_another_format_are_refused() -> None:
    out = io.BytesIO()
    np.savez(out, format=np.int64(FORMAT + 1))
    with pytest.raises(PermanentError, match=f"have format {FORMAT + 1}"):
        parse_weights(out.getvalue())


def test_an_array_of_objects_is_never_unpickled() -> None:
    out = io.BytesIO()
    np.savez(out, format=np.array([{}], dtype=object))
    with pytest.raises(PermanentError, match="cannot be read"):
        parse_weights(out.getvalue())


def test_the_packaged_weights_are_small_and_have_a_card() -> None:
    room = files("skills.roles")
    assert len(room.joinpath("weights.npz").read_bytes()) < 300_000
    card = json.loads(room.joinpath("weights.json").read_text(encoding="utf-8"))
    assert card["format"] == FORMAT
    assert card["rules_share"] == load_default_classifier().rules_share
    assert card["origin"]
    assert card["left_out"]["all"]["accuracy"] > 0.7
