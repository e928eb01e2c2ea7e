"""`train ranker`: learns the weight of each part of the score from labelled prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from config.errors import PermanentError, UsageError
from config.settings import Settings
from workers.cli.common import (
    json_option,
    print_result,
    print_to_stderr,
    progress_bar,
    read_settings,
)
from workers.cli.parameter_types import OutputFile
from workers.cli.training.model_training import outcomes_option, read_reported

if TYPE_CHECKING:
    from workers.training.ranker_training import RankerTraining


@click.command("ranker")
@click.argument("prompts", type=click.Path(path_type=Path), required=False)
@outcomes_option
@click.option(
    "--out",
    type=OutputFile(".json"),
    help="File for the factors (.json); set `ranker.weights` to it.",
)
@json_option
def ranker(prompts: Path | None, outcomes: bool, out: Path | None) -> None:
    """Learn the weights of the score from labelled prompts.

    PROMPTS is JSONL with `instruction` and `gt_skill_ids`; --outcomes adds prompts for which a
    skill was reported to have helped, or replaces the file. Learning starts from the shipped
    weights. Prompts are held out by skill, in five folds; if the learned weights do not rank the
    held-out prompts better than the shipped ones, nothing is written and the exit code is 1.

    \b
    Example:
      skillbus train ranker my-prompts.jsonl --out ranker.json
    """
    from search.models.installed import check_installed
    from search.scoring.ranker_factors import dump_factors
    from workers.cli.evaluation.options import open_library
    from workers.evaluation.predictions import right_skills
    from workers.library.user_files import write_atomically
    from workers.training.ranker_training import rank_prompt, train_ranker

    check_installed("scipy", purpose="training a ranking")  # ranking the prompts takes long
    settings = read_settings()
    rows = _read_rows(settings, prompts, outcomes)
    shipped = settings.model_copy(
        update={"ranker": settings.ranker.model_copy(update={"weights": ""})}
    )
    with open_library(shipped, wait=False) as services, progress_bar("ranking") as step:
        ranked = []
        for done, row in enumerate(rows, 1):
            weight = float(row.get("weight", 1.0))
            ranked.append(rank_prompt(services, row["instruction"], right_skills(row), weight))
            step(done, len(rows))
    found = [prompt for prompt in ranked if prompt is not None]
    trained = train_ranker(found)
    report = _report(trained, len(rows), [prompt.weight for prompt in found])
    print_result(report, lambda made: click.echo(json.dumps(made, indent=2)))
    if not trained.wins:
        raise PermanentError(
            "the learned weights do not rank left-out prompts better than the shipped ones; "
            "nothing was written"
        )
    if out is not None:
        write_atomically(out, dump_factors(trained.factors))
        print_to_stderr(f"written to {out}; set ranker.weights to use it")


def _read_rows(settings: Settings, prompts: Path | None, outcomes: bool) -> list[dict[str, Any]]:
    """Return the labelled prompts of the file and of reported outcomes."""
    from workers.evaluation.predictions import read_jsonl

    if prompts is None and not outcomes:
        raise UsageError("give PROMPTS, or --outcomes")
    rows = [] if prompts is None else read_jsonl(prompts, ("instruction", "gt_skill_ids"))
    found = [row for row in rows if row["gt_skill_ids"] and row.get("weight", 1)]
    return found + (read_reported(settings) if outcomes else [])


def _report(trained: RankerTraining, prompts: int, weights: Sequence[float]) -> dict[str, Any]:
    shipped, learnt = (
        figures.T @ weights / sum(weights) for figures in (trained.shipped, trained.learnt)
    )
    return {
        "prompts": prompts,
        "with_a_needed_candidate": len(weights),
        "left_out": {
            "shipped": {"hit_at_1": round(shipped[0], 4), "mrr": round(shipped[1], 4)},
            "learnt": {"hit_at_1": round(learnt[0], 4), "mrr": round(learnt[1], 4)},
            "mrr_gain": round(trained.gain, 4),
            "mrr_gain_at_least": round(trained.least_gain, 4),
        },
        "penalty": trained.penalty,
        "factors": {name: round(value, 4) for name, value in trained.factors.items()},
    }
