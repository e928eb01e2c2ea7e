"""Celery applications: one per workload, all knowing every task by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import structlog
from celery import Celery, Task
from kombu.entity import Queue
from kombu.exceptions import KombuError
from kombu.exceptions import OperationalError as BrokerAwayError
from structlog.contextvars import bound_contextvars, get_contextvars

from config.errors import (
    MisconfiguredError,
    PermanentError,
    SkillbusError,
    StaleError,
    TransientError,
)
from tasks.broker.broker_config import BrokerConfig
from tasks.ingest.embed_sections import embed_sections, split_embed_batch
from tasks.ingest.fetch import fetch
from tasks.ingest.ingest import ingest, split_ingest_batch
from tasks.ingest.link import link
from tasks.ingest.maintain import maintain
from tasks.ingest.plan import fail_events, plan
from tasks.journal.protocol import DeadLetter, new_dead_letter_id
from tasks.measures import TaskOutcome
from tasks.policies import (
    EMBED_SECTIONS,
    FETCH,
    INGEST,
    LINK,
    MAINTAIN,
    PLAN,
    POLICIES,
    QUERY,
    Deadline,
    DeadlineExceededError,
    TaskPolicy,
)
from tasks.query.query_task import fail_query, run_query
from tasks.services import Services

log = structlog.get_logger()

Handler = Callable[[Services, Deadline, Sequence[str]], dict[str, object]]
FailureHandler = Callable[[Services, Sequence[str], BaseException], None]
GetServices = Callable[[], Services]

_HANDLERS: dict[str, Handler] = {
    PLAN.name: plan,
    FETCH.name: fetch,
    INGEST.name: ingest,
    EMBED_SECTIONS.name: embed_sections,
    LINK.name: link,
    MAINTAIN.name: maintain,
    QUERY.name: run_query,
}

_FAILURES: dict[str, FailureHandler] = {
    PLAN.name: fail_events,
    FETCH.name: fail_events,
    INGEST.name: split_ingest_batch,
    EMBED_SECTIONS.name: split_embed_batch,
    QUERY.name: fail_query,
}

_COUNT_RETRY: dict[str, Callable[[Services], int]] = {
    INGEST.name: lambda services: services.coordinator.add_ingest_tasks(1),
    EMBED_SECTIONS.name: lambda services: services.coordinator.add_embed_tasks(1),
}
"""Tasks that count themselves out when they end, and so in again when they are tried again."""

_PUBLISH_RETRY_POLICY = {
    "max_retries": 2,
    "interval_start": 0.05,
    "interval_step": 0.2,
    "interval_max": 0.5,
}
_RESULT_SECONDS = 3600
_WORKER_LOST_WAIT_SECONDS = 1.0
"""For a result that a child sent just before it died."""
_TRACE_HEADER = "trace_id"


class PoisonTaskError(PermanentError):
    """Work that its worker did not survive, several times."""


def create_app(services: GetServices, queues: Sequence[str], transport: BrokerConfig) -> Any:
    """A Celery application that consumes `queues`.

    A worker selects its queues per application, not per worker, so every workload of a process
    has an application of its own. `services` is called when a task runs: in a worker, after the
    fork.
    """
    app = Celery(
        "skillbus",
        broker=transport.broker_url,
        backend=transport.result_backend,
        set_as_current=False,
    )
    if transport.transport_class:
        app.conf.broker_transport = transport.transport_class
    arguments = dict(transport.queue_arguments)
    seconds = transport.options.get("socket_timeout", transport.options.get("read_timeout"))
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        task_queues=[Queue(name, routing_key=name, queue_arguments=arguments) for name in queues],
        task_routes={policy.name: {"queue": policy.queue} for policy in POLICIES.values()},
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        task_publish_retry_policy=_PUBLISH_RETRY_POLICY,
        worker_prefetch_multiplier=1,
        worker_lost_wait=_WORKER_LOST_WAIT_SECONDS,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        # RabbitMQ delivers at once what was not acknowledged, Redis after a long while.
        worker_cancel_long_running_tasks_on_connection_loss=not transport.transport_class,
        broker_transport_options=dict(transport.options),
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        redis_socket_timeout=seconds,
        redis_socket_connect_timeout=seconds,
        redis_retry_on_timeout=True,
        result_expires=_RESULT_SECONDS,
    )
    for policy in POLICIES.values():
        _register(app, policy, services)
    app.finalize()
    return app


def _register(app: Any, policy: TaskPolicy, get_services: GetServices) -> None:
    class SkillbusTask(Task):
        """Hands over what failed for good."""

        abstract = True

        def on_failure(
            self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any
        ) -> None:
            """Called once a task has failed for good, whatever it raised."""
            del kwargs
            services = get_services()
            if services.stopping.is_set():
                # The stores close under what still runs; the next start sends it again.
                return
            ids = args[0]
            with bound_contextvars(**_context(policy, self.request)):
                if isinstance(exc, SkillbusError):
                    log.error("task gave up", ids=ids[:10], reason=str(exc))
                else:
                    log.error("task failed", ids=ids, reason=repr(exc), error=str(einfo))
                _handle_final_failure(services, policy, task_id, ids, exc)

    def run(self: Any, ids: Sequence[str]) -> dict[str, object]:
        with bound_contextvars(**_context(policy, self.request)):
            return _run(get_services(), policy, self.request.id, ids)

    app.task(
        run,
        bind=True,
        base=SkillbusTask,
        name=policy.name,
        shared=False,
        max_retries=0,
        time_limit=policy.hard_time_limit,
        throws=(SkillbusError,),
        ignore_result=policy.name != QUERY.name,
    )


def _context(policy: TaskPolicy, request: Any) -> dict[str, str]:
    """What every log line of a task says: which it is, and which event or query led to it."""
    trace_id = getattr(request, _TRACE_HEADER, None) or request.id
    return {"task": policy.name, "task_id": request.id, _TRACE_HEADER: trace_id}


def _run(
    services: Services, policy: TaskPolicy, task_id: str, ids: Sequence[str]
) -> dict[str, object]:
    """Run a task to its end: counted, measured and logged."""
    started = time.perf_counter()
    outcome: TaskOutcome = "failed"
    attempts = _record_start(services, policy, task_id, ids)
    try:
        if attempts > policy.max_deliveries:
            raise PoisonTaskError(
                f"begun {attempts - 1} times, and its worker died or hung each time"
            )
        result = _run_with_retries(services, policy, ids)
        outcome = "stale" if "stale" in result else "done"
        log.info("task done", seconds=_elapsed_seconds(started), **_summarize_result(result))
        return result
    except TransientError:
        outcome = "passing"
        raise
    finally:
        services.metrics.record_task(policy.name, outcome, time.perf_counter() - started)
        _record_finish(services, policy, task_id, ids)


def _elapsed_seconds(started: float) -> float:
    return round(time.perf_counter() - started, 4)


def _summarize_result(result: dict[str, object]) -> dict[str, object]:
    """A task's result as its log line tells it: of a bundle no texts, only how much it holds."""
    bundle = result.get("bundle")
    if not isinstance(bundle, dict):
        return result
    summary = {name: bundle[name] for name in ("status", "tokens", "degraded")}
    return {"state": result["state"], "skills": len(bundle["skills"]), **summary}


