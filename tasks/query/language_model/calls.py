"""Calls of one query to the language model: their common time limit, and reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from config.language_model_settings import ModelStage


@dataclass(slots=True)
class ModelCalls:
    """Time and reports of the model's calls in one query.

    seconds: time left for further calls. reports: by stage, for `explain`.
    """

    seconds: float
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)

    def report(self, stage: ModelStage, **details: object) -> None:
        """Add details of a stage to its report."""
        self.reports.setdefault(stage, {}).update(details)
