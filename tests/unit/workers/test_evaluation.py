"""Metrics of bundles and probabilities, bootstrap intervals and the table of an ablation."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import UsageError
from config.settings import OPTIONAL_STAGES
from skills.bundle.model import Bundle, LeftOutSkill, Withheld, WithheldSkill
from tasks.evaluations.model import Measure
from workers.evaluation import intervals
from workers.evaluation.ablation import (
    ALL_STAGES,
    AblationRow,
    configurations,
    to_json_data,
    to_markdown,
)
from workers.evaluation.bundles import (
    ABSENT_REASON,
    NO_HIT_REASON,
    NOT_RANKED_REASON,
    WITHHELD_REASON,
    BundleOutcome,
    bundle_metrics,
    count_missing_skills,
    summarise_bundle,
)
from workers.evaluation.intervals import (
    bootstrap_groups,
    bootstrap_interval,
)
from workers.evaluation.metrics import (
    calibration_error,
    credit_also,
    reliability_bins,
    routing_metrics,
    routing_metrics_by_task,
)
from workers.evaluation.predictions import percentile, read_jsonl

NEEDED = {"one": ["s:a"], "two": ["s:b", "s:c"], "none": [], "nothing": []}
GIVEN = {
    "one": BundleOutcome(("s:a", "s:x"), {}, 300, no_hit=False),
    "two": BundleOutcome(
        ("s:b",), {"s:c": "alternative to another, which ranks better"}, 100, no_hit=False
    ),
    "none": BundleOutcome((), {}, 0, no_hit=True),
    "nothing": BundleOutcome(("s:y",), {}, 200, no_hit=False),
}


def test_bundle_metrics() -> None:
    assert bundle_metrics(NEEDED, GIVEN) == pytest.approx(
        {
            "complete": 0.5,
            "recall": 0.75,
            "precision": 0.75,
            "skills": 4 / 3,
            "tokens": 200,
            "false_no_hit": 0.0,
            "true_no_hit": 0.5,
        }
    )


def test_figures_that_no_task_speaks_of_are_left_out() -> None:
    no_hit = BundleOutcome((), {}, 0, no_hit=True)
    assert bundle_metrics({"none": []}, {"none": no_hit}) == {"true_no_hit": 1.0}
    assert bundle_metrics({"one": ["s:a"]}, {"one": no_hit}) == {
        "complete": 0.0,
        "recall": 0.0,
        "precision": 0.0,
        "false_no_hit": 1.0,
    }
    assert bundle_metrics({}, {}) == {}


def test_reasons_add_up() -> None:
    no_hit = BundleOutcome((), {}, 0, no_hit=True)
    assert count_missing_skills(NEEDED, GIVEN) == {"alternative to another, which ranks better": 1}
    assert count_missing_skills({"one": ["s:a", "s:b"]}, {"one": no_hit}) == {NO_HIT_REASON: 2}
    assert GIVEN["one"].reason("s:z") == NOT_RANKED_REASON


def test_reasons_name_no_other_skill() -> None:
    chosen, folded, withheld = "s:my loom, 2", "s:my loom", "s:glaze"
    verdict = f"out: declared dependency of {chosen}, but conflicts with s:kiln"
    bundle = Bundle(
        query_id="q",
        status="SKILL_HIT",
        task="weave",
        budget=99,
        left_out=(
            LeftOutSkill(
                skill_id=folded,
                name="",
                reason=f"alternative to {chosen}, which ranks better",
                cause="alternative",
                other=chosen,
            ),
        ),
        withheld=Withheld(
            count=1, skills=(WithheldSkill(skill_id=withheld, kind="licence", reason="no licence"),)
        ),
        explain={
            "candidates": [
                {"skill_id": chosen, "verdict": "in: its text matches the task"},
                {"skill_id": "s:kiln", "verdict": verdict},
            ]
        },
    )
    found = summarise_bundle(bundle, ["s:gone"])
    assert {one: found.reason(one) for one in ("s:kiln", folded, withheld, "s:gone", "s:last")} == {
        "s:kiln": "declared dependency of another, but conflicts with another",
        folded: "alternative to another, which ranks better",
        withheld: WITHHELD_REASON,
        "s:gone": ABSENT_REASON,
        "s:last": NOT_RANKED_REASON,
    }
    no_hit = summarise_bundle(bundle.model_copy(update={"status": "NO_SKILL_HIT"}), ["s:gone"])
    assert no_hit.reason("s:kiln") == NO_HIT_REASON
    assert no_hit.reason("s:gone") == ABSENT_REASON


@pytest.mark.parametrize(
    ("ranked", "scored"),
    [
        ("cxa", "axc"),
        ("acx", "acx"),
        ("xc", "xa"),
        ("cdx", "bax"),
        ("bca", "bac"),
        ("cab", "bac"),
        ("cdab", "badc"),
        ("xy", "xy"),
    ],
)
def test_skills_that_are_right_too_count_in_place_of_those_behind_them(
    ranked: str, scored: str
) -> None:
    needed = "ab" if "b" in scored else "a"
    assert "".join(credit_also(needed, "cd", ranked)) == scored


def test_rows_average_to_the_metrics() -> None:
    ranked = {"one": ["s:x", "s:a"], "two": ["s:c", "s:b"]}
    needed = {task: NEEDED[task] for task in ("one", "two")}
    rows = routing_metrics_by_task(needed, ranked)
    assert rows["one"]["MRR@10"] == 0.5
    assert rows["two"]["FC@10"] == 1.0
    means = routing_metrics(needed, ranked)
    assert means == {name: (rows["one"][name] + rows["two"][name]) / 2 for name in means}


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
@settings(max_examples=30, deadline=None)
def test_intervals_hold_the_mean_and_repeat(values: list[float]) -> None:
    found = bootstrap_interval(values, resamples=500)
    assert found == bootstrap_interval(values, resamples=500)
    assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9
    assert found.mean == pytest.approx(sum(values) / len(values))


def test_an_interval_narrows_with_more_tasks() -> None:
    few, many = bootstrap_interval([0.0, 1.0] * 5), bootstrap_interval([0.0, 1.0] * 50)
    assert many.high - many.low < few.high - few.low
    assert bootstrap_interval([0.25] * 7) == Measure(0.25, 0.25, 0.25)
    with pytest.raises(ValueError, match="no values"):
        bootstrap_interval([])


def measure_peak(function: Callable[[], Measure]) -> tuple[Measure, int]:
    tracemalloc.start()
    try:
        return function(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def few_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the values at once, so that a tenth of the tasks shows the bound."""
    monkeypatch.setattr(intervals, "_DRAWN", 200_000)


