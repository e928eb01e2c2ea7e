from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.protocol import FIELDS, ForwardRecord
from search.scoring import library_statistics as module
from search.scoring.library_statistics import LibraryStatistics
from search.skill_analysis import analyse_skill
from search.text.tokens import term_ids
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey

WORDS = ("loom", "kiln", "tide", "glaze", "warp", "weft", "cone", "buoy")


def record(words: list[str]) -> ForwardRecord:
    text = f"---\nname: {words[0]}\ndescription: {' '.join(words)}\n---\n{' '.join(words)}\n"
    return analyse_skill(parse_skill(words[0], text.encode())).forward


RECORDS = {
    RevisionKey(f"home:{i}", 1): record([WORDS[i], WORDS[(i + 1) % 8], WORDS[(i * 3) % 8]])
    for i in range(8)
}


def figures(statistics: LibraryStatistics) -> tuple[list[int], list[float], int]:
    frequencies = statistics.document_frequencies(term_ids([*WORDS, "unknown"]))
    return frequencies.tolist(), statistics.mean_lengths.tolist(), len(statistics)


@settings(max_examples=25, deadline=None)
@given(st.permutations(sorted(RECORDS)), st.integers(0, 8))
def test_figures_do_not_depend_on_the_order(order: list[RevisionKey], at_once: int) -> None:
    statistics = LibraryStatistics({key: RECORDS[key] for key in order[:at_once]})
    for key in order[at_once:]:
        statistics.add(key, RECORDS[key])
    assert figures(statistics) == figures(LibraryStatistics(RECORDS))
    for key in order[3:]:
        statistics.discard(key)
    kept = {key: RECORDS[key] for key in order[:3]}
    assert figures(statistics) == figures(LibraryStatistics(kept))


def test_merging_keeps_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_RECENT_TERMS", 2)
    statistics = LibraryStatistics()
    for key, entry in RECORDS.items():
        statistics.add(key, entry)
    assert figures(statistics) == figures(LibraryStatistics(RECORDS))


def test_twice_is_once() -> None:
    statistics = LibraryStatistics(RECORDS)
    key = next(iter(RECORDS))
    statistics.add(key, RECORDS[key])
    assert figures(statistics) == figures(LibraryStatistics(RECORDS))
    statistics.discard(RevisionKey("home:none", 1))
    assert figures(statistics) == figures(LibraryStatistics(RECORDS))


def test_an_empty_library_has_figures() -> None:
    statistics = LibraryStatistics()
    assert statistics.mean_lengths.tolist() == [1.0] * len(FIELDS)
    assert np.isfinite(statistics.idf(term_ids(["loom"]))).all()
    assert statistics.get_records([RevisionKey("home:0", 1)]) == {}


def test_records_are_found_again() -> None:
    statistics = LibraryStatistics(RECORDS)
    key, missing = next(iter(RECORDS)), RevisionKey("home:none", 1)
    assert set(statistics.get_records([key, missing])) == {key}
    assert statistics.missing_keys([key, missing]) == [missing]
    assert key in statistics
