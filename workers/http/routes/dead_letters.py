"""Dead letters: what failed for good, and messages that nobody could read."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict

from config.errors import NotFoundError
from workers.backend.channel import Channel
from workers.library.dead_letters import letter_data, retry


class Letter(BaseModel):
    """A task that failed for good, or a message that was none (`body` then says what it was)."""

    model_config = ConfigDict(frozen=True)

    id: str
    task: str
    ids: list[str]
    reason: str
    attempts: int
    trace_id: str
    body: str
    buried: float
    retryable: bool


class Letters(BaseModel):
    """Dead letters, newest first, and how many there are in all."""

    model_config = ConfigDict(frozen=True)

    letters: list[Letter]
    total: int


def letter_routes(channel: Channel) -> APIRouter:
    """The routes of dead letters over an open channel."""
    router = APIRouter(tags=["dead letters"])

    @router.get("/v1/letters", response_model=Letters)
    def list_letters(limit: Annotated[int, Query(ge=1, le=1_000)] = 100) -> dict[str, Any]:
        """Dead letters, newest first."""
        letters = channel.journal.letters(limit)
        return {
            "letters": [letter_data(one) for one in letters],
            "total": channel.journal.count_letters(),
        }

    @router.get("/v1/letters/{letter_id}", response_model=Letter)
    def show_letter(letter_id: str) -> dict[str, Any]:
        """One dead letter."""
        return letter_data(channel.journal.letter(letter_id))

    @router.post("/v1/letters/{letter_id}/retry", response_model=Letter)
    def retry_letter(letter_id: str) -> dict[str, Any]:
        """Send a dead letter's task again; the letter is gone once that is done."""
        return retry(channel, letter_id)

    @router.delete("/v1/letters/{letter_id}", status_code=204)
    def discard_letter(letter_id: str) -> Response:
        """Drop a dead letter for good."""
        if not channel.journal.discard(letter_id):
            raise NotFoundError(f"no dead letter {letter_id!r}")
        return Response(status_code=204)

    return router
