"""State of a model at an endpoint, as a process has learned it: form of answers, limits,
failures."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass

import structlog

from config.backoff import Backoff
from tasks.language_model.protocol import ModelUnavailableError
from tasks.language_model.structured_answers import AnswerForm

log = structlog.get_logger()

_FAILURES_TO_OPEN = 2
_FIRST_OPEN_SECONDS, _MAX_OPEN_SECONDS = 3.0, 60.0
_PAUSES_SECONDS = (1.0, 64.0)
_MAX_PAUSE_SECONDS = 3600.0
_SLACK = 1.1
"""Factor above the time limit of a timed out call up to which another time limit counts as
equal."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Fields of a request in which servers differ.

    limit_field: the field of the answer's length; newer hosted models refuse `max_tokens`.
    temperature: whether it may be set; some reasoning models refuse it.
    """

    limit_field: str = "max_tokens"
    temperature: bool = True


class EndpointState:
    """The state of one model at one endpoint, shared by all clients of a process; thread-safe.

    It holds the form of answers, the dialect, the time before which no request may be sent, and
    a circuit breaker. The circuit opens after two failures in a row, for 3 seconds, then twice as
    long each time up to 60; after that, one trial call is sent, and other calls fail at once until
    it succeeds. A circuit that opened because of timeouts stops only calls whose time limit is not
    longer.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._form = AnswerForm.JSON_SCHEMA
        self._dialect = Dialect()
        self._answered = False
        self._named: set[str] = set()
        self._not_before = 0.0
        self._pauses = Backoff(*_PAUSES_SECONDS, jitter=False)
        self._failures = 0
        self._open_until = 0.0
        self._is_trying = False
        self._stopped_seconds = 0.0
        self._reason = ""

    @property
    def form(self) -> AnswerForm:
        """The most enforcing form that is known to work; JSON_SCHEMA before the first answer."""
        with self._lock:
            return self._form

    @property
    def dialect(self) -> Dialect:
        """The known fields that the endpoint understands."""
        with self._lock:
            return self._dialect

    @property
    def answered(self) -> bool:
        """Whether the model has answered in this process."""
        with self._lock:
            return self._answered

    def fall_back_to(self, form: AnswerForm) -> None:
        """Record that a form works, and that forms that enforce more do not."""
        with self._lock:
            if form <= self._form:
                return
            self._form = form
        log.info("answers are requested in a weaker form", model=self._model, form=form.name)

    def learn(self, dialect: Dialect) -> None:
        """Record the fields that the endpoint understands."""
        with self._lock:
            self._dialect = dialect
        log.info("the endpoint needs other request fields", dialect=str(dialect))

    def note_name(self, name: str) -> None:
        """Log, once per name, that an answer names another model than requested."""
        with self._lock:
            if name == self._model or name in self._named or len(self._named) >= 20:
                return
            self._named.add(name)
        log.info("the endpoint answers with another model", asked=self._model, answered=name[:100])

    def admit(self, seconds: float, *, starts: bool) -> None:
        """Raise ModelUnavailableError if the circuit is open for calls with this time limit.

        starts: the call starts now; if the circuit was open until now, it becomes the trial call.
        """
        with self._lock:
            if self._failures < _FAILURES_TO_OPEN or seconds > self._stopped_seconds * _SLACK:
                return
            left = self._open_until - time.monotonic()
            if left > 0:
                raise ModelUnavailableError(
                    f"the endpoint failed a moment ago: {self._reason}", retry_after=left
                )
            if starts:
                self._open_until = time.monotonic() + self._open_seconds()
                self._is_trying = True

    def succeed(self) -> None:
        """Record an answer; closes the circuit."""
        with self._lock:
            self._answered = True
            self._pauses.reset()
            self._close()

    def note_refusal(self) -> None:
        """Record that the endpoint refused a request: it responds, so the circuit closes."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        self._failures = 0
        self._stopped_seconds = 0.0
        self._is_trying = False

    def fail(self, reason: str, seconds: float = float("inf")) -> None:
        """Record a failure. seconds: the time limit of a call that timed out."""
        with self._lock:
            self._stopped_seconds = max(self._stopped_seconds, seconds)
            now = time.monotonic()
            if now < self._open_until and not self._is_trying:
                return  # several calls failed together; the first one counted
            self._is_trying = False
            self._failures += 1
            self._reason = reason
            if self._failures >= _FAILURES_TO_OPEN:
                self._open_until = now + self._open_seconds()

    def pause(self, retry_after: float | None) -> None:
        """Hold back all calls for `retry_after` seconds, or for a growing time if it is None."""
        with self._lock:
            seconds = self._pauses.pause() if retry_after is None else retry_after
            seconds = min(max(seconds, 0.05), _MAX_PAUSE_SECONDS)
            self._not_before = max(self._not_before, time.monotonic() + seconds)

    def seconds_to_wait(self) -> float:
        """Return the seconds until the endpoint may be called; 0 if it may be called now."""
        with self._lock:
            return max(0.0, self._not_before - time.monotonic())

    def _open_seconds(self) -> float:
        doublings = min(self._failures - _FAILURES_TO_OPEN, 10)
        return min(_FIRST_OPEN_SECONDS * 2.0**doublings, _MAX_OPEN_SECONDS)


_STATES: dict[tuple[int, str, str], EndpointState] = {}


def state_of(base_url: str, model: str) -> EndpointState:
    """Return the state of a model at an endpoint in this process."""
    return _STATES.setdefault((os.getpid(), base_url, model), EndpointState(model))
