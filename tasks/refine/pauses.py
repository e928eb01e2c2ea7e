"""Pauses of refinement because of the endpoint, the settings or the day's tokens."""

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
    """A pause of refinement. cause: `tokens` are used up, the endpoint refuses the `settings`, or
    the `endpoint` does not answer."""

    cause: PauseCause
    reason: str


PAUSING_ERRORS = (ModelUnavailableError, TokenBudgetError, MisconfiguredError)
"""Errors that stop the refinement of all skills."""


def pause_refining(
    coordinator: Coordinator, settings: LanguageModelSettings, error: TransientError
) -> None:
    """Pause refinement for the time that one of PAUSING_ERRORS requires."""
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
    """Return the pause of refinement with these settings, None without a pause."""
    for cause in _CAUSES:
        if reason := coordinator.get_pause(_name(settings, cause)):
            return RefinePause(cause, reason)
    return None


def _name(settings: LanguageModelSettings, cause: PauseCause) -> str:
    """Return the name of a pause, which changes with endpoint, model and limits, so that new
    settings end it."""
    given = settings.model_dump(
        mode="json", include={"base_url", "model", "api_key_file", "extra_body", "daily_tokens"}
    )
    digest = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]
    return f"refine:{cause}:{digest}"
