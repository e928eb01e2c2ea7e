from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.packed_records import pack_records
from search.protocol import FIELDS, ForwardRecord
from search.scoring import library_statistics as module
from search.scoring.library_statistics import LibraryStatistics
from search.skill_analysis import analyse_skill
from search.text.tokens import term_ids
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey
from tests.support.samples.candidates import count_library

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
    statistics = count_library({key: RECORDS[key] for key in order[:at_once]})
    for key in order[at_once:]:
        statistics.add(pack_records({key: RECORDS[key]}))
    assert figures(statistics) == figures(count_library(RECORDS))
    statistics.discard(pack_records({key: RECORDS[key] for key in order[3:]}))
    kept = {key: RECORDS[key] for key in order[:3]}
    assert figures(statistics) == figures(count_library(kept))


def test_merging_keeps_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_RECENT_TERMS", 2)
    statistics = LibraryStatistics()
    for key, entry in RECORDS.items():
        statistics.add(pack_records({key: entry}))
    assert figures(statistics) == figures(count_library(RECORDS))


def test_saved_counts_go_on() -> None:
    first, *rest = RECORDS.items()
    statistics = count_library(dict(rest))
    restored = LibraryStatistics.restore(statistics.save())
    restored.add(pack_records(dict([first])))
    assert figures(restored) == figures(count_library(RECORDS))
    names = term_ids([*WORDS, "unknown"])
    whole = count_library(RECORDS)
    assert restored.name_frequencies(names).tolist() == whole.name_frequencies(names).tolist()


def test_an_empty_library_has_figures() -> None:
    statistics = LibraryStatistics()
    assert statistics.mean_lengths.tolist() == [1.0] * len(FIELDS)
    assert np.isfinite(statistics.idf(term_ids(["loom"]))).all()
    assert len(statistics) == 0
