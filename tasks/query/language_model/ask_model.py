"""Requests to the language model in a query: within its time, and without risk for the answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from config.errors import MisconfiguredError, TransientError
from tasks.language_model.protocol import (
    AnswerT,
    InvalidAnswerError,
    ModelAnswer,
    ModelRequest,
    TokenBudgetError,
)
from tasks.query.context import QueryContext

_MIN_SECONDS = 0.05
"""Minimum seconds for a call: with less time left, no call is started."""


def ask_model(
    context: QueryContext,
    request: ModelRequest,
    answer_type: type[AnswerT],
    check: Callable[[AnswerT], None] | None = None,
    began: float | None = None,
) -> AnswerT | None:
    """Return the model's answer for a stage of this query; None without an answer in the time that
    the query has left for the model.

    began: start of the preparation of the request, by `time.monotonic`, since that time counts too.
    Without an answer the degradations name the stage and the cause.
    """
    calls = context.model_calls
    started = time.monotonic() if began is None else began
    left = calls.seconds - (time.monotonic() - started)
    seconds = min(left, context.deadline.remaining() / 2)
    lazy = context.services.language_model
    if lazy is None:
        return None
    try:
        if seconds < _MIN_SECONDS:
            raise TransientError("no time is left for the model")
        given = lazy.get().complete(replace(request, seconds=seconds), answer_type, check)
    except (TransientError, InvalidAnswerError) as error:
        outcome = _describe_failure(error)
        context.degradations.add(
            f"{request.stage} was skipped: {outcome}",
            error if isinstance(error, TransientError) else None,
        )
        calls.report(request.stage, outcome=outcome)
        return None
    finally:
        calls.seconds -= time.monotonic() - started
    calls.report(request.stage, **_describe(given))
    return given.answer


def _describe(given: ModelAnswer[AnswerT]) -> dict[str, Any]:
    return {
        "outcome": "answered" if given.calls else "answered from the store",
        "calls": given.calls,
        "prompt_tokens": given.usage.prompt,
        "completion_tokens": given.usage.completion,
    }


def _describe_failure(error: TransientError | InvalidAnswerError) -> str:
    if isinstance(error, InvalidAnswerError):
        return "the language model's answer was not usable"
    if isinstance(error, (TokenBudgetError, MisconfiguredError)):
        return error.public_message
    return "the language model did not answer in time"
