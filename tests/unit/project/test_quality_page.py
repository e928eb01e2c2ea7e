"""The page about quality and its plots; `make check` compares them with the results file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.quality import confidence, passages, roles, routing
from tests.bench.quality import sizes as library_sizes
from tests.bench.quality.__main__ import write_section
from tests.bench.quality.data import QualityData, spaced
from tests.bench.quality.figures import (
    CROSS_VALIDATED,
    cell,
    count,
    mean_figure,
    pair_cells,
    share,
    signed,
    wide_table,
)
from tests.bench.quality.page import (
    DOCS,
    PLOTS,
    RESULTS,
    TEMPLATE,
    find_stale,
    read_results,
    render_files,
    write_files,
    write_results,
)
from workers.evaluation.intervals import bootstrap_groups, bootstrap_interval


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A page of two sections, with one plot: to draw all of them takes long."""
    results = read_results()
    kept = {name: results["sections"][name] for name in ("confidence", "links")}
    write_results(results | {"sections": kept}, tmp_path)
    write_files(tmp_path)
    return tmp_path


def test_a_changed_figure_makes_the_page_stale(docs: Path) -> None:
    results = read_results(docs)
    results["sections"]["links"]["dependency"]["dev"]["value"] = 0.123
    write_results(results, docs)
    assert find_stale(docs) == ["quality.md"]
    write_files(docs)
    assert find_stale(docs) == []
    assert "| .123 [" in (docs / "quality.md").read_text(encoding="utf-8")


def test_what_was_edited_and_a_plot_too_many_are_stale(docs: Path) -> None:
    (docs / "quality.md").write_text("edited", encoding="utf-8")
    (plot,) = (docs / PLOTS).iterdir()
    plot.write_text("<svg/>", encoding="utf-8")
    (docs / PLOTS / "left.svg").write_text("<svg/>", encoding="utf-8")
    assert find_stale(docs) == ["quality.md", f"{PLOTS}/{plot.name}", f"{PLOTS}/left.svg"]


def test_the_results_file_is_written_as_it_was_read(tmp_path: Path) -> None:
    write_results(read_results(), tmp_path)
    assert (tmp_path / RESULTS).read_bytes() == (DOCS / RESULTS).read_bytes()


def test_a_measured_section_keeps_others_of_the_same_encoder_and_sample(docs: Path) -> None:
    results = read_results(docs)
    about, links = results["about"], results["sections"]["links"]
    write_section("links", {}, about, docs)
    assert read_results(docs) == results | {"sections": results["sections"] | {"links": {}}}
    trial = about | {"sample": 3}
    write_section("links", links, trial, docs)
    assert read_results(docs) == results | {"about": trial, "sections": {"links": links}}
    (docs / RESULTS).unlink()
    write_section("links", links, about, docs)
    assert read_results(docs)["sections"] == {"links": links}


def test_a_section_that_was_not_measured_says_so() -> None:
    empty = {"format": 1, "about": {"encoder": "minilm", "sample": None}, "sections": {}}
    files = render_files(empty, TEMPLATE.read_text(encoding="utf-8"))
    assert list(files) == ["quality.md"]
    text = files["quality.md"].decode()
    assert "*Not measured.*" in text
    assert "{{" not in text
    assert ".svg" not in text


@pytest.mark.parametrize("change", ["unknown", "left out"])
def test_the_template_shows_every_block_once_named(change: str) -> None:
    template = TEMPLATE.read_text(encoding="utf-8")
    changed = (
        template + "{{nothing.table}}"
        if change == "unknown"
        else template.replace("{{links.table}}", "")
    )
    with pytest.raises(ValueError, match=change):
        render_files(read_results(), changed)


def figures(make: Callable[[int], float], count: int = 12) -> Any:
    return mean_figure([make(n) for n in range(count)], [f"repo{n % 4}" for n in range(count)])


def full_results() -> dict[str, Any]:
    """Results with both columns in every section that has plots."""
    one = figures(lambda n: float(n % 3 == 0))
    kinds = {
        kind: {name: {f"first {cut}": one for cut in routing.CUTOFFS}}
        for kind, name in (("length", "1–8 terms"), ("language", "English"), ("style", "plain"))
    }
    prompts = {"kinds": kinds, "recall": [one] * 100, "near_misses": one}
    sizes = [
        {"size": size, "embedded": 0.5}
        | {c: dict.fromkeys(library_sizes.METRICS, one) for c in both}
        for size in (189, 12_000)
        for both in [("dev", "left_out")]
    ]
    calibration = {
        "error": one,
        "bins": [{"predicted": 0.2, "observed": 0.25, "count": 8}],
    }
    selected = {
        "all": dict.fromkeys(passages.MEASURES, one),
        "notes": dict.fromkeys(passages.MEASURES, one),
    }
    return {
        "format": 1,
        "about": {"encoder": "minilm", "sample": 12},
        "sections": {
            "sizes": sizes,
            "routing": {
                "size": 12_000,
                "embedded": 0.5,
                "prompts": {"dev": prompts, "left_out": prompts},
            },
            "confidence": {
                "calibration": {"dev": calibration, "left_out": calibration},
                "no_skill_hit": {"tasks with their skills": {"dev": one}},
            },
            "passages": {
                "default": "0.1",
                "f": {
                    setting: {"dev": selected, "left_out": selected} for setting in ("0.1", "0.2")
                },
            },
        },
    }


