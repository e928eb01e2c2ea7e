"""Logs: JSON lines off a terminal, levels, and libraries kept quiet."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator

import pytest
import structlog

from config.logging import configure_logging


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    logging.captureWarnings(False)
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_own_logs_are_json_lines_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    structlog.get_logger().info("synced", skills=3, name="中文")
    [line] = lines(capsys)
    assert line["event"] == "synced"
    assert line["level"] == "info"
    assert line["skills"] == 3
    assert line["name"] == "中文"
    assert str(line["timestamp"]).endswith("Z")


def test_below_the_level_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("warning")
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")
    assert [line["event"] for line in lines(capsys)] == ["loud"]


def test_libraries_stay_at_warning_unless_debug(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    logging.getLogger("some.library").info("chatter")
    logging.getLogger("some.library").warning("trouble")
    assert [line["event"] for line in lines(capsys)] == ["trouble"]
    configure_logging("debug")
    logging.getLogger("some.library").debug("chatter")
    assert [line["event"] for line in lines(capsys)] == ["chatter"]


def test_a_warning_of_python_is_a_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        configure_logging("info")
        warnings.warn("old use", DeprecationWarning, stacklevel=1)
    [line] = lines(capsys)
    assert "DeprecationWarning: old use" in str(line["event"])
    assert line["level"] == "warning"


def test_bound_context_is_on_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    with structlog.contextvars.bound_contextvars(task="skillbus.plan"):
        structlog.get_logger().info("one")
        logging.getLogger("library").warning("two")
    assert [line.get("task") for line in lines(capsys)] == ["skillbus.plan"] * 2


def test_an_exception_is_written_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("error")
    try:
        raise ValueError("bad value")
    except ValueError:
        structlog.get_logger().exception("failed")
    [line] = lines(capsys)
    assert "ValueError: bad value" in str(line["exception"])
