"""Dialogue with an endpoint until it gives a valid answer: retries, with fallback to less enforced
forms."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from pydantic import BaseModel

from config.errors import MisconfiguredError
from config.language_model_settings import LanguageModelSettings
from tasks.language_model.endpoint.chat_completion import Reply
from tasks.language_model.endpoint.refusals import RefusedRequestError
from tasks.language_model.endpoint.state import EndpointState
from tasks.language_model.protocol import (
    MAX_ANSWERS,
    AnswerT,
    InvalidAnswerError,
    ModelAnswer,
    ModelRequest,
    ModelUnavailableError,
    TokenUsage,
)
from tasks.language_model.structured_answers import (
    AnswerForm,
    UnreadableAnswerError,
    choose_form,
    form_fields,
    read_answer,
)

log = structlog.get_logger()

_MORE_TEMPERATURE = 0.3


@dataclass(slots=True)
class Exchange:
    """The calls for one request. end: time.monotonic() at which all must have ended."""

    end: float | None
    usage: TokenUsage = field(default_factory=TokenUsage)
    calls: int = 0

    def seconds_left(self, limit: float) -> float:
        """Return the seconds that the next call may take, at most `limit`."""
        return limit if self.end is None else min(limit, self.end - time.monotonic())


Send = Callable[[Mapping[str, Any], Exchange], Reply]
"""Function that sends the fields of a chat completion, except the model, and counts the cost in the
exchange.

Raises RefusedRequestError if the endpoint refuses the request, ModelUnavailableError and
MisconfiguredError.
"""


class Dialogue:
    """One request to the model, with all tries."""

    def __init__(self, settings: LanguageModelSettings, state: EndpointState, send: Send) -> None:
        self._settings = settings
        self._state = state
        self._send = send

    def complete(
        self,
        request: ModelRequest,
        answer_type: type[AnswerT],
        check: Callable[[AnswerT], None] | None,
    ) -> ModelAnswer[AnswerT]:
        """Return the first valid answer. Raises as `LanguageModel.complete` does."""
        end = None if request.seconds is None else time.monotonic() + request.seconds
        exchange = Exchange(end)
        try:
            return self._complete(request, answer_type, check, exchange)
        except (InvalidAnswerError, ModelUnavailableError) as error:
            error.usage, error.calls = exchange.usage, exchange.calls
            raise

    def _complete(
        self,
        request: ModelRequest,
        answer_type: type[AnswerT],
        check: Callable[[AnswerT], None] | None,
        exchange: Exchange,
    ) -> ModelAnswer[AnswerT]:
        """Return the first valid answer of up to three, each with a higher temperature (SkillFlow,
        App. A.2, Retry and Fallback)."""
        first = form = choose_form(self._state.form, answer_type)
        reason = ""
        for number in range(MAX_ANSWERS):
            temperature = self._settings.temperature + number * _MORE_TEMPERATURE
            reply, form = self._ask(request, answer_type, form, temperature, exchange)
            try:
                answer = read_answer(reply.text, answer_type, check)
            except InvalidAnswerError as error:
                reason = reply.problem or str(error)
                log.debug("invalid answer", stage=request.stage, number=number + 1, reason=reason)
                if not reply.problem and _shows_no_enforcement(error, form):
                    form = AnswerForm(form + 1)
                continue
            if form > first:
                self._state.fall_back_to(form)
            return ModelAnswer(answer, exchange.usage, exchange.calls)
        raise InvalidAnswerError(f"{MAX_ANSWERS} answers are invalid, the last one: {reason}")

    def _ask(
        self,
        request: ModelRequest,
        answer_type: type[BaseModel],
        form: AnswerForm,
        temperature: float,
        exchange: Exchange,
    ) -> tuple[Reply, AnswerForm]:
        """Return a reply, and the form of the request that got it."""
        asked = form
        while True:
            fields = form_fields(form, request, answer_type) | self._sampling(request, temperature)
            try:
                reply = self._send(fields, exchange)
            except RefusedRequestError as refusal:
                form = self._adapt(refusal, fields, form)
                continue
            if form > asked:
                self._state.fall_back_to(form)
            return reply, form

    def _sampling(self, request: ModelRequest, temperature: float) -> dict[str, Any]:
        dialect = self._state.dialect
        fields: dict[str, Any] = {dialect.limit_field: request.max_tokens}
        if dialect.temperature:
            fields["temperature"] = round(min(temperature, 2.0), 3)
        return fields

    def _adapt(
        self, refusal: RefusedRequestError, fields: Mapping[str, Any], form: AnswerForm
    ) -> AnswerForm:
        """Return the form for another try of a refused request, after learning the endpoint's
        dialect.

        Raises InvalidAnswerError if the prompt is the reason, else MisconfiguredError.
        """
        state = self._state
        if "max_tokens" in fields and "max_completion_tokens" in refusal.message:
            state.learn(replace(state.dialect, limit_field="max_completion_tokens"))
            return form
        if "temperature" in fields and "temperature" in refusal.message:
            state.learn(replace(state.dialect, temperature=False))
            return form
        if form is not AnswerForm.PLAIN and not refusal.is_about_prompt:
            return AnswerForm(form + 1)
        log.warning(
            "the endpoint refuses a request", status=refusal.status, message=refusal.message
        )
        if refusal.is_about_prompt or state.answered:
            raise InvalidAnswerError(f"the endpoint refused the prompt (status {refusal.status})")
        raise MisconfiguredError(
            f"{self._settings.base_url} refuses requests (status {refusal.status}: "
            f"{refusal.message}); check language_model.model and language_model.extra_body"
        )


def _shows_no_enforcement(error: InvalidAnswerError, form: AnswerForm) -> bool:
    """Return whether an answer shows that the server does not enforce this form."""
    if not isinstance(error, UnreadableAnswerError):
        return False
    return form is AnswerForm.JSON_SCHEMA or (
        form is AnswerForm.JSON_OBJECT and not error.extracted
    )
