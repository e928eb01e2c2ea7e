"""The model card of a trained role classifier: data, parameters and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from skills.roles.classifier import FORMAT, ROLES
from workers.evaluation.metrics import accuracy_and_macro_f1
from workers.training.roles.role_training import Example, TrainingResult


def make_model_card(
    trained: TrainingResult, examples: Sequence[Example], files: Sequence[Path], origin: str
) -> dict[str, Any]:
    """Return the model card as JSON data, without text of the skills; equal for equal data.

    `left_out`: metrics on held-out skills, of the whole classifier, of the rules only and of the
    features only. `confusion`: lines by labelled role (rows) and predicted role (columns).
    """
    names = [role.value for role in ROLES]
    lines = np.sum([example.counts.sum(axis=0) for example in examples], axis=0).astype(int)
    metrics = {}
    for name, confusion in trained.confusions.items():
        accuracy, macro = accuracy_and_macro_f1(confusion)
        metrics[name] = {"accuracy": round(accuracy, 4), "macro_f1": round(macro, 4)}
    return {
        "model": "roles of passages, multinomial logistic regression over hashed features",
        "format": FORMAT,
        "skillbus": version("skillbus"),
        "command": "skillbus train roles " + " ".join(path.name for path in files),
        "origin": origin,
        "skills": len(trained.per_skill),
        "passages": sum(len(example.blocks) for example in examples),
        "lines": dict(zip(names, lines.tolist(), strict=True)),
        "strength": trained.hyperparameters.regularisation,
        "rules_share": trained.hyperparameters.rules_share,
        "left_out": metrics,
        "roles": names,
        "confusion": trained.confusions["all"].astype(int).tolist(),
    }