def test_all_plots_are_drawn() -> None:
    """`make check` draws those of the real results anew: the bytes are the same each time."""
    files = render_files(full_results(), TEMPLATE.read_text(encoding="utf-8"))
    assert {name for name in files if name.endswith(".svg")} == {
        f"quality/{name}.svg" for name in ("recall", "length", "sizes", "reliability", "passages")
    }
    assert all(b"<svg" in image for name, image in files.items() if name.endswith(".svg"))
    assert b"dc:date" not in files["quality/recall.svg"]
    assert b"0.1 (default)" in files["quality.md"]


def test_a_figure_without_a_left_out_one_is_marked() -> None:
    dev = figures(lambda n: n / 12)
    assert pair_cells({"dev": dev})[1] == "dev only"
    assert pair_cells({"left_out": dev})[0] == "–"
    assert pair_cells({}) == ["–", "–"]
    crossed = mean_figure([0.0, 1.0], ["a", "b"], CROSS_VALIDATED)
    assert cell(crossed) == ".500 [.00, 1.00] (cv)"
    assert signed(figures(lambda _: 0.0)) == "="
    assert signed(figures(lambda _: -0.25)).startswith("-0.250 [-0.25")


def test_a_wide_table_has_a_row_per_column_of_the_page() -> None:
    dev, left = figures(lambda n: n / 12), figures(lambda n: float(n % 2))
    rows = [("both", {"a": {"dev": dev, "left_out": left}, "b": {"dev": dev}}), ("none", {})]
    lines = wide_table("what", rows, {"a": share, "b": count}).splitlines()
    assert lines[0] == "| what | cases (groups) |  | a | b |"
    assert [line.split(" | ")[1:3] for line in lines[2:]] == [
        ["12 (4)", "dev"],
        ["12 (4)", "left out"],
    ]
    assert lines[3].endswith("| – |")
    alone = wide_table("what", [("one", {"a": {"dev": dev}})], {"a": share})
    assert "| dev only |" in alone


def test_groups_widen_an_interval() -> None:
    values = [float(n // 10 % 2) for n in range(200)]
    rows = np.stack([np.array(values), np.ones(200)], axis=1)

    def mean(sums: Any) -> Any:
        return sums[:, 0] / sums[:, 1]

    alone = bootstrap_groups(rows, [str(n) for n in range(200)], mean)
    groups = bootstrap_groups(rows, [str(n // 10) for n in range(200)], mean)
    assert alone == pytest.approx(bootstrap_interval(values), abs=0.01)
    assert groups.mean == alone.mean
    assert groups.high - groups.low > 2 * (alone.high - alone.low)
    with pytest.raises(ValueError, match="no rows"):
        bootstrap_groups(np.zeros((0, 2)), [], mean)


def test_calibration_error_is_that_of_the_bins() -> None:
    outcomes = [(0.9, True, "a"), (0.9, True, "b"), (0.3, True, "c"), (0.3, False, "c")]
    found = confidence._calibration(outcomes)
    assert found["error"]["value"] == pytest.approx((2 * 0.1 + 2 * 0.2) / 4)
    assert found["error"]["groups"] == 3
    assert [one["count"] for one in found["bins"]] == [2, 2]


def test_roles_are_counted_by_line() -> None:
    gold = [(1, 2, "frontmatter"), (3, 5, "step"), (6, 6, "example")]
    counts = roles.count_confusions(gold, [(3, 4, "step"), (5, 5, "heading"), (6, 6, "step")])
    assert counts.sum() == 4
    assert roles._accuracy(counts.ravel()[None])[0] == 0.5
    assert roles._macro_f1(counts.ravel()[None])[0] == pytest.approx(2 * 2 / (3 + 3) / 6)


def test_the_first_right_skill_counts() -> None:
    row = {"gt_skill_ids": ["s:a"], "also": ["s:b"]}
    assert routing.find_rank(row, ["s:x", "s:b", "s:a"]) == 2
    assert routing.find_rank(row, ["s:x"]) == 101


def test_data_are_read_by_column(tmp_path: Path) -> None:
    (tmp_path / "library" / "notes" / "plan").mkdir(parents=True)
    (tmp_path / "library" / "notes" / "plan" / "SKILL.md").write_text("# Plan", encoding="utf-8")
    index = json.dumps({"dir": "plan", "repo": "owner/notes"})
    (tmp_path / "library" / "notes" / "index.jsonl").write_text(index, encoding="utf-8")
    (tmp_path / "collections.json").write_text('{"notes": "mine"}', encoding="utf-8")
    (tmp_path / "dev").mkdir()
    rows = "\n".join(
        json.dumps({"task_id": str(n), "instruction": "a\u2028b"}, ensure_ascii=False)
        for n in range(10)
    )
    (tmp_path / "dev" / "tasks.jsonl").write_text(rows, encoding="utf-8")
    data = QualityData(tmp_path, sample=3)
    assert data.skill_ids == ["notes:plan"]
    assert data.repository("notes:plan") == "owner/notes"
    assert data.collection("notes:plan") == "mine"
    assert [row["task_id"] for row in data.labels("dev", "tasks.jsonl")] == ["0", "3", "6"]
    assert data.labels("left_out", "tasks.jsonl") == []
    assert data.predictions("prompts.json") is None
    assert len(spaced([{}] * 2, 5)) == 2
    before = data.digest(data.skill_ids)
    (tmp_path / "library" / "notes" / "plan" / "SKILL.md").write_text("# Plans", encoding="utf-8")
    assert data.digest(data.skill_ids) != before
