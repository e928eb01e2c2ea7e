"""`train reranker`: a cross-encoder from a library's own text and feedback."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from config.errors import UsageError
from config.settings import Settings
from search.models.encoder import DEFAULT_MODEL, knows_english_only
from workers.cli.common import json_option, note, print_json, read_settings, show_steps

if TYPE_CHECKING:
    from workers.training.lists import Choices, Material


@click.command("reranker")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the model. One whose training was interrupted is gone on with.",
)
@click.option(
    "--feedback",
    type=click.Path(path_type=Path),
    help="JSONL of tasks with `instruction` and `gt_skill_ids`, as for `eval routing`.",
)
@click.option(
    "--base",
    default=DEFAULT_MODEL,
    show_default=True,
    help="Name or folder of the encoder or cross-encoder to start from.",
)
@click.option("--queries", default=6, show_default=True, type=click.IntRange(0, 100))
@click.option("--epochs", default=1, show_default=True, type=click.IntRange(1, 100))
@click.option(
    "--learning-rate", default=2e-5, show_default=True, type=click.FloatRange(0, 1, min_open=True)
)
@click.option("--lists-a-step", default=16, show_default=True, type=click.IntRange(1, 1024))
@click.option("--max-length", default=256, show_default=True, type=click.IntRange(16, 32_768))
@click.option("--folds", default=5, show_default=True, type=click.IntRange(2, 100))
@click.option("--fold", default=0, show_default=True, type=click.IntRange(0, 99))
@click.option("--seed", default=0, show_default=True)
@click.option("--threads", default=0, type=click.IntRange(0, 256), help="[default: processors]")
@click.option("--checkpoint-steps", default=10, show_default=True, type=click.IntRange(1))
@click.option("--fresh", is_flag=True, help="Begin again, whatever the folder holds of ours.")
@json_option
@click.pass_context
def reranker(ctx: click.Context, /, **options: Any) -> None:
    """Train a cross-encoder that reads a task together with a skill.

    It learns from --queries made of each skill's own text and from the tasks of --feedback: for
    each, the skill that is needed against others that are near in meaning, in words, of the same
    category, and any. One of --folds parts of the skills, and of the tasks, is held out; the
    report compares the ranking with and without the model on it.

    \b
    Example:
      skillbus train reranker --out my-reranker --feedback tasks.jsonl
      SKILLBUS_RERANKER__MODEL=my-reranker skillbus query "plan the crossing"
    """
    from workers.training.reranker import finish, judge, train

    settings, out = read_settings(ctx), options["out"]
    if options["fold"] >= options["folds"]:
        raise UsageError(
            f"--fold {options['fold']}: folds are counted from 0, there are "
            f"{options['folds']} (--folds)"
        )
    _check_folder(out, options["fresh"])
    material = _material(settings, options)
    threads = options["threads"] or (os.cpu_count() or 1)
    with show_steps("training") as step:
        losses = train(material, out, threads, options["checkpoint_steps"], step)
    with show_steps("judging") as step:
        report = judge(material, out, settings.reranker.weight, step)
    if losses:
        report["loss"] = [round(losses[0], 4), round(losses[-1], 4)]
    card = finish(material, out, report)
    if options["as_json"]:
        print_json(card)
        return
    _print(card, out)


def _check_folder(out: Path, fresh: bool) -> None:
    """Refuse a folder that holds a finished model or anything else; make it when it is not there.

    With `fresh`, what an earlier training left is removed.
    """
    from search.models.reranker import TRAINING_FILE
    from workers.training.cross_encoder import CHECKPOINT
    from workers.training.reranker import MATERIAL_FILE

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{out} cannot be made: {error.strerror}") from error
    names = {path.name for path in out.iterdir()}
    if names and not names & {MATERIAL_FILE, TRAINING_FILE}:
        raise UsageError(f"{out} holds other files; name a new or an empty folder with --out")
    if fresh:
        for name in (TRAINING_FILE, CHECKPOINT, MATERIAL_FILE):
            (out / name).unlink(missing_ok=True)
    elif TRAINING_FILE in names and MATERIAL_FILE not in names:
        raise UsageError(f"{out} holds a trained reranker; --fresh trains it anew")


def _material(settings: Settings, options: Mapping[str, Any]) -> Material:
    """The lists: those of an interrupted training, or drawn from the library now."""
    from workers.cli.evaluation.common import open_services
    from workers.evaluation.predictions import read_lines
    from workers.library.files import write_whole
    from workers.training.lists import dump, gather, load
    from workers.training.reranker import MATERIAL_FILE

    tasks: Sequence[dict[str, Any]] = ()
    feedback = ""
    if options["feedback"] is not None:
        tasks = read_lines(options["feedback"], ("instruction", "gt_skill_ids"))
        feedback = blake2b(options["feedback"].read_bytes(), digest_size=8).hexdigest()
    choices = _choices(options, feedback)
    path = options["out"] / MATERIAL_FILE
    if path.exists():
        material = load(path)
        _check_same(material.choices, choices, options["out"])
        note(f"going on with the training in {options['out']}")
        return material
    with open_services(settings, wait=True) as services, show_steps("drawing lists") as step:
        material = gather(services, choices, tasks, step)
    write_whole(path, dump(material))
    return material


def _choices(options: Mapping[str, Any], feedback: str) -> Choices:
    from workers.training.lists import Choices

    base = options["base"]
    return Choices(
        base=base,
        languages=("en",) if knows_english_only(base) else ("en", "zh"),
        feedback=feedback,
        queries=options["queries"],
        max_length=options["max_length"],
        folds=options["folds"],
        fold=options["fold"],
        seed=options["seed"],
        epochs=options["epochs"],
        learning_rate=options["learning_rate"],
        lists_a_step=options["lists_a_step"],
    )


def _check_same(before: Choices, now: Choices, out: Path) -> None:
    from dataclasses import asdict

    old, new = asdict(before), asdict(now)
    changed = sorted(name for name in old if old[name] != new[name])
    if changed:
        raise UsageError(
            f"{out} holds a training with another {', '.join(changed)}; give the same options to "
            "go on with it, another --out, or --fresh"
        )


def _print(card: Mapping[str, Any], out: Path) -> None:
    click.echo(f"lists {card['lists']}, base {card['base']}")
    for name, count in card["notes"].items():
        click.echo(f"  {name}: {count}")
    for origin, figures in card["held out"].items():
        click.echo(f"held out, {origin}: {figures['queries']} queries")
        for order in ("as it is", "model alone", "both"):
            values = "  ".join(f"{name} {value:.3f}" for name, value in figures[order].items())
            click.echo(f"  {order:<12} {values}")
        low, high = figures["gain in mrr"]
        click.echo(f"  gain in mrr  {low:+.3f} to {high:+.3f}")
    if card["wins"]:
        click.echo(f'it wins: set reranker.model = "{out.absolute()}" to use it')
    else:
        click.echo("it does not win on what was held out: better leave it off")
