"""Dead letters: tasks that failed permanently, and unreadable messages."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from config.errors import NotFoundError
from workers.http.dependencies import CurrentBackend
from workers.http.models import ResponseModel
from workers.library import dead_letters


class DeadLetterData(ResponseModel):
    """A task that failed permanently, or an unreadable message with its text in `body`."""

    id: str
    task: str
    ids: list[str]
    reason: str
    attempts: int
    trace_id: str
    body: str
    failed_at: float = Field(description="seconds since the epoch")
    buried: float = Field(
        description="former name of `failed_at`; will be removed",
        json_schema_extra={"deprecated": True},
    )
    retryable: bool


class DeadLetterList(ResponseModel):
    """Dead letters, newest first. total: number of all dead letters."""

    letters: list[DeadLetterData]
    total: int


router = APIRouter(tags=["dead letters"])


@router.get("/v1/letters", response_model=DeadLetterList)
def list_dead_letters(
    backend: CurrentBackend, limit: Annotated[int, Query(ge=1, le=1_000)] = 100
) -> dict[str, Any]:
    """List dead letters, newest first."""
    letters = backend.journal.list_dead_letters(limit)
    return {
        "letters": [dead_letters.dead_letter_data(one) for one in letters],
        "total": backend.journal.count_dead_letters(),
    }


@router.get("/v1/letters/{letter_id}", response_model=DeadLetterData)
def get_dead_letter(backend: CurrentBackend, letter_id: str) -> dict[str, Any]:
    """Show one dead letter."""
    return dead_letters.dead_letter_data(backend.journal.get_dead_letter(letter_id))


@router.post("/v1/letters/{letter_id}/retry", response_model=DeadLetterData)
def retry_dead_letter(backend: CurrentBackend, letter_id: str) -> dict[str, Any]:
    """Send a dead letter's task again, and delete the dead letter."""
    return dead_letters.retry_dead_letter(backend, letter_id)


@router.delete("/v1/letters/{letter_id}", status_code=204)
def discard_dead_letter(backend: CurrentBackend, letter_id: str) -> None:
    """Delete a dead letter."""
    if not backend.journal.delete_dead_letter(letter_id):
        raise NotFoundError(f"no dead letter {letter_id!r}")
