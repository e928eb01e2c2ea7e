"""Functions that send tasks to their queues and count the messages that wait there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import structlog
from kombu.exceptions import KombuError
from kombu.exceptions import OperationalError as BrokerAwayError
from structlog.contextvars import get_contextvars

from config.errors import MisconfiguredError, TransientError
from config.tracing import current_context
from tasks.message import TRACE_HEADER, trace_headers
from tasks.policies import POLICIES, resolve_task_name

log = structlog.get_logger()

T = TypeVar("T")
_Errors = tuple[type[BaseException], ...]

_UNREACHABLE = "the broker does not answer"
_BROKER_ERRORS: _Errors = (BrokerAwayError, KombuError, OSError)
_PROMPT_SECONDS = 1.0
"""Time within which a call over a lost connection fails; a broker that does not answer takes
longer."""


def send_task(app: Any, name: str, ids: Sequence[object], keep_result: bool = False) -> Any:
    """Put a task on its queue; returns Celery's result handle.

    app: a Celery application of `create_app`. keep_result: store the result, for the holder of the
    handle. The trace id that is bound to the log context, and the current span, are sent as
    headers. Raises TransientError when the broker does not answer.
    """
    policy = POLICIES[resolve_task_name(name)]
    headers = trace_headers(get_contextvars().get(TRACE_HEADER), current_context(), time.time())
    # To keep a result, Celery subscribes to the result backend before it sends the task.
    backend_errors = result_backend_errors(app) if keep_result else ()
    with _translate_errors(), app.producer_or_acquire() as producer:
        connection = producer.connection

        def send() -> Any:
            producer.revive(connection)
            return app.send_task(
                policy.name,
                (list(ids),),
                queue=policy.queue,
                headers=headers or None,
                producer=producer,
                ignore_result=not keep_result,
            )

        return _call(connection, send, backend_errors)


def result_backend_errors(app: Any) -> tuple[type[Exception], ...]:
    """Return the exceptions of calls to the result backend while it is away."""
    # Celery raises RuntimeError if it cannot connect again.
    return (*getattr(app.backend, "connection_errors", ()), RuntimeError)


def send_task_if_room(app: Any, name: str, ids: Sequence[object]) -> None:
    """Put a task on its queue, unless the queue has `max_queue_length` messages.

    A task that is not sent is not lost: the journal or the catalog holds its work. A running task
    of the same kind includes it, or the reconciler sends it later. Raises TransientError when the
    broker does not answer.
    """
    policy = POLICIES[resolve_task_name(name)]
    if (
        policy.max_queue_length is not None
        and queue_depth(app, policy.queue) >= policy.max_queue_length
    ):
        log.debug("task not sent: the queue is full", sent=name, ids=len(ids))
        return
    send_task(app, name, ids)


def queue_depth(app: Any, queue: str) -> int:
    """Return how many messages wait in a queue; 0 if the queue is not declared yet.

    Raises TransientError when the broker does not answer, MisconfiguredError when it refuses the
    login.
    """
    with _translate_errors(), app.connection_or_acquire() as connection:

        def count() -> int:
            with _open_channel(connection) as channel:
                try:
                    return int(channel.queue_declare(queue, passive=True).message_count)
                except connection.channel_errors:
                    return 0

        return _call(connection, count)


def _call(connection: Any, call: Callable[[], T], other_errors: _Errors = ()) -> T:
    """Call over a connection of the pool; if that fails promptly, again over a new connection.

    The pool also hands out connections that the broker has closed. A broker that does not answer is
    waited for only once.
    """
    errors = (*_BROKER_ERRORS, *connection.connection_errors, *other_errors)
    is_again, start = False, time.monotonic()
    with _translate_errors(errors):
        while True:
            try:
                _connect(connection)
                return call()
            except errors:
                connection.collect()
                if is_again or time.monotonic() - start > _PROMPT_SECONDS:
                    raise
            is_again = True


@contextmanager
def _translate_errors(errors: _Errors = _BROKER_ERRORS) -> Iterator[None]:
    try:
        yield
    except errors as error:
        raise TransientError(f"{_UNREACHABLE}: {error}", public_message=_UNREACHABLE) from error


def _connect(connection: Any) -> None:
    try:
        connection.ensure_connection(max_retries=0)
    except connection.channel_errors as error:
        raise MisconfiguredError(
            f"the broker refuses the login ({error}): check servers.broker and the file "
            "of servers.broker_password_file"
        ) from None


@contextmanager
def _open_channel(connection: Any) -> Iterator[Any]:
    """Yield a channel for one request.

    AMQP closes a channel that names an unknown queue. On Redis the default channel is used, because
    each new one opens a connection.
    """
    if connection.transport.driver_type != "amqp":
        yield connection.default_channel
        return
    channel = connection.channel()
    yield channel
    channel.close()  # not after an error: it waits for an answer, and `_call` drops the connection
