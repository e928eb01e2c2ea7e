from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import PermanentError
from search.protocol import FIELDS, TEXT_FIELDS
from search.skill_analysis import (
    DESCRIPTION_PIECES,
    HEAD_PIECES,
    _passage_terms,
    analyse_skill,
    body_terms,
    description_terms,
    section_text_hashes,
    skill_texts,
    text_hash,
    truncate_to_pieces,
)
from search.text.background_frequencies import (
    load_background,
    read_background,
)
from search.text.tokens import term_id, tokenize
from skills.parsing.parse_skill import parse_skill
from skills.record import ParsedSkill
from tests.support.samples.data_files import build_background

SKILL = """---
name: kiln-firing
description: Plans kiln firing schedules for stoneware
---
# Kiln firing

Check the cones before firing. Firing takes a night.

## Schedule

```python
schedule = plan_schedule(cone=6)
```
"""


def parsed(text: str = SKILL) -> ParsedSkill:
    return parse_skill("kiln-firing", text.encode())


def test_fields_hold_what_their_names_say() -> None:
    fields = dict(zip(FIELDS, analyse_skill(parsed()).fields, strict=True))
    assert fields["name"] == ("kiln", "fire")
    assert "stonewar" in fields["description"]
    assert fields["headings"] == ("kiln", "fire", "schedul")
    assert "cone" in fields["prose"]
    assert "schedul" not in fields["prose"]
    assert "plan" in fields["code"]


def test_forward_counts_are_of_the_fields() -> None:
    analysis = analyse_skill(parsed())
    forward = analysis.forward
    assert np.all(np.diff(forward.terms.astype(np.float64)) > 0)
    assert forward.counts.shape[1] == len(TEXT_FIELDS)
    for place, tokens in enumerate(analysis.fields[: len(TEXT_FIELDS)]):
        assert forward.counts[:, place].sum() == len(tokens)
        assert forward.lengths[place] == len(tokens)
        row = int(np.searchsorted(forward.terms, term_id("fire")))
        assert forward.counts[row, place] == tokens.count("fire")
    assert forward.bigram_weights.max() == 6.0  # "kiln firing" in name, description and heading


def test_passage_terms_cover_every_passage() -> None:
    skill = parsed()
    terms = analyse_skill(skill).passage_terms
    assert len(terms.offsets) == len(skill.passages) + 1
    for passage in skill.passages:
        row = slice(terms.offsets[passage.index], terms.offsets[passage.index + 1])
        tokens = tokenize(skill.text(passage.first_line, passage.last_line))
        assert set(terms.terms[row].tolist()) == {term_id(token) for token in tokens}
        assert terms.counts[row].sum() == len(tokens)


def test_a_skill_without_body_is_analysed() -> None:
    analysis = analyse_skill(parsed("---\nname: bare\ndescription: Nothing else\n---\n"))
    assert analysis.fields[3:] == ((), (), ())
    assert set(body_terms(analysis, load_background())) == set(analysis.forward.terms.tolist())
    assert description_terms(analysis, load_background())


def test_texts_are_short_whatever_the_skill() -> None:
    long = SKILL.replace("stoneware", "stoneware " * 2000) + "word " * 5000 + "图" * 5000
    described, head = skill_texts(parsed(long))
    assert described.startswith("kiln firing: Plans")
    assert len(described.split()) <= DESCRIPTION_PIECES
    assert len(head.split()) <= HEAD_PIECES
    assert head.startswith("Kiln firing\nCheck the cones")


def test_clipping_ends_at_a_word() -> None:
    assert truncate_to_pieces("one two three", 2) == "one two"
    assert truncate_to_pieces("图表数据", 2) in ("", "图表")
    assert truncate_to_pieces("", 5) == ""


def test_hashes_depend_on_model_and_text() -> None:
    assert len({text_hash("a", "x"), text_hash("a", "y"), text_hash("b", "x")}) == 3
    assert len(text_hash("a", "x")) == 16
    skill = parsed()
    assert len(section_text_hashes("a", skill)) == len(skill.sections)


def test_signatures_are_unit_vectors_of_the_heaviest_terms() -> None:
    analysis = analyse_skill(parsed())
    for vector in (
        body_terms(analysis, load_background(), top=4),
        description_terms(analysis, load_background()),
    ):
        assert sum(weight**2 for weight in vector.values()) == pytest.approx(1.0)
        assert all(weight > 0 for weight in vector.values())
    assert len(body_terms(analysis, load_background(), top=4)) == 4


def test_a_background_is_built_and_read_back() -> None:
    content = build_background([["loom", "kiln"]] * 10 + [["loom"]] * 10 + [["rare"]])
    background = read_background(content)
    idf = background.idf(np.array([term_id(t) for t in ("loom", "kiln", "rare")], dtype=np.uint64))
    assert idf[0] < idf[1] < idf[2] == pytest.approx(background.max_idf)
    assert background.is_common(idf).tolist() == [True, True, False]


def test_the_shipped_background_knows_everyday_terms() -> None:
    background = load_background()
    everyday, unknown = background.idf(
        np.array([term_id("file"), term_id("qqzzxj")], dtype=np.uint64)
    )
    assert everyday < 1.5
    assert unknown == pytest.approx(background.max_idf)


@pytest.mark.parametrize("content", [b"", b"not numbers", b"PK\x03\x04 and no archive"])
def test_a_damaged_background_is_refused(content: bytes) -> None:
    with pytest.raises(PermanentError):
        read_background(content)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=12), max_size=8))
def test_terms_of_passages_are_those_of_each_alone(streams: list[list[int]]) -> None:
    body = np.array([term for stream in streams for term in stream], dtype=np.uint64)
    passage_of = np.repeat(np.arange(len(streams)), [len(stream) for stream in streams])
    found = _passage_terms(body, passage_of.astype(np.intp), len(streams))
    alone = [np.unique(np.array(one, np.uint64), return_counts=True) for one in streams]
    assert found.offsets.tolist() == np.cumsum([0, *(len(terms) for terms, _ in alone)]).tolist()
    assert found.terms.tolist() == [term for terms, _ in alone for term in terms.tolist()]
    assert found.counts.tolist() == [count for _, counts in alone for count in counts.tolist()]
