"""Language model that stores its answers, and counts and limits its tokens.

A question is paid for once: its answer is stored under the hash of the request before anything else
happens. If several workers have the same question, one asks while the other workers wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import structlog
from pydantic import BaseModel
from typing_extensions import override

from config.backoff import Backoff
from config.errors import MisconfiguredError, SkillbusError, TransientError
from config.language_model_settings import LanguageModelSettings
from skills.token_count import count_tokens
from tasks.language_model.answer_store import AnswerStore, StoredAnswer, utc_day
from tasks.language_model.claim_owner import new_claim_owner
from tasks.language_model.protocol import (
    MAX_ANSWERS,
    AnswerT,
    InvalidAnswerError,
    LanguageModel,
    ModelAnswer,
    ModelRequest,
    ModelUnavailableError,
    TokenBudgetError,
    TokenUsage,
)
from tasks.language_model.structured_answers import read_answer
from tasks.metrics_recorder import MetricsRecorder, ModelFailure, NullMetrics

log = structlog.get_logger()

_CLAIM_MARGIN_SECONDS = 5.0
_FIRST_POLL_SECONDS = 0.02
_LAST_POLL_SECONDS = 0.5

_FAILURES: tuple[tuple[type[SkillbusError], ModelFailure], ...] = (
    (InvalidAnswerError, "invalid"),
    (TokenBudgetError, "budget"),
    (ModelUnavailableError, "unavailable"),
    (MisconfiguredError, "misconfigured"),
)

Check = Callable[[AnswerT], None] | None


class MeteredLanguageModel(LanguageModel):
    """A wrapper of a language model that stores answers and counts tokens. Threads may share it.

    clock: returns seconds since 1970, for the day of the token count.
    """

    def __init__(
        self,
        model: LanguageModel,
        answers: AnswerStore,
        settings: LanguageModelSettings,
        metrics: MetricsRecorder | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._model = model
        self._answers = answers
        self._settings = settings
        self._metrics = metrics or NullMetrics()
        self._clock = clock

    @property
    @override
    def model(self) -> str:
        return self._model.model

    @override
    def complete(
        self, request: ModelRequest, answer_type: type[AnswerT], check: Check[AnswerT] = None
    ) -> ModelAnswer[AnswerT]:
        try:
            return self._complete(request, answer_type, check)
        except SkillbusError as error:
            self._metrics.record_model_failure(request.stage, _failure(error))
            raise

    def _complete(
        self, request: ModelRequest, answer_type: type[AnswerT], check: Check[AnswerT]
    ) -> ModelAnswer[AnswerT]:
        key = request.key(self.model, answer_type)
        stored = self._answers.get_answer(key)
        if stored is not None:
            return self._read_stored(request, stored, answer_type, check)
        end = time.monotonic() + self._limit(request)
        owner = new_claim_owner()
        stored = self._claim_or_wait(key, owner, request, end)
        if stored is not None:
            return self._read_stored(request, stored, answer_type, check)
        try:
            day, reservation = self._reserve(request, end)
            return self._ask(request, answer_type, check, key, day, reservation, end)
        finally:
            self._release(key, owner)

    @override
    def close(self) -> None:
        self._model.close()

    # -- stored answers
    def _read_stored(
        self,
        request: ModelRequest,
        stored: StoredAnswer,
        answer_type: type[AnswerT],
        check: Check[AnswerT],
    ) -> ModelAnswer[AnswerT]:
        """Return the stored answer, validated again; raises InvalidAnswerError."""
        self._metrics.record_stored_answer(request.stage)
        try:
            self._answers.count_stored(self._day(), request.stage)
        except TransientError as error:
            log.warning("a stored answer could not be counted", reason=str(error))
        if not stored.text:
            raise InvalidAnswerError(f"stored as invalid: {stored.reason}")
        return ModelAnswer(read_answer(stored.text, answer_type, check))

    def _claim_or_wait(
        self, key: str, owner: str, request: ModelRequest, end: float
    ) -> StoredAnswer | None:
        """Claim the question, or wait for the worker that holds it and return the answer."""
        seconds = self._claim_seconds(request)
        backoff = Backoff(_FIRST_POLL_SECONDS, _LAST_POLL_SECONDS)
        while not self._answers.claim(key, owner, seconds):
            left = end - time.monotonic()
            if left <= 0:
                raise ModelUnavailableError(
                    f"{request.stage}: another worker still waits for the answer to this question"
                )
            time.sleep(min(backoff.pause(), left))
            if (stored := self._answers.get_answer(key)) is not None:
                return stored
        # The claim may have been free because the answer was stored since the last look.
        stored = self._answers.get_answer(key)
        if stored is not None:
            self._release(key, owner)
        return stored

    def _release(self, key: str, owner: str) -> None:
        try:
            self._answers.release(key, owner)
        except TransientError as error:
            log.warning("a claim could not be released; it expires", reason=str(error))

    # -- tokens
    def _reserve(self, request: ModelRequest, end: float) -> tuple[str, str]:
        """Reserve the tokens of a request; returns the day and the id of the reservation.

        Waits while running calls reserve the missing tokens, since most calls use less than they
        reserve. Raises TokenBudgetError.
        """
        estimate, limit = estimate_tokens(request), self._settings.daily_tokens
        backoff = Backoff(_FIRST_POLL_SECONDS, _LAST_POLL_SECONDS)
        while True:
            now = self._clock()
            day = utc_day(now)
            reservation = self._answers.reserve_tokens(
                day, estimate, limit, self._claim_seconds(request)
            )
            if reservation is not None:
                return day, reservation
            used = sum(usage.tokens for usage in self._answers.get_usage(day).values())
            left = end - time.monotonic()
            is_spent = used + estimate > limit
            if is_spent or left <= 0:
                raise TokenBudgetError(
                    f"{request.stage}: {used} of {limit} tokens (language_model.daily_tokens) are "
                    f"used today, this call may need {estimate}"
                    + ("" if is_spent else ", and running calls may need the rest"),
                    retry_after=seconds_to_next_day(now)
                    if is_spent
                    else self._claim_seconds(request),
                )
            time.sleep(min(backoff.pause(), left))

    def _settle(
        self, request: ModelRequest, day: str, reservation: str, usage: TokenUsage, calls: int
    ) -> None:
        try:
            self._answers.settle(reservation, day, request.stage, usage, calls)
        except TransientError as error:
            log.warning(
                "used tokens could not be counted",
                stage=request.stage,
                tokens=usage.total,
                reason=str(error),
            )

    # -- calls
    def _ask(
        self,
        request: ModelRequest,
        answer_type: type[AnswerT],
        check: Check[AnswerT],
        key: str,
        day: str,
        reservation: str,
        end: float,
    ) -> ModelAnswer[AnswerT]:
        """Ask the model; store the answer before any other use of it."""
        # Set even if the request has no limit: after `end` another worker may claim the question.
        request = replace(request, seconds=max(0.001, end - time.monotonic()))
        usage, calls = TokenUsage(), 0
        started = time.perf_counter()
        try:
            given = self._model.complete(request, answer_type, check)
            self._save(request, key, StoredAnswer(_to_json(given.answer)))
            usage, calls = given.usage, given.calls
            return given
        except InvalidAnswerError as error:
            self._save(request, key, StoredAnswer("", _reason(error)))
            usage, calls = error.usage, error.calls
            raise
        except ModelUnavailableError as error:
            usage, calls = error.usage, error.calls
            raise
        finally:
            self._settle(request, day, reservation, usage, calls)
            self._metrics.record_model_calls(
                request.stage,
                calls,
                usage.prompt,
                usage.completion,
                time.perf_counter() - started,
            )

    def _save(self, request: ModelRequest, key: str, answer: StoredAnswer) -> None:
        """Store an answer; if that fails, the answer is still used, since it is paid for."""
        try:
            self._answers.save_answer(key, request.stage, self.model, answer)
        except TransientError as error:
            log.error("an answer could not be stored", stage=request.stage, reason=str(error))

    def _limit(self, request: ModelRequest) -> float:
        """Return the seconds that a request may take, with its retries."""
        if request.seconds is not None:
            return request.seconds
        return MAX_ANSWERS * self._settings.timeout_seconds

    def _claim_seconds(self, request: ModelRequest) -> float:
        """Return the length of claims and reservations in seconds; a call that ends in time never
        outlives them."""
        return self._limit(request) + _CLAIM_MARGIN_SECONDS

    def _day(self) -> str:
        return utc_day(self._clock())


def estimate_tokens(request: ModelRequest) -> int:
    """Return the tokens that one call may use: those of its prompt, and the maximum of its
    answer."""
    return count_prompt_tokens(request) + request.max_tokens


def count_prompt_tokens(request: ModelRequest) -> int:
    """Return the tokens of a prompt by our own count, which may differ from the endpoint's."""
    return count_tokens(request.instructions) + count_tokens(request.data)


def seconds_to_next_day(now: float) -> float:
    """Return the seconds from a time, in seconds since 1970, until the next day (UTC) begins."""
    moment = datetime.fromtimestamp(now, UTC)
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return (midnight - moment).total_seconds()


def _to_json(answer: BaseModel) -> str:
    return answer.model_dump_json(by_alias=True, round_trip=True)


def _reason(error: Exception) -> str:
    """Return the text of an error, without characters that cannot be stored."""
    return str(error).encode("utf-8", "replace").decode("utf-8") or "invalid"


def _failure(error: SkillbusError) -> ModelFailure:
    return next((name for kind, name in _FAILURES if isinstance(error, kind)), "store")
