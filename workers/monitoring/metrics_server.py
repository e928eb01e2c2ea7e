"""What a process answers on its metrics port: figures, whether it lives, whether it is ready."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

import structlog

from config.errors import SkillbusError, UsageError
from config.settings import Settings
from tasks.metrics_recorder import MetricsRecorder, NullMetrics
from workers.monitoring.deployment_status import DeploymentStatus
from workers.monitoring.metrics import (
    CONTENT_TYPE,
    STATUS_CACHE_SECONDS,
    MultiprocessMetrics,
    Status,
    StatusGauges,
)

log = structlog.get_logger()

_STATUS_TIMEOUT_SECONDS = 2.0
_CLIENT_SECONDS = 10.0
_JSON = "application/json"


class MetricsServer:
    """`workers.metrics_port`. Bound when made, answers once started.

    figures: the metrics in Prometheus's text format. not_ready_reasons: why the process is not
    ready. Raises UsageError when the address cannot be bound.
    """

    def __init__(
        self,
        settings: Settings,
        render_metrics: Callable[[], bytes],
        not_ready_reasons: Callable[[], list[str]],
    ) -> None:
        self._metrics = render_metrics
        self._not_ready_reasons = not_ready_reasons
        host, port = settings.workers.metrics_host, settings.workers.metrics_port
        self._server = _Server((host, port), self)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Answer, in a thread."""
        self._server.server_activate()
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="skillbus-metrics", daemon=True
        )
        self._thread.start()
        log.info("metrics", address=":".join(map(str, self._server.server_address[:2])))

    def close_in_child(self) -> None:
        """In a child: let go of the port, which is the parent's."""
        self._server.socket.close()

    def stop(self) -> None:
        """Stop answering."""
        if self._thread is not None:
            self._server.shutdown()
        self._server.server_close()

    def respond(self, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body for a path."""
        if path == "/metrics":
            return 200, CONTENT_TYPE, self._metrics()
        if path == "/healthz":
            return 200, _JSON, b'{"alive": true}\n'
        if path == "/readyz":
            reasons = self._not_ready_reasons()
            body = {"ready": not reasons, "reasons": reasons}
            return (503 if reasons else 200), _JSON, json.dumps(body).encode() + b"\n"
        return 404, _JSON, b'{"detail": "there are /metrics, /healthz and /readyz"}\n'


class WorkerMetricsServer:
    """The port of a worker's parent. Bound before the parent forks, served after."""

    def __init__(self, settings: Settings, app: Any, process_metrics: MultiprocessMetrics) -> None:
        deployment_status = DeploymentStatus(settings, app)
        deployment_status.prepare()
        timeout_seconds = min(_STATUS_TIMEOUT_SECONDS, settings.servers.timeout_seconds)
        gauges = StatusGauges(
            lambda: deployment_status.get_status(timeout_seconds), STATUS_CACHE_SECONDS
        )
        self._deployment_status = deployment_status
        self._port = MetricsServer(
            settings,
            lambda: process_metrics.render(gauges),
            lambda: not_ready_reasons(gauges.get_status(), process_metrics.count_ready_children()),
        )
        self.start, self.close_in_child = self._port.start, self._port.close_in_child

    def stop(self) -> None:
        """Stop answering."""
        self._port.stop()
        self._deployment_status.close()


class WorkerMetrics:
    """What a worker tells of itself: nothing where workers.metrics_port is 0.

    Made in the parent before it forks; `measures` serves parent and children alike.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._metrics = MultiprocessMetrics() if settings.workers.metrics_port else None
        self._server: WorkerMetricsServer | None = None
        self.measures: MetricsRecorder = self._metrics.measures if self._metrics else NullMetrics()

    def bind(self, app: Any) -> None:
        """Take the port; app: whose broker is asked for its queues. Raises UsageError."""
        if self._metrics is None:
            return
        try:
            self._server = WorkerMetricsServer(self._settings, app, self._metrics)
        except SkillbusError:
            self.close()
            raise

    def start(self) -> None:
        """Answer on the port."""
        if self._server is not None:
            self._server.start()

    def after_fork(self) -> None:
        """Let go of what is the parent's."""
        if self._server is not None:
            self._server.close_in_child()

    def mark_child_ready(self) -> None:
        """This child has its services."""
        if self._metrics is not None:
            self._metrics.mark_child_ready()

    def close(self) -> None:
        """Release port, connections and files."""
        if self._server is not None:
            self._server.stop()
        if self._metrics is not None:
            self._metrics.close()


def not_ready_reasons(report: Status, children: int) -> list[str]:
    """Why a worker does not do its work now: servers that are away, children without services."""
    reasons = [str(one["problem"]) for one in report["servers"] if not one["up"]]
    if not children:
        reasons.append("no child has loaded what its tasks need yet; the worker's log says more")
    return reasons


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], port: MetricsServer) -> None:
        self.port = port
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler, bind_and_activate=False)
        try:
            self.server_bind()
        except (OSError, OverflowError) as error:
            self.server_close()
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"workers.metrics_port: {address[0]}:{address[1]}: {reason}; choose another port "
                "(workers of one machine take a port each)"
            ) from None

    def server_bind(self) -> None:
        """Bind, without asking a name server for our name as the base class does."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    timeout = _CLIENT_SECONDS
    server: _Server

    def do_GET(self) -> None:
        """Answer one question."""
        status, kind, body = self.server.port.respond(self.path.partition("?")[0])
        self.send_response(status)
        for name, value in self._headers(kind, body).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _headers(self, kind: str, body: bytes) -> Mapping[str, str]:
        return {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store"}

    def version_string(self) -> str:
        """What the `Server` header says."""
        return "skillbus"

    def log_message(self, format: str, *args: Any) -> None:
        """Probes come every few seconds: they are logged at debug only."""
        log.debug("asked", request=format % args)
