"""Protocol of the store of answers, refinements and token counts.

One store keeps everything that the language model was paid for: answers by the hash of their
request, refinements by the content that they are about, and the tokens of each day. It is separate
from search index and catalog, so that a new index loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from config.language_model_settings import ModelStage
from tasks.language_model.protocol import TokenUsage


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A stored answer. text: its JSON; "" if every try was invalid. reason: why it was invalid."""

    text: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StageUsage:
    """Usage of one stage on one day. stored: number of answers that were read from the store
    instead."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stored: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of prompts and answers together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class RefinementKind:
    """Kind of refinements: stage, model and version of the prompt."""

    stage: ModelStage
    model: str
    version: int


class AnswerStore(Protocol):
    """Answers, refinements and token counts; shared by threads and processes.

    Every implementation passes the contract suite in `tests/contract/test_answer_store.py`.
    Methods raise TransientError when the store is busy, full or unreachable.
    """

    def get_answer(self, key: str) -> StoredAnswer | None:
        """Return the answer to the request with this key."""
        ...

    def save_answer(self, key: str, stage: ModelStage, model: str, answer: StoredAnswer) -> None:
        """Store an answer durably. The first answer under a key is kept."""
        ...

    def reserve_tokens(self, day: str, tokens: int, limit: int, seconds: float) -> str | None:
        """Reserve tokens of a day (`2026-11-22`, UTC); return the id of the reservation.

        None if the day's used and reserved tokens would exceed `limit`; 0 is no limit. A
        reservation ends with `settle`, or by itself after `seconds`.
        """
        ...

    def settle(
        self, reservation: str, day: str, stage: ModelStage, usage: TokenUsage, calls: int
    ) -> None:
        """Replace a reservation by the actual usage."""
        ...

    def count_stored(self, day: str, stage: ModelStage) -> None:
        """Count an answer that was read from the store instead of requested from the model."""
        ...

    def get_usage(self, day: str) -> dict[str, StageUsage]:
        """Return the usage of each stage on a day."""
        ...

    def get_refinements(
        self, kind: RefinementKind, subjects: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        """Return the refinements of these subjects; a subject without a refinement is left out."""
        ...

    def save_refinements(
        self, kind: RefinementKind, documents: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Store JSON objects by subject, durably. The first object of a subject is kept."""
        ...

    def forget(self, subjects: Sequence[str]) -> int:
        """Delete the refinements of these subjects, and all answers: these are stored by request
        only, and may quote any skill. Returns how many were deleted.

        The content of answers about other subjects stays as refinements. Deleted content becomes
        unreadable, within the means of a client.
        """
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


def utc_day(now: float) -> str:
    """Return the day (UTC) of a time in seconds since 1970, as `2026-11-22`."""
    return datetime.fromtimestamp(now, UTC).date().isoformat()
