"""Completions of skills: the origins in use, and the stored completions of a content.

A completion is text about a skill that a stage of the language model wrote and search may use.
Documents have the completions of the settings' model for all stages: switching a stage on or off
takes effect at once, and no document is built again. Completions of another model have no effect,
and are replaced at the next ingest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from config.language_model_settings import LanguageModelSettings
from skills.record import Completion, ParsedSkill, RevisionKey, completion_origin
from tasks.language_model.answer_store import RefinementKind
from tasks.services import Services

RECORD_VERSION = 1
"""Version of the prompt of `RecordStage`."""

PROMPTS_VERSION = 1
"""Version of the prompt of `PromptStage`."""


def completion_kinds(settings: LanguageModelSettings) -> tuple[RefinementKind, ...]:
    """Return the kinds of refinements that documents have under these settings."""
    if not settings.base_url:
        return ()
    kinds = [RefinementKind("record", settings.model, RECORD_VERSION)]
    if settings.search_terms:
        kinds.append(RefinementKind("prompts", settings.model, PROMPTS_VERSION))
    return tuple(kinds)


def completion_origins(settings: LanguageModelSettings) -> tuple[str, ...]:
    """Return the origins of the completions that searches use under these settings."""
    return tuple(
        completion_origin(kind.stage, kind.version, kind.model)
        for kind in completion_kinds(settings)
        if settings.uses(kind.stage)
    )


def to_completion(kind: RefinementKind, refinement: Mapping[str, Any]) -> Completion | None:
    """Return the completion in a refinement, None if it found nothing for the index."""
    if kind.stage == "prompts":
        fields = {"prompts": tuple(refinement.get("prompts", ()))}
    else:
        fields = {name: tuple(texts) for name, texts in refinement.get("fields", {}).items()}
    fields = {name: texts for name, texts in fields.items() if texts}
    return Completion(kind.stage, kind.model, kind.version, fields) if fields else None


def read_completions(
    services: Services, content_hashes: Sequence[str]
) -> dict[str, tuple[Completion, ...]]:
    """Return the completions of each content that has stored ones, by content hash."""
    found: dict[str, tuple[Completion, ...]] = {}
    if services.answers is None or not content_hashes:
        return found
    for kind in completion_kinds(services.settings.language_model):
        refinements = services.answers.get_refinements(kind, list(dict.fromkeys(content_hashes)))
        for content_hash, refinement in refinements.items():
            if (completion := to_completion(kind, refinement)) is not None:
                found[content_hash] = (*found.get(content_hash, ()), completion)
    return found


def find_outdated(services: Services, published: Mapping[RevisionKey, str]) -> set[RevisionKey]:
    """Return the given revisions whose completions differ from the stored ones.

    published: content hash by revision.
    """
    wanted = _stored_origins(services, published)
    present = _present_origins(services, list(published))
    return {key for key, origins in present.items() if origins != wanted[key]}


def find_lacking(services: Services, published: Mapping[RevisionKey, str]) -> set[RevisionKey]:
    """Return the given revisions that lack a stored completion; see `find_outdated`."""
    wanted = {key: one for key, one in _stored_origins(services, published).items() if one}
    present = _present_origins(services, list(wanted))
    return {key for key, origins in present.items() if wanted[key] - origins}


def _stored_origins(
    services: Services, published: Mapping[RevisionKey, str]
) -> dict[RevisionKey, set[str]]:
    found = read_completions(services, list(published.values()))
    return {
        key: {one.origin for one in found.get(content_hash, ())}
        for key, content_hash in published.items()
    }


def _present_origins(
    services: Services, keys: Sequence[RevisionKey]
) -> dict[RevisionKey, set[str]]:
    records = services.index.get_forward_records(keys) if keys else {}
    return {key: {one.origin for one in record.completed} for key, record in records.items()}


def keep_used(parsed: ParsedSkill, settings: LanguageModelSettings) -> ParsedSkill:
    """Return the skill with only the completions that are in use under these settings."""
    completions = parsed.record.completions
    if not completions:
        return parsed
    origins = completion_origins(settings)
    return parsed.with_completions(tuple(one for one in completions if one.origin in origins))
