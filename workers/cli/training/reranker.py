"""`train reranker`: trains a cross-encoder from a library's own text and feedback."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from config.settings import Settings
from search.models.encoder import SMALL_MODEL, trained_languages
from workers.cli.common import json_option, print_json, print_to_stderr, progress_bar, read_settings
from workers.cli.training.model_folder import (
    check_fold,
    check_same_options,
    fresh_option,
    prepare_folder,
    read_feedback,
)

if TYPE_CHECKING:
    from workers.training.training_set import TrainingOptions, TrainingSet

_ORDERS = ("baseline", "reranker_only", "combined")


@click.command("reranker")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the model. An interrupted training there is resumed.",
)
@click.option(
    "--feedback",
    type=click.Path(path_type=Path),
    help="JSONL of tasks with `instruction` and `gt_skill_ids`, as for `eval routing`.",
)
@click.option(
    "--base",
    default=SMALL_MODEL,
    show_default=True,
    help="Name or folder of the encoder or cross-encoder to start from.",
)
@click.option(
    "--queries",
    default=6,
    show_default=True,
    type=click.IntRange(0, 100),
    help="Queries generated from each skill's own text.",
)
@click.option(
    "--prompts/--no-prompts",
    default=True,
    show_default=True,
    help="Also learn from the prompts that the language model wrote (stage `prompts`).",
)
@click.option(
    "--epochs",
    default=1,
    show_default=True,
    type=click.IntRange(1, 100),
    help="Passes over the training set.",
)
@click.option(
    "--learning-rate",
    default=2e-5,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True),
    help="Peak learning rate.",
)
@click.option(
    "--batch-size",
    default=16,
    show_default=True,
    type=click.IntRange(1, 1024),
    help="Training lists per step.",
)
@click.option("--lists-a-step", type=click.IntRange(1, 1024), hidden=True)
@click.option(
    "--max-length",
    default=256,
    show_default=True,
    type=click.IntRange(16, 32_768),
    help="Maximum tokens of a task and a skill together.",
)
@click.option(
    "--list-size",
    default=20,
    show_default=True,
    type=click.IntRange(2, 200),
    help="Skills in a training list: the needed one and the first others of the ranking.",
)
@click.option(
    "--temperature",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, 100, min_open=True),
    help="Divides the scores of a list in the loss.",
)
@click.option(
    "--folds",
    default=5,
    show_default=True,
    type=click.IntRange(2, 100),
    help="Parts into which skills and tasks are divided.",
)
@click.option(
    "--fold",
    default=0,
    show_default=True,
    type=click.IntRange(0, 99),
    help="The part that is held out, counted from 0.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of all random choices.")
@click.option(
    "--threads",
    default=0,
    type=click.IntRange(0, 256),
    help="CPU threads of the training. [default: processors]",
)
@click.option(
    "--checkpoint-steps",
    default=10,
    show_default=True,
    type=click.IntRange(1),
    help="Steps between checkpoints.",
)
@fresh_option
@json_option
@click.pass_context
def reranker(ctx: click.Context, /, **options: Any) -> None:
    """Train a cross-encoder that reads a task together with a skill.

    It learns from queries generated from each skill's own text, from the prompts that a language
    model wrote for it, and from the tasks of --feedback: each is a list of the needed skill and
    the first others of the library's ranking, without those that may serve as well. One of
    --folds parts of skills and tasks is held out; the report compares the rankings with and without
    the model on it.

    \b
    Example:
      skillbus train reranker --out my-reranker --feedback tasks.jsonl
      SKILLBUS_RERANKER__MODEL=my-reranker skillbus query "plan the crossing"
    """
    from workers.training.reranker_training import (
        TRAINING_SET_FILE,
        evaluate_on_held_out,
        train,
        write_model_card,
    )

    settings, out = read_settings(ctx), options["out"]
    if (batch_size := options.pop("lists_a_step")) is not None:
        print_to_stderr("warning: `--lists-a-step` is deprecated; use `--batch-size`")
        options["batch_size"] = batch_size
    check_fold(options)
    prepare_folder(out, options["fresh"], TRAINING_SET_FILE, "reranker")
    training_set = _load_or_build_training_set(settings, options)
    threads = options["threads"] or (os.cpu_count() or 1)
    with progress_bar("training") as step:
        losses = train(training_set, out, threads, options["checkpoint_steps"], step)
    with progress_bar("evaluating") as step:
        report = evaluate_on_held_out(training_set, out, settings.reranker.weight, step)
    if losses:
        report["loss"] = [round(losses[0], 4), round(losses[-1], 4)]
    card = write_model_card(training_set, out, report)
    if options["as_json"]:
        print_json(card)
        return
    _print(card, out)


def _load_or_build_training_set(settings: Settings, options: Mapping[str, Any]) -> TrainingSet:
    """The training set of an interrupted training, or a new one from the library."""
    from workers.cli.evaluation.options import open_library
    from workers.library.user_files import write_atomically
    from workers.training.reranker_training import TRAINING_SET_FILE
    from workers.training.training_set import build_training_set, dump, load

    tasks, feedback = read_feedback(options["feedback"])
    training_options = _training_options(settings, options, feedback)
    path = options["out"] / TRAINING_SET_FILE
    if path.exists():
        training_set = load(path)
        check_same_options(training_set.training_options, training_options, options["out"])
        print_to_stderr(f"resuming the training in {options['out']}")
        return training_set
    with (
        open_library(settings, wait=True) as services,
        progress_bar("building the training set") as step,
    ):
        training_set = build_training_set(services, training_options, tasks, step)
    write_atomically(path, dump(training_set))
    return training_set


def _training_options(
    settings: Settings, options: Mapping[str, Any], feedback: str
) -> TrainingOptions:
    from workers.training.training_set import TrainingOptions

    base = options["base"]
    return TrainingOptions(
        base=base,
        languages=tuple(sorted(trained_languages(base))),
        feedback=feedback,
        queries=options["queries"],
        prompts=settings.language_model.model if options["prompts"] else "",
        max_length=options["max_length"],
        list_size=options["list_size"],
        temperature=options["temperature"],
        folds=options["folds"],
        fold=options["fold"],
        seed=options["seed"],
        epochs=options["epochs"],
        learning_rate=options["learning_rate"],
        batch_size=options["batch_size"],
    )


def _print(card: Mapping[str, Any], out: Path) -> None:
    click.echo(f"lists {card['lists']}, base {card['base']}")
    for name, count in card["notes"].items():
        click.echo(f"  {name}: {count}")
    for origin, figures in card["held_out"].items():
        click.echo(f"held-out {origin}: {figures['queries']} queries")
        for order in _ORDERS:
            values = "  ".join(f"{name} {value:.3f}" for name, value in figures[order].items())
            click.echo(f"  {order.replace('_', ' '):<14} {values}")
        low, high = figures["mrr_gain"]
        click.echo(f"  MRR gain (95%) {low:+.3f} to {high:+.3f}")
    if card["wins"]:
        click.echo(f'better than the baseline: set reranker.model = "{out.absolute()}" to use it')
    else:
        click.echo("not better than the baseline on held-out queries: not recommended")
