"""`train roles`: trains the classifier of passages from labelled lines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from config.errors import UsageError
from config.settings import Settings
from skills.record import ParsedSkill, Role
from workers.cli.common import (
    json_option,
    print_result,
    print_to_stderr,
    progress_bar,
    read_settings,
)
from workers.cli.parameter_types import OutputFile
from workers.library.user_files import write_atomically, write_text


@click.command("roles")
@click.argument("labels", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--skills",
    "folders",
    multiple=True,
    metavar="SOURCE=DIR",
    help="Read the skills of a source from a folder; repeatable. [default: the library]",
)
@click.option(
    "--out",
    type=OutputFile(".npz"),
    help="File for the weights (.npz); the model card is written next to it (.json).",
)
@click.option(
    "--predictions",
    type=OutputFile(),
    help="File for the roles of each skill by the classifier trained without it, as `eval roles`.",
)
@click.option("--origin", default="", help="Origin of the labels, for the model card.")
@json_option
def roles(
    labels: tuple[Path, ...],
    folders: tuple[str, ...],
    out: Path | None,
    predictions: Path | None,
    origin: str,
) -> None:
    """Train the classifier of roles on labelled lines.

    LABELS are JSON files: skill id -> [[first line, last line, role], …]. Each skill is evaluated
    with a classifier that was trained on other skills. Without --out no weights are written.

    \b
    Example:
      skillbus train roles my-roles.json --skills examples=./examples/skills --out roles.npz
    """
    from skills.roles.classifier import dump_weights
    from workers.training.roles.labels import read_labels
    from workers.training.roles.model_card import make_model_card
    from workers.training.roles.role_training import make_example, train_roles

    if out is not None and predictions in (out, out.with_suffix(".json")):
        raise UsageError(f"{predictions}: --predictions would overwrite the weights or model card")
    labelled = read_labels(labels)
    parsed = _read_parsed(read_settings(), sorted(labelled), folders)
    examples = [make_example(name, parsed[name], labelled[name]) for name in sorted(labelled)]
    with progress_bar("training") as step:
        trained = train_roles(examples, step)
    report = make_model_card(trained, examples, labels, origin)
    if out is not None:
        write_atomically(out, dump_weights(trained.classifier))
        card = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
        write_text(out.with_suffix(".json"), card)
        print_to_stderr(f"weights written to {out}, model card to {out.with_suffix('.json')}")
    if predictions is not None:
        _write_predictions(predictions, parsed, trained.predicted)
    print_result(report | {"per_skill": trained.per_skill}, _print_report)


def _write_predictions(
    path: Path, parsed: Mapping[str, ParsedSkill], predicted: Mapping[str, Sequence[Role]]
) -> None:
    from workers.evaluation.predictions import role_ranges

    found = {name: role_ranges(parsed[name], given) for name, given in predicted.items()}
    write_text(path, json.dumps(found) + "\n")
    print_to_stderr(f"roles on skills left out written to {path}")


def _print_report(report: Mapping[str, Any]) -> None:
    lines = sum(report["lines"].values())
    click.echo(f"skills {report['skills']}, passages {report['passages']}, lines {lines}")
    click.echo(
        f"chosen: C {report['strength']} (regularisation), "
        f"weight of the rules {report['rules_share']}"
    )
    click.echo("on skills left out        accuracy  macro-F1")
    for name, figures in report["left_out"].items():
        click.echo(f"  {name:<22}  {figures['accuracy']:>8.4f}  {figures['macro_f1']:>8.4f}")


def _read_parsed(
    settings: Settings, skill_ids: Sequence[str], folders: Sequence[str]
) -> Mapping[str, ParsedSkill]:
    """Return the labelled skills, from folders or from the library."""
    if folders:
        from workers.training.roles.labels import read_skills

        return read_skills(skill_ids, _by_source(folders))
    from workers.cli.evaluation.options import open_library
    from workers.evaluation.predictions import read_published_revisions

    with open_library(settings, wait=False) as services:
        found = read_published_revisions(services, skill_ids)
    return {skill_id: revision.parsed for skill_id, revision in found.items()}


def _by_source(folders: Sequence[str]) -> dict[str, Path]:
    """Return the folder of each source, from options `SOURCE=DIR`; raises
    UsageError for another form."""
    found = {}
    for folder in folders:
        source, equals, path = folder.partition("=")
        if not (source and equals and Path(path).is_dir()):
            raise UsageError(f"--skills {folder}: expected SOURCE=DIR with an existing folder")
        found[source] = Path(path)
    return found