@pytest.mark.usefixtures("few_drawn")
def test_the_memory_of_an_interval_does_not_grow_with_tasks_and_resamples() -> None:
    values = np.random.default_rng(1).random(2_001).tolist()
    found, peak = measure_peak(lambda: bootstrap_interval(values, resamples=1_000))
    assert peak < 10_000_000
    indices = np.random.default_rng(intervals.SEED).integers(0, 2_001, (1_000, 2_001))
    means = np.asarray(values)[indices].mean(axis=1)
    assert (found.low, found.high) == tuple(np.percentile(means, (2.5, 97.5)))


@pytest.mark.usefixtures("few_drawn")
def test_the_memory_of_an_interval_does_not_grow_with_groups() -> None:
    values = np.random.default_rng(1).random(2_001)
    rows, names = np.stack([values, np.ones(2_001)], axis=1), [str(n) for n in range(2_001)]

    def mean(sums: intervals.Floats) -> intervals.Floats:
        return np.asarray(sums[:, 0] / sums[:, 1])

    found, peak = measure_peak(lambda: bootstrap_groups(rows, names, mean, resamples=1_000))
    assert peak < 10_000_000
    assert found.mean == pytest.approx(values.mean())
    share = np.full(len(names), 1 / len(names))
    counts = np.random.default_rng(intervals.SEED).multinomial(len(names), share, 1_000)
    sums = (counts @ rows[np.argsort(names)]).astype(np.float64)
    assert (found.low, found.high) == pytest.approx(np.percentile(mean(sums), (2.5, 97.5)))


def test_every_stage_has_its_turn() -> None:
    names = [name for name, _ in configurations(bundles=True)]
    assert names[0] == ALL_STAGES
    assert [f"without {stage}" for stage in OPTIONAL_STAGES] == names[1 : 1 + len(OPTIONAL_STAGES)]
    ranking = dict(configurations(bundles=False))
    assert "without paging" not in ranking
    assert set(ranking["lexical stages only"]) < set(ranking["BM25F only"])
    assert "dense" in ranking["lexical stages only"]


