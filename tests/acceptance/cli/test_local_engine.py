"""The commands with a language model on llama.cpp's server, as on a user's own machine.

The model's weights are random: its answers have the right form and mean nothing. What is proven is
that nothing fails, that what does not fit the request is dropped, and that tokens are counted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.program.program import ForkServer, Skillbus
from tests.support.samples.library import write_topics

MODEL = "skillbus-tiny"
TASK = "fire stoneware in an electric kiln"


@pytest.fixture
def library(
    fork_server: ForkServer,
    tmp_path: Path,
    language_model_url: str,
    language_model_password_file: Path,
) -> Skillbus:
    """Ten synced skills and the settings of the model."""
    named = {
        "base_url": language_model_url,
        "model": MODEL,
        "api_key_file": str(language_model_password_file),
        "stages": '["roles", "judge", "rewrite", "select"]',
        "query_milliseconds": "60000",
    }
    environment = {f"SKILLBUS_LANGUAGE_MODEL__{name.upper()}": named[name] for name in named}
    skillbus = Skillbus(fork_server, tmp_path / "home", **environment)
    skillbus("sync", str(write_topics(tmp_path / "crafts")))
    return skillbus


def test_doctor_says_what_the_endpoint_can_do(library: Skillbus, language_model_url: str) -> None:
    checks = {row["check"]: row for row in library("doctor", "--json").data}
    row = checks["language model"]
    assert row["state"] == "ok"
    for words in (f"{MODEL} at {language_model_url}", "enforces schemas", "counts tokens"):
        assert words in row["detail"]


def test_a_query_is_answered_whatever_the_model_says(library: Skillbus) -> None:
    plain = library(
        "query", TASK, "--without", "select", "--without", "rewrite", "--format", "json"
    )
    result = library("query", TASK, "--explain", "--format", "json")
    assert plain.data["status"] == result.data["status"] == "SKILL_HIT"
    assert result.data["skills"]
    asked = result.data["explain"]["language_model"]
    assert {"rewrite", "select"} <= set(asked)
    usage = library("status", "--json").data["language_model"]["usage"]
    for stage in ("rewrite", "select"):
        assert 1 <= usage[stage]["calls"] <= 3
        assert usage[stage]["prompt_tokens"] > 100
        assert usage[stage]["completion_tokens"] > 0


def test_a_library_is_refined_and_its_price_is_read(library: Skillbus) -> None:
    estimate = library("refine", "--estimate", "--json").data["stages"]
    report = library("refine", "--json").data["stages"]
    for stage in ("roles", "judge"):
        assert report[stage]["refined"] == estimate[stage]["skills"]
    usage = library("status", "--json").data["language_model"]["usage"]
    for stage, expected in estimate.items():
        if expected["calls"]:
            assert expected["calls"] <= usage[stage]["calls"] <= 3 * expected["calls"]
            assert usage[stage]["prompt_tokens"] > 0
    again = library("refine", "--estimate", "--json").data["stages"]
    assert all(stage["calls"] == 0 for stage in again.values())
