"""Functions that the `train` commands share: options, the folder of the model, run and report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from config.errors import UsageError
from config.settings import Settings
from tasks.services import Services
from workers.cli.common import json_option, print_to_stderr, progress_bar
from workers.cli.parameter_types import FolderPath

if TYPE_CHECKING:
    from workers.training.trainer import BuiltTrainingSet, ProgressCallback, TrainingOptions

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
SetT = TypeVar("SetT", bound="BuiltTrainingSet")
OptionsT = TypeVar("OptionsT", bound="TrainingOptions")


def number_option(
    name: str, default: float, kind: click.IntRange | click.FloatRange, explanation: str
) -> Callable[[CommandT], CommandT]:
    """Return an option with a number; its help shows default and range."""
    return click.option(name, default=default, show_default=True, type=kind, help=explanation)


outcomes_option = click.option(
    "--outcomes",
    is_flag=True,
    help="Also learn from skills that were reported to have helped (`skillbus outcome`).",
)

_DATA_OPTIONS = (
    click.option(
        "--out",
        required=True,
        type=FolderPath(path_type=Path, file_okay=False),
        help="Folder of the model. An interrupted training there is resumed.",
    ),
    click.option(
        "--feedback",
        type=click.Path(path_type=Path),
        help="JSONL of prompts with `instruction` and `gt_skill_ids`, as for `eval routing`.",
    ),
    outcomes_option,
    click.option(
        "--prompts/--no-prompts",
        default=True,
        show_default=True,
        help="Also learn from the prompts that the language model wrote (stage `prompts`).",
    ),
)
_RUN_OPTIONS = (
    number_option("--epochs", 1, click.IntRange(1, 100), "Passes over the training set."),
    number_option(
        "--folds",
        5,
        click.IntRange(2, 100),
        "Parts into which the library and its tasks are divided.",
    ),
    number_option("--fold", 0, click.IntRange(0, 99), "The part that is held out, counted from 0."),
    number_option("--seed", 0, click.IntRange(0, 2**32 - 1), "Seed of all random choices."),
    click.option(
        "--threads",
        default=0,
        type=click.IntRange(0, 256),
        help="CPU threads of the training. [default: processors]",
    ),
    number_option("--checkpoint-steps", 10, click.IntRange(1), "Steps between checkpoints."),
    click.option(
        "--fresh", is_flag=True, help="Start over and delete earlier results in the folder."
    ),
    json_option,
)


def data_options(command: CommandT) -> CommandT:
    """Add the options for the folder of the model and its training data."""
    return _add_options(command, _DATA_OPTIONS)


def run_options(command: CommandT) -> CommandT:
    """Add the options for folds, random choices and the run."""
    return _add_options(command, _RUN_OPTIONS)


def _add_options(
    command: CommandT, options: tuple[Callable[[CommandT], CommandT], ...]
) -> CommandT:
    for option in reversed(options):
        command = option(command)
    return command


def prepare_folder(out: Path, fresh: bool, kind: str, base: str) -> None:
    """Create the folder; raise UsageError if it holds other files, a part of the model to start
    from, or a finished model.

    fresh: whether a finished model is replaced. base: the model to start from.
    """
    from search.models.identity import TRAINING_FILE, adapter_files, base_model
    from workers.training.trainer import TRAINING_SET_FILE

    parts = [Path(base_model(base)), *(path.parent for path in adapter_files(base))]
    if out.resolve() in [part.resolve() for part in parts]:
        raise UsageError(
            f"{out} is the model to start from, or one that it adapts; name another folder with "
            "--out"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{out} cannot be created: {error.strerror}") from error
    names = {path.name for path in out.iterdir()}
    if names and not names & {TRAINING_SET_FILE, TRAINING_FILE}:
        raise UsageError(f"{out} holds other files; name a new or an empty folder with --out")
    if TRAINING_FILE in names and TRAINING_SET_FILE not in names and not fresh:
        raise UsageError(f"{out} already holds a trained {kind}; use --fresh to retrain")


def check_fold(options: Mapping[str, Any]) -> None:
    """Raise UsageError if the number of the held-out fold is too large."""
    if options["fold"] >= options["folds"]:
        raise UsageError(
            f"--fold {options['fold']}: give a number from 0 to {options['folds'] - 1}, below "
            "--folds"
        )


def choose_options(
    settings: Settings, kind: type[OptionsT], options: Mapping[str, Any], **given: object
) -> OptionsT:
    """Return the options of a training set: the given ones, the rest from the command's options."""
    named = {one.name: options[one.name] for one in fields(kind) if one.name in options} | given
    named["feedback"] = _identify_feedback(options["feedback"], options["outcomes"])
    named["prompts"] = settings.language_model.model if options["prompts"] else ""
    return kind(**named)