def test_the_table_is_readable() -> None:
    whole, none = Measure(0.8, 0.6, 1.0), Measure(0.0, 0.0, 0.0)
    less = AblationRow(
        "without dense",
        ("dense",),
        {"Hit@1": Measure(0.7, 0.5, 0.9), "bundle": whole},
        {"Hit@1": Measure(-0.1, -0.2, 0.0), "bundle": none},
    )
    first = AblationRow(
        ALL_STAGES, (), {"Hit@1": whole, "bundle": whole}, {"Hit@1": none, "bundle": none}
    )
    table = to_markdown([first, less], 10, 8000)
    assert "| stages | Hit@1 | bundle@8000 |" in table
    assert "| all stages | 0.800 [0.60, 1.00] | 0.800 [0.60, 1.00] |" in table
    assert "| without dense | 0.700 (-0.100 [-0.20, +0.00]) | 0.800 (=) |" in table
    data = to_json_data([first, less], 10, 8000)
    assert data["rows"][1]["against_all_on"]["Hit@1"] == {"mean": -0.1, "low": -0.2, "high": 0.0}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1]", "tasks.jsonl:2: missing task_id, instruction"),
        ('{"task_id": "b"}', "tasks.jsonl:2: missing instruction"),
        ('{"task_id": "b", "instruction": 5}', "tasks.jsonl:2: instruction must be text"),
        (
            '{"task_id": "b", "instruction": "bake", "gt_skill_ids": "s:a"}',
            "tasks.jsonl:2: gt_skill_ids must be a list of skill ids",
        ),
        ('{"task_id": "b", "instruction": "bake", "gt_skill_ids": null}', "must be a list"),
        (
            '{"task_id": "b", "instruction": "bake", "also": "s:a"}',
            "tasks.jsonl:2: also must be a list of skill ids",
        ),
        *(
            (f'{{"task_id": "b", "instruction": "bake", "weight": {weight}}}', "weight must be a")
            for weight in ('"3"', "null", "true", "NaN", "-1", "1e9", "Infinity")
        ),
        ('{"task_id": "b", "instruction": "bake \\ud83c"}', "lone surrogate"),
        ('{"task_id": "b", "instruction": " "}', "tasks.jsonl:2: instruction must not be empty"),
        (
            r'{"task_id": "b", "instruction": "\u0000"}',
            "tasks.jsonl:2: instruction must not be empty",
        ),
        (
            '{"task_id": "a", "instruction": "boil"}',
            "tasks.jsonl:2: task_id 'a' is that of line 1 too",
        ),
        ("{", "tasks.jsonl:2: not JSON"),
        ("[" * 100_000, "tasks.jsonl:2: not JSON"),
        (
            r'{"task_id": "b", "instruction": "bake", "gt_skill_ids": ["s:\udfff"]}',
            "tasks.jsonl:2: has a lone surrogate",
        ),
    ],
)
def test_a_line_of_another_shape_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(f'{{"task_id": "a", "instruction": "bake"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        read_jsonl(path, ("task_id", "instruction"))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_line_feeds_end_a_line_of_jsonl(tmp_path: Path, end: str) -> None:
    texts = ["bake\u2028a loaf\x85", "boil\u2029it"]
    rows = [{"task_id": text, "instruction": text} for text in texts]
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(end.join(json.dumps(row, ensure_ascii=False) for row in rows).encode())
    assert read_jsonl(path, ("task_id", "instruction")) == rows


@pytest.mark.parametrize(
    ("count", "share", "rank"),
    [
        (10, 0.5, 5),
        (100, 0.95, 95),
        (20, 0.95, 19),
        (3, 0.5, 2),
        (1, 0.95, 1),
        (9, 1.0, 9),
        (9, 0.0, 1),
        (100, 0.07, 7),
    ],
)
def test_percentiles_by_nearest_rank(count: int, share: float, rank: int) -> None:
    assert percentile(range(count, 0, -1), share) == rank


def test_bins_hold_the_share_that_came_true() -> None:
    bins = reliability_bins([0.05, 0.08, 0.95, 1.0], [False, True, True, True])
    assert [one.predicted for one in bins] == pytest.approx([0.065, 0.975])
    assert [(one.observed, one.count) for one in bins] == [(0.5, 2), (1.0, 2)]
    assert calibration_error(bins) == pytest.approx((0.435 + 0.025) / 2)
    assert calibration_error([]) == 0.0
