"""Settings of the language model: endpoint, limits and the stages that use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from config.secrets import strip_password
from config.settings_group import SettingsGroup, is_http_address

ModelStage = Literal["roles", "record", "links", "prompts", "judge", "rewrite", "select"]

OFFLINE_STAGES: tuple[ModelStage, ...] = ("roles", "record", "links", "prompts", "judge")
"""Stages that refine published skills in the background."""

QUERY_STAGES: tuple[ModelStage, ...] = ("rewrite", "select")
"""Stages of a query that use the model."""

NO_MODEL = (
    "no language model is configured: set language_model.base_url, language_model.model and "
    "language_model.stages (or SKILLBUS_LANGUAGE_MODEL__BASE_URL, …__MODEL and …__STAGES); the "
    f"stages that refine skills are {', '.join(OFFLINE_STAGES)}"
)
"""Error message of operations that need a language model when none is configured."""


class LanguageModelSettings(SettingsGroup):
    """A language model behind an OpenAI-compatible endpoint. Without `base_url` none is used.

    Every enabled stage sends texts of skills to the endpoint; `rewrite` and `select` also send
    tasks.
    """

    base_url: str = Field(
        "",
        description="address that `/chat/completions` is appended to, such as "
        "`http://127.0.0.1:11434/v1`; empty: no language model",
    )
    model: str = Field("", description="name of the model at the endpoint")
    api_key_file: Path | None = Field(None, description="file with the API key")
    timeout_seconds: float = Field(60.0, gt=0, description="time limit of one call")
    concurrency: int = Field(4, ge=1, le=256, description="concurrent calls of one process")
    temperature: float = Field(
        0.0,
        ge=0,
        le=2,
        description="temperature of the first try; each retry of an invalid answer adds 0.3",
    )
    extra_body: dict[str, Any] = Field(
        {}, description="additional fields of every request, such as one that switches thinking off"
    )
    daily_tokens: int = Field(
        2_000_000, ge=0, description="tokens that may be used per day (UTC); 0: no limit"
    )
    query_milliseconds: int = Field(
        10_000, ge=1, description="time that all stages of one query may wait for the model"
    )
    stages: tuple[ModelStage, ...] = Field(("select",), description="stages that use the model")
    select_candidates: int = Field(
        50, ge=2, le=200, description="candidates that `select` chooses from"
    )
    select_margin: float = Field(
        0.0,
        ge=0,
        description="`select` is skipped if the best score exceeds the second by at least this "
        "share of the best; 0: never skipped",
    )
    rewrite_queries: int = Field(5, ge=1, le=10, description="further queries that `rewrite` adds")
    link_candidates: int = Field(8, ge=1, le=50, description="pairs that `links` checks per skill")
    search_terms: bool = Field(
        False, description="find skills also by the prompts that `prompts` wrote for them"
    )

    @model_validator(mode="after")
    def _check_endpoint(self) -> LanguageModelSettings:
        if bool(self.base_url) != bool(self.model):
            raise ValueError("set base_url and model together, or neither")
        if self.base_url and not is_http_address(self.base_url):
            address = strip_password(self.base_url)
            raise ValueError(f"base_url {address!r}: write http://HOST:PORT/v1")
        parts = urlsplit(self.base_url)
        if parts.username or parts.password:
            raise ValueError("base_url: put the API key into the file that api_key_file names")
        try:
            json.dumps(self.extra_body, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"extra_body cannot be sent as JSON: {error}") from None
        return self

    @property
    def in_use(self) -> bool:
        """Whether a model is configured and at least one stage uses it."""
        return bool(self.base_url and self.stages)

    @property
    def judge(self) -> str:
        """Name of the model whose judgements count, "" if the stage `judge` is off."""
        return self.model if self.uses("judge") else ""

    def uses(self, stage: ModelStage) -> bool:
        """Return whether a stage uses the model."""
        return bool(self.base_url) and stage in self.stages

    @property
    def offline_stages(self) -> tuple[ModelStage, ...]:
        """The enabled stages that refine published skills, in the order in which they run."""
        return tuple(stage for stage in OFFLINE_STAGES if self.uses(stage))
