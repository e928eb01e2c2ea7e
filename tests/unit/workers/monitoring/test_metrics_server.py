"""The HTTP server of a metrics port."""

from __future__ import annotations

import http.client

import pytest

from config.settings import Settings
from deploy.stack.ports import free_port
from workers.monitoring.metrics_server import MetricsServer


def test_a_failed_request_prints_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(workers={"metrics_port": free_port()})
    server = MetricsServer(settings, lambda: bytes(1 // 0), list)
    server.start()
    try:
        client = http.client.HTTPConnection("127.0.0.1", settings.workers.metrics_port, timeout=60)
        client.request("GET", "/metrics")
        with pytest.raises(http.client.RemoteDisconnected):
            client.getresponse()
        client.close()
    finally:
        server.stop()
    printed = "".join(capsys.readouterr())
    assert "ZeroDivisionError" in printed
    assert "Traceback" not in printed