def _run_with_retries(
    services: Services, policy: TaskPolicy, ids: Sequence[str]
) -> dict[str, object]:
    """The handler's result, tried again where that may help.

    In its place, not as another message: brokers keep what waits for a time of its own in the
    memory of workers, or deliver it twice. What took its whole time is not begun again.
    """
    handler = _HANDLERS[policy.name]
    for attempt in range(policy.max_retries + 1):
        try:
            return handler(services, Deadline(policy.time_limit), ids)
        except StaleError as error:
            return {"stale": str(error)}
        except TransientError as error:
            if attempt == policy.max_retries or isinstance(error, DeadlineExceededError):
                raise
            log.warning("task will be tried again", reason=str(error))
            services.metrics.record_retry(policy.name)
            if services.stopping.wait(policy.retry_delay(attempt)):
                raise
            if policy.name in _COUNT_RETRY:
                _COUNT_RETRY[policy.name](services)
    raise AssertionError("the last attempt returns or raises")


def _record_start(services: Services, policy: TaskPolicy, task_id: str, ids: Sequence[str]) -> int:
    for attempt in range(policy.max_retries + 1):
        try:
            return services.coordinator.start_task(policy.name, task_id, ids)
        except TransientError:
            if attempt == policy.max_retries or services.stopping.wait(policy.retry_delay(attempt)):
                raise
    raise AssertionError("the last attempt returns or raises")


