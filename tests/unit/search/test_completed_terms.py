"""What a language model wrote: apart in documents, used by origin, and no trace without it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.blob_codec import pack_forward, unpack_forward
from search.completed_terms import COMPLETED, origin_tag, stack_fields, tag_terms, use_completed
from search.packed_records import pack_records
from search.protocol import FIELDS, TEXT_FIELDS, ForwardRecord
from search.scoring.hubness import compute_hubness
from search.scoring.library_statistics import LibraryStatistics
from search.scoring.weights import ScoringWeights
from search.skill_analysis import analyse_skill
from search.text.background_frequencies import load_background
from search.text.query_understanding import understand
from search.text.tokens import term_id
from skills import record_codec
from skills.parsing.parse_skill import parse_skill
from skills.record import Completion, ParsedSkill, RevisionKey
from tests.support.samples.candidates import Candidate, score, statistics_of

SKILL = """---
name: kiln-firing
description: Plans kiln schedules for stoneware
---
# Kiln firing

## Schedule

Check cones, then glaze.

```sh
plan --kiln
```
"""
RECORD = Completion("record", "m", 1, {"domain_tags": ("ceramics", "pottery"), "inputs": ("clay",)})
PROMPTS = Completion("prompts", "m", 1, {"prompts": ("Bake my clay pots",)})


def parsed(text: str = SKILL, *completions: Completion) -> ParsedSkill:
    return parse_skill("a", text.encode()).with_completions(completions)


def forward(text: str = SKILL, *completions: Completion) -> ForwardRecord:
    return analyse_skill(parsed(text, *completions)).forward


def count(record: ForwardRecord, word: str) -> list[int]:
    row = int(np.searchsorted(record.terms, term_id(word)))
    return [int(number) for number in record.counts[row]]


def is_equal(left: ForwardRecord, right: ForwardRecord) -> bool:
    names = ("terms", "counts", "bigrams", "bigram_weights", "lengths")
    return all(np.array_equal(getattr(left, n), getattr(right, n)) for n in names)


class TestDocuments:
    def test_without_a_model_they_are_what_they_were(self) -> None:
        """The form that was stored before there were completions."""
        blob = record_codec.dump(parsed())
        assert blob[0] == 2
        assert "completions" not in json.loads(zlib.decompress(blob[1:]))[0]
        record = forward()
        assert record.counts.shape == (len(record.terms), 5)
        former = (
            np.array([len(record.terms), len(record.bigrams)], "<u4"),
            *(record.terms, record.bigrams, record.bigram_weights, record.lengths, record.counts),
        )
        assert pack_forward(record) == b"".join(array.tobytes() for array in former)

    @settings(max_examples=30, deadline=None)
    @given(st.text(max_size=200), st.text(min_size=1, max_size=40))
    def test_a_completion_changes_nothing_of_the_skills_own(self, body: str, words: str) -> None:
        text = SKILL + body
        completion = Completion("record", "m", 1, {"example_tasks": (words,)})
        own, completed = parsed(text), parsed(text, completion)
        plain, others = analyse_skill(own), analyse_skill(completed)
        assert is_equal(plain.forward, others.forward)
        assert pack_forward(others.forward).startswith(pack_forward(plain.forward))
        assert plain.fields[:-1] == others.fields[:-1]
        assert plain.fields[-1] == ()
        assert completed.with_completions(()) == own

    def test_they_come_back_equal(self) -> None:
        skill = parsed(SKILL, RECORD, PROMPTS)
        assert record_codec.load(record_codec.dump(skill)) == skill
        before = forward(SKILL, RECORD, PROMPTS)
        after = unpack_forward(pack_forward(before))
        assert is_equal(before, after)
        assert [one.origin for one in after.completed] == ["record/1/m", "prompts/1/m"]
        for left, right in zip(before.completed, after.completed, strict=True):
            assert np.array_equal(left.terms, right.terms)
            assert np.array_equal(left.counts, right.counts)
            assert left.length == right.length

    def test_tokens_are_tagged_by_origin(self) -> None:
        stream = analyse_skill(parsed(SKILL, RECORD, PROMPTS)).fields[-1]
        tag, other = origin_tag(RECORD.origin), origin_tag(PROMPTS.origin)
        assert stream == (
            *(f"{tag}:{word}" for word in ("ceram", "potteri", "clay")),
            *(f"{other}:{word}" for word in ("bake", "clay", "pot")),
        )
        assert tag_terms({"clay": 0.5}, PROMPTS.origin) == {f"{other}:clay": 0.5}


class TestUse:
    def test_terms_of_other_origins_are_left_out(self) -> None:
        stored, plain = forward(SKILL, RECORD, PROMPTS), forward()
        assert is_equal(use_completed(stored, ()), plain)
        assert is_equal(use_completed(stored, ["record/1/other"]), plain)
        assert use_completed(plain, [RECORD.origin]) is plain
        used = use_completed(stored, [RECORD.origin])
        assert term_id("bake") not in used.terms
        assert used.lengths[COMPLETED] == 3
        assert count(used, "clay") == [0, 0, 0, 0, 0, 1]
        assert count(used, "kiln") == [*count(plain, "kiln"), 0]
        both = use_completed(stored, [RECORD.origin, PROMPTS.origin])
        assert count(both, "clay") == [0, 0, 0, 0, 0, 2]
        assert np.all(np.diff(both.terms.astype(np.float64)) > 0)

    def test_records_with_and_without_are_stacked(self) -> None:
        plain, used = forward(), use_completed(forward(SKILL, RECORD), [RECORD.origin])
        counts, lengths = stack_fields([plain.counts] * 2, [plain.lengths] * 2)
        assert counts.shape[1] == lengths.shape[1] == len(TEXT_FIELDS)
        counts, lengths = stack_fields([plain.counts, used.counts], [plain.lengths, used.lengths])
        assert counts.shape == (len(plain.terms) + len(used.terms), len(FIELDS))
        assert lengths[:, COMPLETED].tolist() == [0.0, 3.0]

    def test_mean_lengths_are_of_those_that_have_it(self) -> None:
        used = use_completed(forward(SKILL, RECORD), [RECORD.origin])
        statistics = LibraryStatistics()
        for number, record in enumerate((forward(), used, forward())):
            statistics.add(pack_records({RevisionKey("a:b", number + 1): record}))
        assert statistics.mean_lengths[COMPLETED] == 3.0
        assert statistics.document_frequencies(np.array([term_id("clay")])).tolist() == [1]
        statistics.discard(pack_records({RevisionKey("a:b", 2): used}))
        assert statistics.mean_lengths[COMPLETED] == 1.0


class TestScores:
    LIBRARY = tuple(SKILL.replace("kiln", name) for name in ("kiln", "loom", "anvil", "forge"))

    def scores(self, task: str, records: Sequence[ForwardRecord]) -> dict[str, float]:
        keys = [RevisionKey(f"a:{number}", 1) for number in range(len(records))]
        candidates = [Candidate(*one) for one in zip(keys, records, strict=True)]
        scored = score(understand(task), candidates, statistics_of(candidates))
        return {
            key.skill_id: score
            for key, score in zip(scored.keys, scored.scores.tolist(), strict=True)
        }

    @pytest.mark.parametrize("task", ["fire the kiln", "ceramics of clay", "loom " * 30 + "clay"])
    def test_stored_completions_that_are_not_in_use_change_none(self, task: str) -> None:
        plain = [forward(text) for text in self.LIBRARY]
        stored = [
            use_completed(forward(text, RECORD, PROMPTS), ["record/2/m"]) for text in self.LIBRARY
        ]
        assert self.scores(task, plain) == self.scores(task, stored)
        hubs = [
            compute_hubness(
                pack_records({RevisionKey("a:b", n): one for n, one in enumerate(records)}),
                load_background(),
                ScoringWeights(),
            ).tolist()
            for records in (plain, stored)
        ]
        assert hubs[0] == hubs[1]

    def test_a_completed_skill_is_found_by_its_words(self) -> None:
        plain = [forward(text) for text in self.LIBRARY]
        used = use_completed(forward(self.LIBRARY[3], RECORD), [RECORD.origin])
        assert next(iter(self.scores("pottery", plain))) != "a:3"
        assert next(iter(self.scores("pottery", [*plain[:3], used]))) == "a:3"

    def test_its_own_description_weighs_more(self) -> None:
        said = forward(self.LIBRARY[0].replace("for stoneware", "for stoneware pottery"))
        written = use_completed(
            forward(self.LIBRARY[1], replace(RECORD, fields={"domain_tags": ("pottery",)})),
            [RECORD.origin],
        )
        scores = self.scores("pottery", [said, written, *map(forward, self.LIBRARY[2:])])
        assert list(scores)[:2] == ["a:0", "a:1"]
