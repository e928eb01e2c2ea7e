"""The roles stage: a language model gives each passage of a skill its role (SkillPager §3.1).

The refinement holds `passages`, ranges of lines with the role that the model gave, and `invalid`,
the reasons of invalid answers. A passage without a role keeps the role of the local classifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from config.language_model_settings import ModelStage
from search.protocol import StoredRevision
from tasks.language_model.protocol import InvalidAnswerError, ModelRequest
from tasks.refine.roles.role_prompt import VERSION, RolesAnswer, build_batches
from tasks.refine.stage import RefineContext, RefineStage


class RoleStage(RefineStage):
    """Asks for the roles in batches of 20 passages."""

    name: ModelStage = "roles"
    version = VERSION

    @override
    def requests(self, context: RefineContext, revision: StoredRevision) -> Sequence[ModelRequest]:
        del context
        return [batch.request for batch in build_batches(revision.parsed)]

    @override
    def refine(self, context: RefineContext, revision: StoredRevision) -> dict[str, Any]:
        """Ask about each batch separately: an invalid answer leaves only its own passages without a
        role."""
        passages: list[tuple[int, int, str]] = []
        invalid: list[str] = []
        for batch in build_batches(revision.parsed):
            context.deadline.check("roles")
            try:
                answer = context.model.complete(batch.request, RolesAnswer, batch.check).answer
            except InvalidAnswerError as error:
                invalid.append(str(error))
                continue
            for one in answer.roles:
                for index in batch.members[one.n - 1]:
                    passage = revision.parsed.passages[index]
                    passages.append((passage.first_line, passage.last_line, one.role))
        return {"passages": sorted(passages), "invalid": invalid}

    @override
    def apply(
        self, context: RefineContext, revision: StoredRevision, refinement: dict[str, Any]
    ) -> None:
        """Do nothing: `role_overlay` reads refinements when roles are shown."""
