"""The card of trained weights: what they were made of, how well they do, how they were made."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from skills.roles.classifier import FORMAT, ROLES
from workers.training.role_training import Example, TrainingResult, accuracy_and_macro_f1


def make_model_card(
    trained: TrainingResult, examples: Sequence[Example], files: Sequence[Path], origin: str
) -> dict[str, Any]:
    """A JSON object without any text of the skills, equal for equal data.

    `left_out` are figures on skills that neither training nor choosing has seen: of the whole, of
    the rules alone and of the features alone. `confusion` has lines by labelled role (rows) and
    given role (columns).
    """
    names = [role.value for role in ROLES]
    lines = np.sum([example.counts.sum(axis=0) for example in examples], axis=0).astype(int)
    figures = {}
    for name, confusion in trained.confusions.items():
        accuracy, macro = accuracy_and_macro_f1(confusion)
        figures[name] = {"accuracy": round(accuracy, 4), "macro_f1": round(macro, 4)}
    return {
        "model": "roles of passages, multinomial logistic regression over hashed features",
        "format": FORMAT,
        "skillbus": version("skillbus"),
        "command": "skillbus train roles " + " ".join(path.name for path in files),
        "origin": origin,
        "skills": len(trained.per_skill),
        "passages": sum(len(example.blocks) for example in examples),
        "lines": dict(zip(names, lines.tolist(), strict=True)),
        "strength": trained.hyperparameters.strength,
        "rules_share": trained.hyperparameters.share,
        "left_out": figures,
        "roles": names,
        "confusion": trained.confusions["all"].astype(int).tolist(),
    }
