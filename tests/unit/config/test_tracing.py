"""Trace contexts of callers, and spans where there is no tracer."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from config import tracing
from config.tracing import NO_CONTEXT, TraceContext, parse_context
from config.tracing_settings import TracingSettings
from tests.support.servers.collector import PARENT, TRACE, TRACEPARENT


def test_a_valid_context_is_kept() -> None:
    assert parse_context(TRACEPARENT, "vendor=1") == TraceContext(TRACEPARENT, "vendor=1")
    assert parse_context(TRACEPARENT).trace_id == TRACE
    later = f"cc-{TRACE}-{PARENT}-01-what-later-versions-add"
    assert parse_context(later) == TraceContext(TRACEPARENT), "what version 00 knows of it"


@pytest.mark.parametrize(
    "parent",
    [
        None,
        7,
        "",
        TRACE,
        TRACEPARENT.upper(),
        TRACEPARENT[:-1],
        TRACEPARENT + "-more",
        TRACEPARENT + "\n",
        " " + TRACEPARENT,
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}g-{PARENT}-01",
        f"cc-{TRACE}-{PARENT}-01\nforged",
    ],
)
def test_a_malformed_parent_is_none(parent: object) -> None:
    assert parse_context(parent, "vendor=1") == NO_CONTEXT


@pytest.mark.parametrize("state", ["a=" + "x" * 511, "a=é", "a=1\r\nforged: yes", 7, None, ""])
def test_a_bad_state_does_not_cost_the_parent(state: object) -> None:
    assert parse_context(TRACEPARENT, state) == TraceContext(TRACEPARENT)


def test_without_a_tracer_nothing_happens() -> None:
    assert not tracing.is_tracing()
    with tracing.trace("request", "server", [TraceContext(TRACEPARENT)]) as opened:
        opened.rename("other")
        opened.set_attributes({"a": 1})
        opened.fail("500")
        assert opened.trace_id == ""
        with tracing.span("stage") as stage:
            assert stage is opened
        with tracing.resume(TraceContext(TRACEPARENT)):
            assert tracing.current_context() == tracing.parent_context() == NO_CONTEXT
        tracing.add_event("retry")
    with pytest.raises(KeyError), tracing.span("stage"):
        raise KeyError("errors pass")


@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        ("collector:4318", "write http://HOST:PORT"),
        ("ftp://collector", "write http://HOST:PORT"),
        ("http://", "write http://HOST:PORT"),
        ("http://me:secret@collector:x", "'http://me@collector:x': write http://HOST:PORT"),
        ("http://me:sec/ret@collector", "'http://me@collector': write http://HOST:PORT"),
        ("http://me:secret@collector", "headers_file"),
        ("http://collector/?a=1", "leave out"),
    ],
)
def test_endpoints_that_are_refused(endpoint: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        TracingSettings(endpoint=endpoint)


@pytest.mark.parametrize("ratio", [-0.1, 1.1, "most"])
def test_ratios_that_are_refused(ratio: object) -> None:
    with pytest.raises(ValidationError):
        TracingSettings.model_validate({"sample_ratio": ratio})
