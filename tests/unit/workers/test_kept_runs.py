"""Kept runs: made of what was found, compared, drawn, and made of labelled prompts."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from config.errors import UsageError
from config.settings import Settings
from graph.local.store import SqliteSkillGraph
from skills.bundle.rejection import RejectionReason
from skills.outcomes.model import AnsweredQuery, Outcome, OutcomeKind, Reporter
from tasks.evaluations.model import PURGED, EvaluatedPrompt, Evaluation
from tasks.evaluations.protocol import forget_skill
from tasks.evaluations.sqlite import SqliteEvaluationStore
from tasks.outcomes.sqlite import SqliteOutcomeStore
from workers.cli.program import cli
from workers.evaluation.bundles import BundleOutcome
from workers.evaluation.intervals import bootstrap_interval
from workers.evaluation.predictions import RankedTask
from workers.evaluation.runs.compare_runs import compare_runs
from workers.evaluation.runs.curves import find_recall, find_reliability
from workers.evaluation.runs.labelled_prompts import LabelledPrompts, merge_by_task
from workers.evaluation.runs.make_run import (
    describe_settings,
    evaluate_bundle_prompt,
    evaluate_prompt,
    make_run,
)
from workers.http.routes.quality.models import MeasureChangeData, SettingChange


def ranked(task_id: str, *skill_ids: str, probability: float | None = 0.5) -> RankedTask:
    return RankedTask(task_id, list(skill_ids), probability, {})


def keep(*prompts: EvaluatedPrompt) -> Evaluation:
    return make_run("routing", "tasks.jsonl", Settings(), 3, (), prompts)


class TestMadeRuns:
    def test_a_prompt_has_ranks_and_values(self) -> None:
        found = evaluate_prompt(ranked("t", "a", "b"), "fire", ["b", "c", "b"])
        assert dict(zip(found.needed, found.ranks, strict=True)) == {"b": 2, "c": 0}
        assert len(found.needed) == 2, "a skill that is named twice counts once"
        assert found.values["Hit@1"] == 0.0
        assert found.values["MRR@10"] == 0.5

    def test_a_prompt_without_a_right_skill_counts_in_no_measure(self) -> None:
        run = keep(
            evaluate_prompt(ranked("t", "a"), "fire", []),
            evaluate_prompt(ranked("u", "a"), "bake", ["a"]),
        )
        assert run.summary.tasks == 2
        assert run.summary.measures["Hit@1"] == tuple(bootstrap_interval([1.0]))

    def test_a_bundle_has_values_for_each_budget(self) -> None:
        row = {"task_id": "t", "instruction": "fire", "gt_skill_ids": ["a", "b", "a"]}
        given = {
            200: BundleOutcome(("a",), {}, 90, no_hit=False),
            400: BundleOutcome(("b", "a"), {}, 300, no_hit=False),
        }
        found = evaluate_bundle_prompt(row, given)
        assert found.values == {
            "complete@200": 0.0,
            "recall@200": 0.5,
            "complete@400": 1.0,
            "recall@400": 1.0,
        }
        assert found.ranks == (2, 1)

    def test_settings_of_ranking_that_differ_are_kept(self) -> None:
        settings = Settings(choice={"budget": 900}, git={"poll_seconds": 7_000})
        assert describe_settings(settings) == {"choice": {"budget": 900}}

    def test_the_language_model_of_a_run_is_kept_without_its_address(self) -> None:
        model = {"base_url": "http://10.0.0.7:8000/v1", "model": "small", "stages": ["rewrite"]}
        found = describe_settings(Settings(language_model=model))
        assert found == {"language_model": {"model": "small", "stages": ["rewrite"]}}


class TestComparison:
    def test_prompts_get_better_and_worse(self) -> None:
        before = keep(
            evaluate_prompt(ranked("1", "x", "a"), "fire", ["a"]),
            evaluate_prompt(ranked("2", "b"), "bake", ["b"]),
            evaluate_prompt(ranked("3", "c"), "weave", ["c"]),
            evaluate_prompt(ranked("4", "c"), "sing", ["c"]),
        )
        after = keep(
            evaluate_prompt(ranked("1", "a"), "fire", ["a"]),
            evaluate_prompt(ranked("2", "x"), "bake", ["b"]),
            evaluate_prompt(ranked("other", "c"), "weave", ["c"]),
            evaluate_prompt(ranked("4", "c"), "sing", ["a"]),
        )
        found = compare_runs(before, after)
        assert (found.paired, found.unpaired) == (3, 2)
        assert [(one.prompt_id, one.before, one.after) for one in found.better] == [
            ("1", (2,), (1,))
        ]
        assert [(one.prompt_id, one.before, one.after) for one in found.worse] == [
            ("2", (1,), (0,))
        ]
        change = next(one for one in found.measures if one.name == "MRR@10")
        assert (change.before, change.after) == pytest.approx((2.5 / 3, 2 / 3))
        assert tuple(change.change) == tuple(bootstrap_interval([0.5, -1.0, 0.0]))
        assert not change.is_significant

    def test_prompts_with_the_same_text_are_paired_by_their_ids(self) -> None:
        task = "fire " * 1_000
        run = keep(
            evaluate_prompt(ranked("1", "a"), task + "a bowl", ["a"]),
            evaluate_prompt(ranked("2", "x", "a"), task + "a vase", ["a"]),
        )
        for other in (run, keep(*reversed(run.prompts))):
            found = compare_runs(run, other)
            assert (found.paired, found.unpaired) == (2, 0)
            assert found.better == found.worse == ()

    def test_a_prompt_of_the_same_id_is_not_paired_with_another_one(self) -> None:
        first, second, third = (
            evaluate_prompt(ranked(name, *ids), "fire", ["a"])
            for name, ids in (("1", "a"), ("2", "xa"), ("3", "xya"))
        )
        found = compare_runs(keep(first, second), keep(third, first))
        assert found.paired == 2
        assert found.better == ()
        assert [one.prompt_id for one in found.worse] == ["3"]

    def test_runs_do_not_differ_by_purged_skills(self) -> None:
        run = keep(evaluate_prompt(ranked("1", "a", "x", "b"), "fire", ["a", "b"]))
        with closing(SqliteEvaluationStore(":memory:")) as store:
            store.add(run)
            for skill_id in ("a", "b"):
                forget_skill(store, skill_id)
            purged = store.get(run.summary.evaluation_id)
        assert purged.prompts[0].needed == (PURGED, PURGED)
        found = compare_runs(purged, purged)
        assert (found.paired, found.better, found.worse) == (1, (), ())

    def test_skills_that_change_places_make_a_prompt_neither_better_nor_worse(self) -> None:
        first, second = (
            keep(evaluate_prompt(ranked("1", *ids), "fire", ["a", "b", "c"]))
            for ids in ("ab45678c", "ac45678b")
        )
        found = compare_runs(first, second)
        assert (found.paired, found.better, found.worse) == (1, (), ())

    def test_equal_runs_do_not_differ(self) -> None:
        run = keep(evaluate_prompt(ranked("1", "a"), "fire", ["a"]))
        found = compare_runs(run, run)
        assert found.better == found.worse == ()
        assert found.settings == ()
        assert all(tuple(one.change) == (0.0, 0.0, 0.0) for one in found.measures)

    def test_settings_are_named_where_they_differ(self) -> None:
        prompts = (evaluate_prompt(ranked("1", "a"), "fire", ["a"]),)
        before = make_run("routing", "t", Settings(), 3, (), prompts)
        changed = Settings(choice={"budget": 900})
        after = make_run("routing", "t", changed, 4, ("dense",), prompts)
        assert compare_runs(before, after).settings == (
            ("choice.budget", None, 900),
            ("skills", 3, 4),
            ("without", "", "dense"),
        )

    def test_budgets_are_named_where_they_differ(self) -> None:
        row = {"task_id": "t", "instruction": "fire", "gt_skill_ids": ["a"]}
        bundle = BundleOutcome(("a",), {}, 90, no_hit=False)
        before, after = (
            make_run("bundles", "t", Settings(), 3, (), [evaluate_bundle_prompt(row, given)])
            for given in ({2000: bundle, 10000: bundle}, {2000: bundle})
        )
        assert compare_runs(before, after).settings == (("budgets", "2000 10000", "2000"),)

    def test_runs_of_different_commands_are_not_compared(self) -> None:
        prompts = (evaluate_prompt(ranked("1", "a"), "fire", ["a"]),)
        other = make_run("bundles", "t", Settings(), 3, (), prompts)
        with pytest.raises(UsageError, match=r"`eval routing` cannot .* `eval bundles`"):
            compare_runs(keep(*prompts), other)


class TestCommands:
    def test_the_command_line_names_settings_that_are_off(self, tmp_path: Path) -> None:
        prompts = (evaluate_prompt(ranked("1", "a"), "fire", ["a"]),)
        off = Settings(learning={"memory": False}, diffusion={"weight": 0.0})
        runs = [
            make_run("routing", "t", settings, 3, without, prompts)
            for settings, without in ((Settings(), ()), (off, ("dense",)))
        ]
        SqliteSkillGraph(tmp_path / "graph.db", writable=True).close()
        with closing(SqliteEvaluationStore(tmp_path / "evaluations.db")) as store:
            for run in runs:
                store.add(run)
        ids = [run.summary.evaluation_id for run in runs]
        result = CliRunner().invoke(cli, ["--home", str(tmp_path), "eval", "compare", *ids])
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[1:4] == [
            "diffusion.weight: default before, 0.0 after",
            "learning.memory: default before, False after",
            "without: none before, dense after",
        ]
        as_json = ["--home", str(tmp_path), "eval", "compare", *ids, "--json"]
        data = json.loads(CliRunner().invoke(cli, as_json).stdout)
        for one in data["measures"]:
            assert MeasureChangeData(**one).model_dump() == one
        names = [SettingChange(**one).name for one in data["settings"]]
        assert names == ["diffusion.weight", "learning.memory", "without"]


class TestCurves:
    def test_recall_is_of_the_needed_skills_until_a_rank(self) -> None:
        prompts = [
            evaluate_prompt(ranked("1", "a", "x", "b"), "fire", ["a", "b"]),
            evaluate_prompt(ranked("2", "x"), "bake", ["c"]),
        ]
        assert find_recall(prompts)[:3] == [(1, 0.25), (2, 0.25), (3, 0.5)]
        assert find_recall([]) == []

    def test_reliability_compares_probabilities_with_what_is_right(self) -> None:
        prompts = [
            evaluate_prompt(ranked(str(n), "a", probability=0.85), "fire", ["a" if n else "b"])
            for n in range(4)
        ]
        found = find_reliability(prompts)
        assert found is not None
        [point] = found.points
        assert (point.observed, point.prompts) == (0.75, 4)
        assert 0.2 < point.low < 0.75 < point.high < 1.0
        assert found.error == pytest.approx(0.1)

    def test_without_probabilities_there_is_none(self) -> None:
        prompts = [evaluate_prompt(ranked("1", "a", probability=None), "fire", ["a"])]
        assert find_reliability(prompts) is None


class TestLabelledPrompts:
    def report(
        self,
        store: SqliteOutcomeStore,
        query_id: str,
        task: str,
        kind: OutcomeKind,
        skill_id: str = "lib:a",
        by: Reporter = Reporter.PERSON,
    ) -> None:
        store.add_answers([AnsweredQuery(query_id, "ann", "", task, 1_000.0, hit=True)])
        reason = RejectionReason.WRONG_STEP if kind is OutcomeKind.REJECTED else ""
        key = f"{query_id}/{skill_id}/{kind}"
        store.add_outcomes(
            [Outcome(key, query_id, skill_id, kind, by, "ann", 2_000.0, str(reason))]
        )

    def test_they_are_what_persons_said_and_follow_the_store(self, tmp_path: Path) -> None:
        store = SqliteOutcomeStore(tmp_path / "outcomes.db")
        labelled = LabelledPrompts(store)
        assert labelled.read() == []
        self.report(store, "q1", "Fire stoneware", OutcomeKind.HELPED)
        self.report(store, "q1", "Fire stoneware", OutcomeKind.REJECTED, "lib:b")
        self.report(store, "q2", "fire  Stoneware", OutcomeKind.HELPED, by=Reporter.AGENT)
        self.report(store, "q3", "sing", OutcomeKind.MISSING, "")
        found = {one.query_id: one for one in labelled.read()}
        assert found.keys() == {"q1", "q3"}
        assert (found["q1"].right, found["q1"].wrong) == (("lib:a",), ("lib:b",))
        assert found["q3"].missing
        assert labelled.list_same_task("FIRE stoneware") == {"q1", "q2"}
        store.forget_outcomes("q1")
        assert {one.query_id for one in labelled.read()} == {"q3"}
        assert labelled.list_same_task("fire stoneware") == {"q2"}
        store.close()

    def test_reports_of_one_task_are_one_prompt(self, tmp_path: Path) -> None:
        store = SqliteOutcomeStore(tmp_path / "outcomes.db")
        self.report(store, "q1", "Fire stoneware", OutcomeKind.HELPED)
        self.report(store, "q2", "fire stoneware ", OutcomeKind.HELPED, "lib:b")
        self.report(store, "q3", "sing", OutcomeKind.REJECTED, "lib:b")
        [one] = merge_by_task(LabelledPrompts(store).read())
        assert set(one.right) == {"lib:a", "lib:b"}
        store.close()
