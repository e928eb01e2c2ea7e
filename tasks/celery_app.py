"""Celery applications, with every task registered by name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import structlog
from billiard.common import terminate_handler_fired
from celery import Celery, Task
from celery.loaders.app import AppLoader
from kombu.entity import Queue
from structlog.contextvars import bound_contextvars

from config import tracing
from config.errors import SkillbusError
from tasks.broker.broker_config import BrokerConfig
from tasks.message import TRACE_HEADER, parse_trace_headers
from tasks.policies import POLICIES, QUERY, TaskPolicy
from tasks.run_task import handle_failure, run_task
from tasks.services import Services

log = structlog.get_logger()

GetServices = Callable[[], Services]

_RESULT_SECONDS = 3600
_WORKER_LOST_WAIT_SECONDS = 1.0
"""Seconds to wait for a result that a child sent just before it died."""


class _Loader(AppLoader):
    """Reads no configuration: `CELERY_CONFIG_MODULE` belongs to another project.

    Celery's own loader would import that module, from the working directory first.
    """

    def read_configuration(self, env: str = "CELERY_CONFIG_MODULE") -> dict[str, Any]:
        """Return no settings: those of `create_app` are the only ones."""
        del env
        return {}


def create_app(get_services: GetServices, queues: Sequence[str], transport: BrokerConfig) -> Any:
    """Return a Celery application that consumes `queues`.

    get_services: called when a task runs, in a worker after the fork.
    """
    app = Celery(
        "skillbus",
        broker=transport.broker_url,
        backend=transport.result_backend,
        set_as_current=False,
        loader=_Loader,
        fixups=set(),
    )
    if transport.transport_class:
        app.conf.broker_transport = transport.transport_class
    if transport.system == "rabbitmq":
        from tasks.broker.rabbitmq_properties import keep_unreadable_messages

        keep_unreadable_messages()
    app.conf.update(_celery_settings(queues, transport))
    for policy in POLICIES.values():
        _register_task(app, policy, get_services, transport.system)
    app.finalize()
    return app


def _celery_settings(queues: Sequence[str], transport: BrokerConfig) -> dict[str, Any]:
    arguments = dict(transport.queue_arguments)
    timeout = transport.options.get("socket_timeout", transport.options.get("read_timeout"))
    return {
        "accept_content": ["json"],
        "task_serializer": "json",
        "result_serializer": "json",
        "task_queues": [
            Queue(name, routing_key=name, queue_arguments=arguments) for name in queues
        ],
        "task_routes": {policy.name: {"queue": policy.queue} for policy in POLICIES.values()},
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_ignore_result": True,
        "task_publish_retry": False,  # `tasks.send` does it
        "worker_prefetch_multiplier": 1,
        "worker_lost_wait": _WORKER_LOST_WAIT_SECONDS,
        "worker_hijack_root_logger": False,
        "worker_enable_remote_control": False,
        "worker_send_task_events": False,
        # RabbitMQ redelivers unacknowledged messages at once, Redis only after a long timeout.
        "worker_cancel_long_running_tasks_on_connection_loss": not transport.transport_class,
        "broker_transport_options": dict(transport.options),
        "broker_use_ssl": _redis_tls(transport.broker_url),
        "broker_pool_acquire_timeout": timeout,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "redis_socket_timeout": timeout,
        "redis_socket_connect_timeout": timeout,
        "redis_retry_on_timeout": True,
        "redis_backend_use_ssl": _redis_tls(transport.result_backend),
        "result_backend_transport_options": {"retry_policy": {"timeout": timeout}},
        "result_expires": _RESULT_SECONDS,
    }


def _redis_tls(url: str) -> dict[str, str] | None:
    """Return the TLS options of an address of Redis, None without TLS.

    Kombu reads the scheme for its own transport only, and Celery has no default `ssl_cert_reqs`.
    """
    parts = urlsplit(url)
    if parts.scheme != "rediss":
        return None
    named = {name: value for name, value in parse_qsl(parts.query) if name.startswith("ssl_")}
    return {"ssl_cert_reqs": "required"} | named


def _register_task(
    app: Any, policy: TaskPolicy, get_services: GetServices, broker_system: str
) -> None:
    class SkillbusTask(Task):
        """Celery task that passes final failures to `handle_failure`."""

        abstract = True

        def on_failure(
            self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any
        ) -> None:
            """Handle the failure of the task; Celery calls this when it has raised anything, after
            its retries."""
            del kwargs
            services = get_services()
            if services.stopping.is_set():
                # The stores close while tasks still run; the next start sends this task again.
                return
            ids = args[0]
            with bound_contextvars(**_log_context(policy, self.request)):
                if isinstance(exc, SkillbusError):
                    log.error("task gave up", ids=ids[:10], reason=str(exc))
                else:
                    log.error("task failed", ids=ids, reason=repr(exc), error=str(einfo))
                handle_failure(services, policy, task_id, ids, exc)

    def run(self: Any, ids: Sequence[str]) -> dict[str, object]:
        with (
            bound_contextvars(**_log_context(policy, self.request)),
            _task_span(policy, self.request, broker_system),
        ):
            try:
                return run_task(get_services(), policy, self.request.id, ids)
            except Exception as error:
                if terminate_handler_fired():
                    # SIGTERM raises SystemExit in the running code, and a client library that
                    # cleans up may replace it by an error. Celery would record that error as the
                    # task's failure.
                    raise SystemExit(os.EX_TEMPFAIL) from error
                raise

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


def _task_span(policy: TaskPolicy, request: Any, broker_system: str) -> tracing.OpenSpan:
    """Return the span of a task whose message continues a trace; a task on its own begins none."""
    context, waited_seconds = parse_trace_headers(request, time.time())
    if not context.traceparent:
        return tracing.NO_SPAN
    attributes = {
        "messaging.system": broker_system,
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": policy.queue,
        "messaging.message.id": request.id,
        "skillbus.queue.seconds": round(waited_seconds, 6),
    }
    return tracing.trace(f"process {policy.name}", "consumer", [context], attributes)


def _log_context(policy: TaskPolicy, request: Any) -> dict[str, str]:
    """Return the fields of every log line of a task; the trace id is that of its event or query."""
    trace_id = getattr(request, TRACE_HEADER, None) or request.id
    return {"task": policy.name, "task_id": request.id, TRACE_HEADER: trace_id}
