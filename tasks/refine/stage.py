"""Protocol of a stage that refines published skills with a language model.

A refinement is a write-once JSON object about one content of a skill, by one model and version of
the prompt: its key is a `RefinementKind` and the skill's content hash. The result of a stage is
applied where it is used, if its setting is on and the model is that of the settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from config.language_model_settings import ModelStage
from search.protocol import StoredRevision
from tasks.language_model.answer_store import AnswerStore, RefinementKind
from tasks.language_model.protocol import LanguageModel, ModelRequest
from tasks.language_model.skill_pairs.protocol import ContentPair
from tasks.policies import Deadline
from tasks.services import Services


@dataclass(frozen=True, slots=True)
class RefineContext:
    """Services and language model of a stage, shared by the skills of a batch.

    askers: content that asks about a pair of contents, by pair, so that two skills of a batch do
    not ask about each other.
    """

    services: Services
    model: LanguageModel
    answers: AnswerStore
    deadline: Deadline
    askers: dict[ContentPair, str] = field(default_factory=dict)

    def kind(self, stage: RefineStage) -> RefinementKind:
        """Return the kind of refinements that a stage writes."""
        return RefinementKind(stage.name, self.model.model, stage.version)


class RefineStage(Protocol):
    """One stage of refinement; stateless and idempotent."""

    @property
    def name(self) -> ModelStage:
        """Name in `language_model.stages`."""
        ...

    @property
    def version(self) -> int:
        """Version of the prompt."""
        ...

    def requests(self, context: RefineContext, revision: StoredRevision) -> Sequence[ModelRequest]:
        """Return the requests that `refine` would send to the model, for estimates."""
        ...

    def refine(self, context: RefineContext, revision: StoredRevision) -> dict[str, Any]:
        """Ask the model about a revision; return the refinement, which may be empty of findings.

        An invalid answer is part of the refinement, not an error: its field `invalid` has the
        reasons, a text or a list.
        """
        ...

    def apply(
        self, context: RefineContext, revision: StoredRevision, refinement: dict[str, Any]
    ) -> None:
        """Apply a stored refinement, if reading it is not enough; idempotent."""
        ...
