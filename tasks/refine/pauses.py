"""Pauses of refinement: while the endpoint, the settings or the day's tokens hold it up."""

from __future__ import annotations

import hashlib
import json
from typing import Literal, NamedTuple

from config.errors import MisconfiguredError, TransientError
from config.language_model_settings import LanguageModelSettings
from tasks.coordination.protocol import Coordinator
from tasks.language_model.protocol import ModelUnavailableError, TokenBudgetError

PauseCause = Literal["tokens", "settings", "endpoint"]
_CAUSES: tuple[PauseCause, ...] = ("tokens", "settings", "endpoint")

_ENDPOINT_SECONDS = 30.0
_SETTINGS_SECONDS = 60.0
_SHORTEST_SECONDS = 1.0


class RefinePause(NamedTuple):
    """Why no model is asked now. cause: `tokens` are spent, the endpoint refuses the `settings`,
    or the `endpoint` does not answer."""

    cause: PauseCause
    reason: str


PAUSING_ERRORS = (ModelUnavailableError, TokenBudgetError, MisconfiguredError)
"""Errors that hold up all skills alike."""


def pause_refining(
    coordinator: Coordinator, settings: LanguageModelSettings, error: TransientError
) -> None:
    """Have refinement wait as long as one of PAUSING_ERRORS asks for."""
    cause: PauseCause = "endpoint"
    seconds = _ENDPOINT_SECONDS
    if isinstance(error, TokenBudgetError):
        cause, seconds = "tokens", error.retry_after
    elif isinstance(error, MisconfiguredError):
        cause, seconds = "settings", _SETTINGS_SECONDS
    elif isinstance(error, ModelUnavailableError) and error.retry_after is not None:
        seconds = error.retry_after
    seconds = max(_SHORTEST_SECONDS, seconds)
    coordinator.pause(_name(settings, cause), str(error), seconds)


def get_refine_pause(
    coordinator: Coordinator, settings: LanguageModelSettings
) -> RefinePause | None:
    """Return the pause of refinement with these settings, None if nothing holds it up."""
    for cause in _CAUSES:
        if reason := coordinator.get_pause(_name(settings, cause)):
            return RefinePause(cause, reason)
    return None


def _name(settings: LanguageModelSettings, cause: PauseCause) -> str:
    """With a changed endpoint, model or limit a pause no longer holds."""
    given = settings.model_dump(
        mode="json", include={"base_url", "model", "api_key_file", "extra_body", "daily_tokens"}
    )
    digest = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]
    return f"refine:{cause}:{digest}"
