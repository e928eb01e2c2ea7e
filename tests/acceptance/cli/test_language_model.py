"""`skillbus query` with a language model on loopback: select, rewrite, failures and the price."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.program.program import ForkServer, Skillbus
from tests.support.samples.refining import model_environment
from tests.support.servers.language_model import Asked, LanguageModelServer, stalling

TASK = "turn the windlass and moor the ship at a bollard"
TEXTS = {
    "capstan": "Turns a capstan to weigh the anchor of a ship",
    "windlass": "Turns a windlass to weigh the anchor of a ship",
    "bollard": "Moors a ship at a bollard with a hawser",
    "hawser": "Splices a hawser and moors a ship at the quay",
}


def numbers_in(asked: Asked) -> dict[str, int]:
    found = re.findall(r'^\[(\d+)\] "(\w+)"', asked.data, re.MULTILINE)
    return {name: int(number) for number, name in found}


def select_hawser(asked: Asked) -> dict[str, Any]:
    """A model that wants the skill which search ranks last, and rewrites to one query."""
    if "candidates:" not in asked.data:
        queries = ["splice a hawser"]
        return {
            "goal": "moor",
            "operations": [],
            "artifacts": [],
            "constraints": [],
            "queries": queries,
        }
    numbers = numbers_in(asked)
    pick = {"id": numbers.pop("hawser"), "relevancy": 9, "specificity": 6}
    return {
        "needed": [pick],
        "alternatives": [],
        "useful": [],
        "order": [pick["id"]],
        "conflicts": [],
        "rejected": [{"reason": "wrong_step", "ids": list(numbers.values())}],
        "complete": True,
    }


@pytest.fixture
def server() -> Iterator[LanguageModelServer]:
    with LanguageModelServer(select_hawser) as started:
        yield started


@pytest.fixture(scope="module")
def synced(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Skillbus:
    """A synced library of four skills, without a model."""
    base = tmp_path_factory.mktemp("synced")
    for name, text in TEXTS.items():
        folder = base / "skills" / name
        folder.mkdir(parents=True)
        header = f"---\nname: {name}\ndescription: {text}\n---\n"
        (folder / "SKILL.md").write_text(f"{header}# {name}\n\n1. {text}.\n", encoding="utf-8")
    skillbus = Skillbus(fork_server, base / "home")
    skillbus("sync", str(base / "skills"), "--source", "port")
    return skillbus


@pytest.fixture
def library(synced: Skillbus, tmp_path: Path) -> Skillbus:
    """A copy of it."""
    return synced.copy(tmp_path / "home")


def with_model(library: Skillbus, server: LanguageModelServer, **settings: str) -> Skillbus:
    given = {"stages": '["select"]'} | settings
    return library.with_environment(**model_environment(server.url, **given))


def test_what_the_model_selects_is_sent(library: Skillbus, server: LanguageModelServer) -> None:
    assert library.chosen(TASK)[0] != "port:hawser"
    assert with_model(library, server).chosen(TASK) == ["port:hawser"]
    assert server.requests == 1
    assert library.chosen(TASK)[0] != "port:hawser"


def test_the_same_question_is_paid_once(library: Skillbus, server: LanguageModelServer) -> None:
    skillbus = with_model(library, server)
    first = skillbus("query", TASK, "--explain")
    assert "select: answered; 1 call, " in first.out
    again = skillbus("query", TASK, "--explain")
    assert "select: answered from the store; needed port:hawser" in again.out
    assert server.requests == 1
    used = skillbus("status", "--json").data["language_model"]["usage"]["select"]
    assert used["calls"] == 1
    assert used["stored"] == 1


def test_both_stages_of_a_query(library: Skillbus, server: LanguageModelServer) -> None:
    skillbus = with_model(library, server, stages='["rewrite", "select"]')
    options = ("--explain", "--why", "port:hawser", "--format", "json")
    explain = skillbus("query", TASK, *options).data["explain"]
    (asked,) = explain["skills"]
    stages = "score, rewrite, rerank, diffuse, policy and session, select"
    assert ", ".join(asked["ranks"]) == stages
    assert explain["language_model"]["rewrite"]["queries"] == ["splice a hawser"]
    assert explain["language_model"]["select"]["needed"] == ["port:hawser"]
    assert server.requests == 2
    assert skillbus.chosen(TASK, "--without", "select")[0] != "port:hawser"


def test_a_stalled_endpoint_costs_its_milliseconds_and_no_answer(
    library: Skillbus, server: LanguageModelServer
) -> None:
    server.queue.append(stalling())
    skillbus = with_model(library, server, query_milliseconds="700")
    bundle = skillbus("query", TASK, "--format", "json", "--explain").data
    assert bundle["status"] == "SKILL_HIT"
    assert bundle["degraded"] == ["select was skipped: the language model did not answer in time"]
    assert bundle["timings_ms"]["select"] >= 650


def test_a_dead_endpoint_is_named_in_no_answer(library: Skillbus) -> None:
    with LanguageModelServer(select_hawser) as server:
        skillbus = with_model(library, server)
    result = skillbus("query", TASK, "--format", "json")
    assert result.data["skills"]
    assert "127.0.0.1" not in result.out
    assert "did not answer" in result.data["degraded"][0]


def test_spent_tokens_stop_the_model_and_say_so(
    library: Skillbus, server: LanguageModelServer
) -> None:
    skillbus = with_model(library, server, daily_tokens="1")
    bundle = skillbus("query", TASK, "--format", "json").data
    assert bundle["skills"]
    assert bundle["degraded"] == [
        "select was skipped: today's tokens for the language model are spent"
    ]
    assert server.requests == 0


def test_half_a_setting_is_an_error(library: Skillbus) -> None:
    one = library.with_environment(SKILLBUS_LANGUAGE_MODEL__BASE_URL="http://127.0.0.1:9/v1")
    assert "base_url and model together" in one("query", TASK, code=2).err
