"""The folder that a training writes its model to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from config.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

fresh_option = click.option(
    "--fresh", is_flag=True, help="Start over and delete earlier results in the folder."
)


def prepare_folder(out: Path, fresh: bool, set_file: str, kind: str) -> None:
    """Create the folder; raise UsageError if it holds a finished model or other files.

    set_file: the name of the training set of an unfinished training. fresh: the files of an earlier
    training are deleted.
    """
    from search.models.encoder import TRAINING_FILE
    from workers.training.checkpoint import CHECKPOINT

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{out} cannot be created: {error.strerror}") from error
    names = {path.name for path in out.iterdir()}
    if names and not names & {set_file, TRAINING_FILE}:
        raise UsageError(f"{out} holds other files; name a new or an empty folder with --out")
    if fresh:
        for name in (TRAINING_FILE, CHECKPOINT, set_file):
            (out / name).unlink(missing_ok=True)
    elif TRAINING_FILE in names and set_file not in names:
        raise UsageError(f"{out} already holds a trained {kind}; use --fresh to retrain")


def check_fold(options: Mapping[str, Any]) -> None:
    """Raise UsageError if the fold to hold out is none of the folds."""
    if options["fold"] >= options["folds"]:
        raise UsageError(
            f"--fold {options['fold']}: folds are counted from 0, there are "
            f"{options['folds']} (--folds)"
        )


def check_same_options(before: DataclassInstance, now: DataclassInstance, out: Path) -> None:
    """Raise UsageError if a training is resumed with other options."""
    old, new = asdict(before), asdict(now)
    changed = sorted(name for name in old if old[name] != new[name])
    if changed:
        raise UsageError(
            f"{out} holds a training with a different {', '.join(changed)}; repeat its options to "
            "resume, or use another --out, or --fresh"
        )


def read_feedback(path: Path | None) -> tuple[list[dict[str, Any]], str]:
    """The rows of a file of labelled tasks, and its digest; nothing for None."""
    from hashlib import blake2b

    from workers.evaluation.predictions import read_jsonl

    if path is None:
        return [], ""
    rows = read_jsonl(path, ("instruction", "gt_skill_ids"))
    return list(rows), blake2b(path.read_bytes(), digest_size=8).hexdigest()
