"""Base classes of the JSON objects of requests and responses."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from workers.library.reasons import MAX_REASON_CHARACTERS

Reason = Annotated[str, Field(min_length=1, max_length=MAX_REASON_CHARACTERS)]


class ResponseModel(BaseModel):
    """Base class of the objects in responses."""

    model_config = ConfigDict(frozen=True)


class RequestModel(BaseModel):
    """Base class of bodies and query parameters. Fields that it does not define are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")