def resume_or_build(
    settings: Settings,
    options: Mapping[str, Any],
    chosen: OptionsT,
    kind: type[SetT],
    check_base: Callable[[OptionsT], None],
    build: Callable[[Services, OptionsT, list[dict[str, Any]], ProgressCallback], SetT],
) -> SetT:
    """Load the training set of an interrupted training, or build a new one and save it.

    options: of the command. An earlier model in the folder is deleted only after the training set
    is built, so that it outlives missing data. Raises UsageError if a training is resumed with
    other options.
    """
    from search.models.identity import TRAINING_FILE
    from search.models.low_rank import ADAPTER_FILE
    from workers.cli.evaluation.options import open_library
    from workers.training.trainer import CHECKPOINT, TRAINING_SET_FILE, save_training_set

    folder = options["out"]
    if options["fresh"] or not (folder / TRAINING_SET_FILE).exists():
        tasks = _read_feedback(settings, options["feedback"], options["outcomes"])
        check_base(chosen)  # before the queries are ranked, which takes long
        with (
            open_library(settings, wait=True) as services,
            progress_bar("building the training set") as step,
        ):
            training_set = build(services, chosen, tasks, step)
        (folder / CHECKPOINT).unlink(missing_ok=True)  # it belongs to the earlier set
        save_training_set(folder, training_set)
    else:
        training_set = _load_interrupted(folder, chosen, kind)
    # An adapter that is left would be loaded instead of weights that are trained now.
    for name in (TRAINING_FILE, ADAPTER_FILE):
        (folder / name).unlink(missing_ok=True)
    return training_set


def _load_interrupted(folder: Path, options: TrainingOptions, kind: type[SetT]) -> SetT:
    """Load a training set; raise UsageError if it was built with other options."""
    from workers.training.trainer import load_training_set

    training_set = load_training_set(folder, kind)
    before, now = asdict(training_set.options), asdict(options)
    changed = sorted(name for name in before if before[name] != now[name])
    if changed:
        raise UsageError(
            f"{folder} holds a training with a different {', '.join(changed)}; repeat its options "
            "to resume, or use another --out, or --fresh"
        )
    print_to_stderr(f"resuming the training in {folder}")
    return training_set


def run_training(
    training_set: SetT,
    options: Mapping[str, Any],
    train: Callable[[SetT, Path, int, int, ProgressCallback], list[float]],
    evaluate: Callable[[SetT, Path, ProgressCallback], dict[str, Any]],
    make_card: Callable[[SetT, dict[str, Any]], dict[str, Any]],
) -> dict[str, Any]:
    """Train, evaluate on the held-out part, write the model card, and return it."""
    from workers.training.trainer import end_training, write_training_card

    out, threads = options["out"], options["threads"] or (os.cpu_count() or 1)
    with progress_bar("training") as step:
        losses = train(training_set, out, threads, options["checkpoint_steps"], step)
    with progress_bar("evaluating") as step:
        report = evaluate(training_set, out, step)
    if losses:
        report["loss"] = [round(losses[0], 4), round(losses[-1], 4)]
    card = make_card(training_set, report)
    write_training_card(out, card)
    end_training(out)
    return card


def print_comparison(figures: Mapping[str, Any], compared: Iterable[str]) -> None:
    """Print a row of metrics for each of the compared rankings, and the gain in MRR."""
    for name in compared:
        values = "  ".join(f"{metric} {value:.3f}" for metric, value in figures[name].items())
        click.echo(f"  {name.replace('_', ' '):<14} {values}")
    low, high = figures["mrr_gain"]
    click.echo(f"  MRR gain (95%) {low:+.3f} to {high:+.3f}")


def _identify_feedback(path: Path | None, outcomes: bool) -> str:
    """Return what identifies the labelled tasks of a training: a digest of the file, and
    whether there are reported outcomes; "" without either.

    Outcomes that are reported during an interruption do not make it another training.
    """
    from hashlib import blake2b

    from workers.library.user_files import read_bytes

    digest = blake2b(read_bytes(path), digest_size=8).hexdigest() if path is not None else ""
    return f"{digest} and outcomes" if outcomes else digest


def _read_feedback(settings: Settings, path: Path | None, outcomes: bool) -> list[dict[str, Any]]:
    """Return the rows of a file of labelled tasks, and rows of reported outcomes if requested."""
    from workers.evaluation.predictions import read_jsonl

    rows = [] if path is None else read_jsonl(path, ("instruction", "gt_skill_ids"))
    return rows + (read_reported(settings) if outcomes else [])


def read_reported(settings: Settings) -> list[dict[str, Any]]:
    """Return labelled tasks from reported outcomes; raises UsageError if no skill helped."""
    from skills.outcomes.weights import TRUSTED_OWNERS
    from workers.backend.stores import open_library_outcomes
    from workers.training.outcome_labels import read_outcome_labels

    with ExitStack() as stack:
        store = open_library_outcomes(settings, stack)
        trusted = TRUSTED_OWNERS.union(settings.learning.trusted_owners)
        found = read_outcome_labels(store, trusted)
    if not found.rows:
        raise UsageError("no outcome `helped` is stored; report some with `skillbus outcome`")
    shown = ", ".join(f"{value:.2f}" for value in found.propensities[:10])
    print_to_stderr(f"{len(found.rows)} tasks from outcomes; reports by place: {shown}")
    return found.rows
