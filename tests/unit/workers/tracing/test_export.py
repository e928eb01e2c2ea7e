"""The export of spans: headers, a collector that is down or refuses, and lost spans."""

from __future__ import annotations

import importlib
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from config import tracing
from config.errors import MisconfiguredError
from config.tracing_settings import TracingSettings
from tasks.metrics_recorder import NullMetrics, SpanOutcome
from tests.support.program.secrecy import made_up
from tests.support.servers.collector import Collector
from workers.tracing.start import check_tracing, start_tracing
from workers.tracing.start import tracing as started

KEY = made_up("of a collector")


class CountedSpans(NullMetrics):
    """Counts spans by outcome."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {"exported": 0, "dropped": 0}

    def record_spans(self, outcome: SpanOutcome, count: int) -> None:
        self.counts[outcome] += count


def make_spans(count: int) -> None:
    for _ in range(count):
        with tracing.trace("request", "server"):
            pass


def test_spans_are_sent_with_the_headers_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text(f"Authorization: Bearer {KEY}\nx-team:  crafts \n")
    metrics = CountedSpans()
    with Collector() as collector:
        settings = collector.settings(headers_file=file, service_name="crafts")
        with started(settings, metrics):
            make_spans(3)
    assert metrics.counts == {"exported": 3, "dropped": 0}
    (headers,) = collector.headers
    assert (headers["authorization"], headers["x-team"]) == (f"Bearer {KEY}", "crafts")
    assert headers["content-type"] == "application/x-protobuf"
    resource = collector.spans[0].resource
    assert resource["service.name"] == "crafts"
    assert resource["service.version"]
    assert ":" in resource["service.instance.id"]


def test_variables_of_opentelemetry_do_not_change_whether_and_where_spans_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-key={KEY}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", f"x-key={KEY}")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "another")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=trial")
    with started(TracingSettings()):
        assert not tracing.is_tracing()
    with Collector() as collector, started(collector.settings()):
        make_spans(1)
    # The block of the collector ends after that of tracing.
    assert "x-key" not in collector.headers[0]
    assert collector.spans[0].resource["service.name"] == "skillbus"
    assert collector.spans[0].resource["deployment.environment.name"] == "trial"


@pytest.mark.parametrize(
    ("text", "line"), [("Bearer x", 1), ("a: 1\nb c: 2", 2), ("a:", 1), ("a: é", 1)]
)
def test_a_file_of_headers_that_is_none(tmp_path: Path, text: str, line: int) -> None:
    file = tmp_path / "headers"
    file.write_text(text)
    settings = TracingSettings(endpoint="http://127.0.0.1:9", headers_file=file)
    for start in (check_tracing, start_tracing):
        with pytest.raises(MisconfiguredError, match=f"headers_file: line {line} of") as caught:
            start(settings)
        assert text.splitlines()[line - 1] not in str(caught.value), "it may be a secret"
    assert not tracing.is_tracing()


def test_files_that_are_missing(tmp_path: Path) -> None:
    endpoint = "https://127.0.0.1:9"
    with pytest.raises(MisconfiguredError, match=r"tracing\.headers_file"):
        start_tracing(TracingSettings(endpoint=endpoint, headers_file=tmp_path / "none"))
    with pytest.raises(MisconfiguredError, match=r"tracing\.ca_file"):
        start_tracing(TracingSettings(endpoint=endpoint, ca_file=tmp_path / "none"))


def test_a_missing_package_is_named_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_sdk(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", without_sdk)
    with pytest.raises(MisconfiguredError, match=r"pip install '\.\[tracing\]'"):
        start_tracing(TracingSettings(endpoint="http://127.0.0.1:9"))
    start_tracing(TracingSettings())()


# -- lost spans
def test_a_collector_that_is_down_delays_nothing() -> None:
    with capture_logs() as lines, socket.socket() as hanging:  # takes connections and never answers
        hanging.bind(("127.0.0.1", 0))
        hanging.listen()
        endpoint = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        metrics = CountedSpans()
        settings = TracingSettings(
            endpoint=endpoint,
            export_milliseconds=100,
            queue_spans=512,
            timeout_seconds=600,
            stop_seconds=0.2,
        )
        with started(settings, metrics):
            make_spans(2_000)
            assert metrics.counts["dropped"] >= 2_000 - 2 * 512
            began = time.monotonic()
        assert time.monotonic() - began < 300, "it does not wait for the export"
    assert metrics.counts == {"exported": 0, "dropped": 2_000}
    assert {line["event"] for line in lines} == {"spans are lost"}
    assert len(lines) <= 3, "once per reason"


def test_a_collector_that_refuses_is_noted_until_it_takes_them_again() -> None:
    metrics = CountedSpans()
    with (
        capture_logs() as lines,
        Collector(status=401) as collector,
        started(collector.settings(), metrics),
    ):
        for total in (1, 2):
            make_spans(1)
            _wait(metrics, "dropped", total)
        collector.status = 200
        make_spans(1)
        _wait(metrics, "exported", 1)
    assert [line["event"] for line in lines] == ["spans are lost", "spans are exported again"]
    assert "does not take" in lines[0]["reason"]
    assert metrics.counts == {"exported": 1, "dropped": 2}


def _wait(metrics: CountedSpans, outcome: str, count: int) -> None:
    end = time.monotonic() + 60
    while metrics.counts[outcome] < count:
        assert time.monotonic() < end
        time.sleep(0.01)
