"""Functions that replace the roles of the local classifier by those of a language model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from config.language_model_settings import LanguageModelSettings
from search.protocol import StoredRevision
from skills.record import ParsedSkill, Role
from tasks.language_model.answer_store import AnswerStore, RefinementKind

KeyT = TypeVar("KeyT")

_CERTAIN = 1.0


def overlay_roles(
    answers: AnswerStore | None,
    settings: LanguageModelSettings,
    revisions: Mapping[KeyT, StoredRevision],
) -> dict[KeyT, StoredRevision]:
    """Return these revisions with the roles that the settings' model gave their passages.

    Without the stage `roles`, or without a refinement, they are unchanged. Costs one read of the
    store. Raises TransientError if it does not answer.
    """
    if answers is None or not revisions or not settings.uses("roles"):
        return dict(revisions)
    from tasks.refine.roles.role_prompt import VERSION  # only if a model is configured

    kind = RefinementKind("roles", settings.model, VERSION)
    hashes = dict.fromkeys(revision.content_hash for revision in revisions.values())
    found = answers.get_refinements(kind, [one for one in hashes if one])
    return {
        key: replace(revision, parsed=replace_roles(revision.parsed, found[revision.content_hash]))
        if revision.content_hash in found
        else revision
        for key, revision in revisions.items()
    }


def replace_roles(parsed: ParsedSkill, refinement: Mapping[str, Any]) -> ParsedSkill:
    """Return the skill with the roles of a refinement, for passages with the same lines."""
    roles = {(first, last): role for first, last, role in refinement.get("passages", ())}
    passages = tuple(
        passage.with_role(Role(role), _CERTAIN)
        if (role := roles.get((passage.first_line, passage.last_line)))
        else passage
        for passage in parsed.passages
    )
    return replace(parsed, passages=passages)