_RECORD_SECONDS = 120.0
_RECORD_PAUSE_SECONDS = 0.5


def _record_finish(
    services: Services, policy: TaskPolicy, task_id: str, ids: Sequence[str]
) -> None:
    """Note it, however long that takes: what seems to run holds up what comes after it."""
    end = time.monotonic() + _RECORD_SECONDS
    while True:
        try:
            services.coordinator.finish_task(policy.name, task_id, ids)
            return
        except TransientError as error:
            if time.monotonic() > end or services.stopping.wait(_RECORD_PAUSE_SECONDS):
                # The work is done; the note is taken away once it is far beyond its time.
                log.warning("the end of a task could not be noted", reason=str(error))
                return


def _handle_final_failure(
    services: Services, policy: TaskPolicy, task_id: str, ids: Sequence[str], exc: BaseException
) -> None:
    failed = _FAILURES.get(policy.name)
    is_transient = isinstance(exc, TransientError)
    if policy.name != QUERY.name and (failed is None or is_transient):
        services.coordinator.task_error = str(exc)
    if failed is not None:
        failed(services, ids, exc)
    if policy.name != QUERY.name and not is_transient and len(ids) <= 1:
        now = time.time()
        trace_id = get_contextvars().get(_TRACE_HEADER, task_id)
        reason = str(exc) if isinstance(exc, SkillbusError) else f"{type(exc).__name__}: {exc}"
        attempts = policy.max_deliveries if isinstance(exc, PoisonTaskError) else 1
        services.journal.add_dead_letter(
            DeadLetter(
                new_dead_letter_id(now),
                policy.name,
                tuple(ids),
                reason,
                attempts,
                trace_id,
                "",
                now,
            )
        )
        services.metrics.record_dead_letter(policy.name)


def send_task(app: Any, name: str, ids: Sequence[object], keep_result: bool = False) -> Any:
    """Put a task on its queue; returns Celery's result handle.

    Only with `answered` is the result kept for whoever holds the handle. What leads to a task, an
    event or a query, is told in a header. Raises TransientError when the broker is away.
    """
    policy = POLICIES[name]
    trace_id = get_contextvars().get(_TRACE_HEADER)
    # Waiting for a result begins before the task is sent.
    away = getattr(app.backend, "connection_errors", ()) if keep_result else ()
    try:
        return app.send_task(
            name,
            (list(ids),),
            queue=policy.queue,
            headers={_TRACE_HEADER: trace_id} if trace_id else None,
            retry=True,
            ignore_result=not keep_result,
        )
    except (BrokerAwayError, KombuError, OSError, *away) as error:
        raise TransientError(f"the broker does not answer: {error}") from error


def send_task_if_room(app: Any, name: str, ids: Sequence[object]) -> None:
    """Put a task on its queue, unless that is deep already.

    The catalog or the journal holds the work as well: what runs takes it along, or the reconciler
    sends it once there is room. Raises TransientError when the broker is away.
    """
    policy = POLICIES[name]
    if (
        policy.max_queue_length is not None
        and queue_depth(app, policy.queue) >= policy.max_queue_length
    ):
        log.debug("put off", sent=name, ids=len(ids))
        return
    send_task(app, name, ids)


def queue_depth(app: Any, queue: str) -> int:
    """Messages that wait in a queue, 0 for one that nobody has declared yet.

    Raises TransientError when the broker is away, SetupError when it refuses the login.
    """
    with app.connection_or_acquire() as connection:
        try:
            connection.connect()  # one that the broker ended is taken from the pool as it is
            with _channel(connection) as channel:
                try:
                    return int(channel.queue_declare(queue, passive=True).message_count)
                except connection.channel_errors:
                    return 0
        except connection.channel_errors as error:
            raise MisconfiguredError(
                f"the broker refuses the login ({error}): check servers.broker and the file "
                "of servers.broker_password_file"
            ) from None
        except (BrokerAwayError, KombuError, OSError, *connection.connection_errors) as error:
            raise TransientError(f"the broker does not answer: {error}") from error


@contextmanager
def _channel(connection: Any) -> Iterator[Any]:
    """A channel to ask on: AMQP closes one that asks for what is not there, and a new one of Redis
    would make a connection of its own."""
    if connection.transport.driver_type != "amqp":
        yield connection.default_channel
        return
    with connection.channel() as channel:
        yield channel
