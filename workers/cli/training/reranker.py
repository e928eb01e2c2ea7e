"""`train reranker`: trains a cross-encoder from a library's own text and feedback."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from search.models.identity import SMALL_MODEL, trained_languages
from workers.cli.common import format_count, print_result, print_to_stderr, read_settings
from workers.cli.parameter_types import NumberRange
from workers.cli.training.model_training import (
    check_fold,
    choose_options,
    data_options,
    number_option,
    prepare_folder,
    print_comparison,
    resume_or_build,
    run_options,
    run_training,
)

if TYPE_CHECKING:
    from workers.training.reranker.training_lists import TrainingSet
    from workers.training.trainer import ProgressCallback

_ORDERS = ("baseline", "reranker_only", "combined")


@click.command("reranker")
@data_options
@click.option(
    "--base",
    default=SMALL_MODEL,
    show_default=True,
    help="Name or folder of the encoder or cross-encoder to start from.",
)
@number_option(
    "--queries", 6, click.IntRange(0, 100), "Queries generated from each skill's own text."
)
@number_option("--learning-rate", 2e-5, NumberRange(0, 1, min_open=True), "Peak learning rate.")
@number_option("--batch-size", 16, click.IntRange(1, 1024), "Training lists per step.")
@click.option("--lists-a-step", type=click.IntRange(1, 1024), hidden=True)
@number_option(
    "--max-length",
    256,
    click.IntRange(16, 32_768),
    "Maximum tokens of a task and a skill together.",
)
@number_option(
    "--list-size",
    20,
    click.IntRange(2, 200),
    "Skills in a training list: the needed one and the first others of the ranking.",
)
@number_option(
    "--temperature",
    1.0,
    NumberRange(0, 100, min_open=True),
    "Divides the scores of a list in the loss.",
)
@run_options
def reranker(**options: Any) -> None:
    """Train a cross-encoder that reads a task together with a skill.

    It learns from queries generated from each skill's own text, from the prompts that a language
    model wrote for it, and from the tasks of --feedback. Each is trained as a list of the needed
    skill and the first other skills of the library's ranking, without skills that may serve as
    well. One of --folds parts of skills and tasks is held out; the report compares the rankings
    with and without the model on it.

    \b
    Example:
      skillbus train reranker --out my-reranker --feedback tasks.jsonl
      SKILLBUS_RERANKER__MODEL=my-reranker skillbus query "plan the crossing"
    """
    from workers.training.reranker.cross_encoder import check_base
    from workers.training.reranker.reranker_training import (
        evaluate_on_held_out,
        make_reranker_card,
        train,
    )
    from workers.training.reranker.training_lists import (
        RerankerOptions,
        TrainingSet,
        build_training_set,
    )

    settings, out = read_settings(), options["out"]
    if (batch_size := options.pop("lists_a_step")) is not None:
        print_to_stderr("warning: `--lists-a-step` is deprecated; use `--batch-size`")
        options["batch_size"] = batch_size
    check_fold(options)
    prepare_folder(out, options["fresh"], "reranker", options["base"])
    languages = tuple(sorted(trained_languages(options["base"])))
    chosen = choose_options(settings, RerankerOptions, options, languages=languages)
    training_set = resume_or_build(
        settings, options, chosen, TrainingSet, check_base, build_training_set
    )

    def evaluate(made: TrainingSet, folder: Path, step: ProgressCallback) -> dict[str, Any]:
        return evaluate_on_held_out(made, folder, settings.reranker.weight, step)

    card = run_training(training_set, options, train, evaluate, make_reranker_card)
    print_result(card, lambda made: _print(made, out))


def _print(card: Mapping[str, Any], out: Path) -> None:
    click.echo(f"lists {card['lists']}, base {card['base']}")
    for name, count in card["notes"].items():
        click.echo(f"  {name}: {count}")
    for origin, figures in card["held_out"].items():
        click.echo(f"held-out {origin}: {format_count(figures['queries'], 'query')}")
        print_comparison(figures, _ORDERS)
    if card["wins"]:
        click.echo(f'better than the baseline: set reranker.model = "{out.absolute()}" to use it')
    else:
        click.echo("not better than the baseline on held-out queries: not recommended")
