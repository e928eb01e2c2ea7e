"""What the fitting commands write into cross-validated/ of `make quality`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from search.scoring.probability import RankedEvidence
from search.skill_analysis import analyse_skill
from search.text.query_understanding import understand
from skills.parsing.parse_skill import parse_skill
from skills.passages import PassageInput, PassageQuery, get_line_ranges
from tests.bench import choose_paging, fit_probability, paging_cases, probability_cases
from tests.bench.quality.data import MISSES
from tests.support.samples.roles import write_labelled


@pytest.fixture
def cases(tmp_path: Path) -> list[paging_cases.Case]:
    """A query of each of six small skills that needs its steps, by words."""
    folder, labels = write_labelled(tmp_path)
    gold = json.loads(labels.read_text(encoding="utf-8"))
    return [make_case(folder, name, ranges) for name, ranges in gold.items()]


def make_case(folder: Path, name: str, ranges: list[list[object]]) -> paging_cases.Case:
    path = name.partition(":")[2]
    parsed = parse_skill(path, (folder / path / "SKILL.md").read_bytes())
    terms = analyse_skill(parsed).passage_terms
    page = PassageInput(parsed, terms.offsets, terms.terms, terms.counts, None)
    task = understand(f"in which steps are {path} sorted")
    order = np.argsort(task.ids)
    row = {
        "query_id": f"q-{path}",
        "skill_id": name,
        "required": [[first, last] for first, last, role in ranges if role == "step"],
    }
    query = PassageQuery(None, task.ids[order], task.weights[order])
    return paging_cases.make_case("made", row, query, page)


def test_lines_of_each_query_by_setting(cases: list[paging_cases.Case], tmp_path: Path) -> None:
    needs = [np.linspace(1, 0, len(case.needed)) for case in cases]
    selected = choose_paging.select_left_out(cases, needs)
    file = tmp_path / "passages.json"
    fewer = {miss: {"q-tides": [(1, 1)]} for miss in selected}
    choose_paging.write_predictions(file, {"words": selected, "vectors": fewer})
    written = json.loads(file.read_text(encoding="utf-8"))
    assert list(written) == [f"{miss:g}" for miss in MISSES]
    for rows in written.values():
        assert set(rows) == {case.query_id for case in cases}
        assert rows["q-tides"] == [[1, 1]]
    lines = [sum(b - a + 1 for a, b in rows["q-maps"]) for rows in written.values()]
    assert lines == sorted(lines, reverse=True)


def test_the_threshold_comes_from_other_skills(cases: list[paging_cases.Case]) -> None:
    needs = [np.linspace(1, 0, len(case.needed)) + 10 * (n == 0) for n, case in enumerate(cases)]
    selected = choose_paging.select_left_out(cases, needs)
    whole = get_line_ranges(cases[0].parsed, range(len(cases[0].needed)))
    assert all(rows[cases[0].query_id] == whole for rows in selected.values())


def test_probabilities_of_judged_prompts(tmp_path: Path) -> None:
    none = np.zeros(1)
    evidence = RankedEvidence(none, none, none, none, none, 1.0, 10, 0.0)

    def case(kind: str, prompt: str, right: bool, judged: bool = True) -> probability_cases.Case:
        return probability_cases.Case(kind, prompt, "s:a", "s/made", evidence, (right,), judged)

    cases = [
        case(probability_cases.PRESENT, "one", True),
        case(probability_cases.NEAR, "two", False),
        case(probability_cases.NEAR, "unknown", False, judged=False),
        case(probability_cases.REMOVED, "one", False),
        case(probability_cases.PRESENT, "", True),
    ]
    predicted = [(np.array([0.1 * n]), 0.5) for n in range(len(cases))]
    file = tmp_path / "probabilities.json"
    fit_probability.write_predictions(file, cases, predicted, ["o/r"] * len(cases))
    assert json.loads(file.read_text(encoding="utf-8")) == [
        {"task_id": "one", "probability": 0.0, "right": True, "group": "o/r"},
        {"task_id": "two", "probability": 0.1, "right": False, "group": "o/r"},
    ]
