"""HTTP server of a metrics port: /metrics, /healthz and /readyz."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

import structlog
from typing_extensions import override

from config.errors import SkillbusError, UsageError
from config.settings import Settings
from tasks.metrics_recorder import MetricsRecorder, NullMetrics
from workers.monitoring.deployment_status import DeploymentStatus
from workers.monitoring.metrics import CONTENT_TYPE, MultiprocessMetrics
from workers.monitoring.status_gauges import Status, StatusGauges

log = structlog.get_logger()

_STATUS_TIMEOUT_SECONDS = 2.0
_CLIENT_TIMEOUT_SECONDS = 10.0
_JSON = "application/json"
_NOT_FOUND = b'{"detail": "not found; try /metrics, /healthz or /readyz"}\n'


class MetricsServer:
    """The server of `workers.metrics_port`: bound by the constructor, answers once started.

    render_metrics: returns the metrics in the Prometheus text format. not_ready_reasons: returns
    why the process is not ready, empty when it is. Raises UsageError if the address cannot be
    bound.
    """

    def __init__(
        self,
        settings: Settings,
        render_metrics: Callable[[], bytes],
        not_ready_reasons: Callable[[], list[str]],
    ) -> None:
        self._render_metrics = render_metrics
        self._not_ready_reasons = not_ready_reasons
        host, port = settings.workers.metrics_host, settings.workers.metrics_port
        self._server = _Server((host, port), self)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Answer requests in a thread."""
        self._server.server_activate()
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="skillbus-metrics", daemon=True
        )
        self._thread.start()
        log.info(
            "metrics server started", address=":".join(map(str, self._server.server_address[:2]))
        )

    def close_in_child(self) -> None:
        """Close the port in a child process; the parent keeps serving it."""
        self._server.socket.close()

    def stop(self) -> None:
        """Stop answering requests and close the port."""
        if self._thread is not None:
            self._server.shutdown()
        self._server.server_close()

    def respond(self, path: str) -> tuple[int, str, bytes]:
        """Return status code, content type and body of the response for a path."""
        if path == "/metrics":
            return 200, CONTENT_TYPE, self._render_metrics()
        if path == "/healthz":
            return 200, _JSON, b'{"alive": true}\n'
        if path == "/readyz":
            reasons = self._not_ready_reasons()
            body = {"ready": not reasons, "reasons": reasons}
            return (503 if reasons else 200), _JSON, json.dumps(body).encode() + b"\n"
        return 404, _JSON, _NOT_FOUND


class WorkerMetrics:
    """Metrics and metrics server of a worker; does nothing if `workers.metrics_port` is 0.

    Created in the parent before it forks; `recorder` records in parent and children.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stack = ExitStack()
        self._server: MetricsServer | None = None
        self._metrics: MultiprocessMetrics | None = None
        self.recorder: MetricsRecorder = NullMetrics()
        if settings.workers.metrics_port:
            self._metrics = MultiprocessMetrics()
            self._stack.callback(self._metrics.close)
            self.recorder = self._metrics.recorder

    def bind(self, app: Any) -> None:
        """Bind the port; raises UsageError. app: a Celery application on the broker."""
        metrics = self._metrics
        if metrics is None:
            return
        status = DeploymentStatus(self._settings, app)
        self._stack.callback(status.close)
        timeout_seconds = min(_STATUS_TIMEOUT_SECONDS, self._settings.servers.timeout_seconds)
        gauges = StatusGauges(lambda: status.get_status(timeout_seconds))
        try:
            status.prepare()
            self._server = MetricsServer(
                self._settings,
                lambda: metrics.render(gauges),
                lambda: not_ready_reasons(gauges.get_status(), metrics.count_ready_children()),
            )
        except SkillbusError:
            self.close()
            raise
        self._stack.callback(self._server.stop)

    def start(self) -> None:
        """Start the server."""
        if self._server is not None:
            self._server.start()

    def after_fork(self) -> None:
        """Close the parent's port in a child process."""
        if self._server is not None:
            self._server.close_in_child()

    def mark_child_ready(self) -> None:
        """Record that this child has loaded its models and stores."""
        if self._metrics is not None:
            self._metrics.mark_child_ready()

    def close(self) -> None:
        """Close the port and connections and delete the files."""
        self._stack.close()


def not_ready_reasons(status: Status, ready_children: int) -> list[str]:
    """Return why a worker is not ready: unreachable servers, or no child has loaded its models."""
    reasons = [str(one["problem"]) for one in status["servers"] if not one["up"]]
    if not ready_children:
        reasons.append(
            "no worker process has loaded its models and stores yet; see the worker's log"
        )
    return reasons


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], metrics_server: MetricsServer) -> None:
        self.metrics_server = metrics_server
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler, bind_and_activate=False)
        try:
            self.server_bind()
        except (OSError, OverflowError) as error:
            self.server_close()
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"workers.metrics_port: {address[0]}:{address[1]}: {reason}; choose another port "
                "(each worker of a machine needs its own)"
            ) from None

    def server_bind(self) -> None:
        """Bind without the DNS lookup of the host name that the base class makes."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error, such as a client that has gone; the base class prints its traceback."""
        log.warning("metrics request failed", reason=repr(sys.exc_info()[1]))


class _Handler(BaseHTTPRequestHandler):
    timeout = _CLIENT_TIMEOUT_SECONDS
    server: _Server

    def do_GET(self) -> None:
        """Answer a request."""
        status, kind, body = self.server.metrics_server.respond(self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Return the value of the `Server` header."""
        return "skillbus"

    def log_message(self, format: str, *args: Any) -> None:
        """Log a request at debug level: probes come every few seconds."""
        log.debug("http request", request=format % args)
