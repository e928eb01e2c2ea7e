"""Base classes of the JSON objects of requests and responses."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ResponseModel(BaseModel):
    """Base class of the objects in responses."""

    model_config = ConfigDict(frozen=True)


class RequestModel(BaseModel):
    """Base class of bodies and query parameters. Fields that it does not define are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")
