"""Celery applications: one per workload, all knowing every task by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import structlog
from celery import Celery, Task
from kombu.entity import Queue

from config.errors import SkillbusError, StaleError, TransientError
from tasks.ingest import ingest, split_batch
from tasks.link import link
from tasks.maintain import maintain
from tasks.page import page, split_pages
from tasks.plan import fail_events, plan
from tasks.policies import INGEST, LINK, MAINTAIN, PAGE, PLAN, POLICIES, QUERY, Deadline, Policy
from tasks.query import fail_query, query
from tasks.services import Services

log = structlog.get_logger()

Handler = Callable[[Services, Deadline, Sequence[str]], dict[str, object]]
FailureHandler = Callable[[Services, Sequence[str], BaseException], None]

_HANDLERS: dict[str, Handler] = {
    PLAN.name: plan,
    INGEST.name: ingest,
    PAGE.name: page,
    LINK.name: link,
    MAINTAIN.name: maintain,
    QUERY.name: query,
}

_FAILURES: dict[str, FailureHandler] = {
    PLAN.name: fail_events,
    INGEST.name: split_batch,
    PAGE.name: split_pages,
    QUERY.name: fail_query,
}

_COUNTED: dict[str, Callable[[Services], int]] = {
    INGEST.name: lambda services: services.activity.ingest(1),
    PAGE.name: lambda services: services.activity.page(1),
}
"""Tasks that count themselves out when they end, and so in again when they are retried."""


def create_app(services: Services, queues: Sequence[str], broker: str, backend: str) -> Any:
    """A Celery application that consumes `queues`.

    A worker selects its queues per application, not per
    worker, so every workload of a process has an application of its own.
    """
    app = Celery("skillbus", broker=broker, backend=backend, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        task_queues=[Queue(name, routing_key=name) for name in queues],
        task_routes={policy.name: {"queue": policy.queue} for policy in POLICIES.values()},
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        result_expires=3600,
    )
    for policy in POLICIES.values():
        _register(app, policy, services)
    app.finalize()
    return app


def _register(app: Any, policy: Policy, services: Services) -> None:
    handler = _HANDLERS[policy.name]
    failed = _FAILURES.get(policy.name)

    class SkillbusTask(Task):
        """Retries what may pass, and hands over what does not."""

        abstract = True

        def on_failure(
            self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any
        ) -> None:
            """Called once a task has failed for good, whatever it raised."""
            del task_id, kwargs
            if services.stopping.is_set():
                # The stores close under what still runs; the next start sends it again.
                return
            if isinstance(exc, SkillbusError):
                log.error("task gave up", task=policy.name, reason=str(exc))
            else:
                log.error("task failed", task=policy.name, ids=args[0], error=str(einfo))
            if policy.name != QUERY.name and (failed is None or isinstance(exc, TransientError)):
                services.trouble = str(exc)
            if failed is not None:
                failed(services, args[0], exc)

    def run(self: Any, ids: Sequence[str]) -> dict[str, object]:
        with structlog.contextvars.bound_contextvars(task=policy.name, task_id=self.request.id):
            try:
                return handler(services, Deadline(policy.seconds), ids)
            except StaleError as error:
                return {"stale": str(error)}
            except TransientError as error:
                log.warning("task will be retried", reason=str(error))
                if policy.name in _COUNTED and self.request.retries < policy.retries:
                    _COUNTED[policy.name](services)
                raise self.retry(exc=error, countdown=policy.delay(self.request.retries)) from error

    app.task(
        run,
        bind=True,
        base=SkillbusTask,
        name=policy.name,
        shared=False,
        max_retries=policy.retries,
        throws=(SkillbusError,),
        ignore_result=policy.name != QUERY.name,
    )


def send(app: Any, name: str, ids: Sequence[object], answered: bool = False) -> Any:
    """Put a task on its queue; returns Celery's result handle.

    Only with `answered` is the result kept for whoever holds the handle.
    """
    policy = POLICIES[name]
    return app.send_task(
        name,
        (list(ids),),
        queue=policy.queue,
        expires=policy.expires,
        retry=True,
        ignore_result=not answered,
    )
