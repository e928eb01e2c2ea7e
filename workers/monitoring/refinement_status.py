"""Progress of refinement by a language model, by stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from config.language_model_settings import LanguageModelSettings
from graph.protocol import Catalog
from graph.records import CatalogEntry
from tasks.language_model.answer_store import AnswerStore, RefinementKind
from tasks.refine.refined_subjects import RefinedSubjects
from tasks.refine.stage import RefineStage
from tasks.refine.stages import list_enabled_stages
from tasks.refine.unrefined import find_unrefined, list_published


class InvalidRefinement(NamedTuple):
    """A published skill for which the model gave an invalid answer."""

    entry: CatalogEntry
    stage: str
    reason: str


def refinement_counts(
    settings: LanguageModelSettings,
    graph: Catalog,
    answers: AnswerStore,
    refined: RefinedSubjects,
) -> dict[str, dict[str, int]]:
    """Return numbers of published skills by enabled stage: refined, waiting, and with an invalid
    answer."""
    stages = list_enabled_stages(settings)
    entries = list_published(graph)
    missing = find_unrefined(answers, refined, settings.model, stages, entries)
    invalid = [one.stage for one in list_invalid(settings, refined, stages, entries)]
    return {
        stage.name: {
            "refined": len(entries) - len(missing[stage.name]),
            "waiting": len(missing[stage.name]),
            "invalid": invalid.count(stage.name),
        }
        for stage in stages
    }


def list_invalid(
    settings: LanguageModelSettings,
    refined: RefinedSubjects,
    stages: Iterable[RefineStage],
    entries: Sequence[CatalogEntry],
) -> list[InvalidRefinement]:
    """Return the entries with invalid answers, of those that were passed to `find_unrefined`."""
    found = []
    hashes = {entry.content_hash for entry in entries}
    for stage in stages:
        kind = RefinementKind(stage.name, settings.model, stage.version)
        reasons = refined.get_invalid(kind, hashes)
        found += [
            InvalidRefinement(entry, stage.name, reason)
            for entry in entries
            for reason in reasons.get(entry.content_hash, ())
        ]
    return found
