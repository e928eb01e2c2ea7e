"""Refinement by workers: killed again and again, it loses nothing and pays for no answer twice."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.program.program import wait_for
from tests.support.samples.refining import give_roles, model_environment, write_skill
from tests.support.servers.distributed import Deployments, Distributed, deployments
from tests.support.servers.language_model import LanguageModelServer, stalling

__all__ = ["deployments"]

SKILLS = 20
KILLS = 4


@pytest.fixture(scope="module")
def server() -> Iterator[LanguageModelServer]:
    with LanguageModelServer(give_roles("precondition")) as started:
        yield started


@pytest.fixture(scope="module")
def running(
    deployments: Deployments, server: LanguageModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Distributed]:
    """Workers of everything but refinement, and some skills that are searchable."""
    root = tmp_path_factory.mktemp("refine") / "skills"
    for number in range(SKILLS):
        write_skill(root, f"winch-{number}")
    made = deployments(**model_environment(server.url))
    made.launch("link", queues="link,maintain,embed_skills,embed_sections")
    made.start("query", "ingest")
    made.skillbus("sync", str(root), "--source", "made", "--until", "searchable")
    yield made
    made.stop()


def refinement(running: Distributed) -> dict[str, Any]:
    found: dict[str, Any] = running.skillbus("status", "--json").data["language_model"]
    refined: dict[str, Any] = found["refinement"]
    return refined


@pytest.mark.timeout(1200)
def test_killed_workers_lose_nothing_and_pay_for_no_stored_answer_twice(
    running: Distributed, server: LanguageModelServer
) -> None:
    assert running.skillbus.chosen("turn the winch for the harbour", "--without", "floor")
    assert refinement(running)["stages"]["roles"] == {"refined": 0, "waiting": 20, "invalid": 0}
    assert refinement(running)["running"]
    give = give_roles("precondition")
    server.script = lambda asked: stalling(0.3, give(asked))
    for _ in range(KILLS):
        before = server.requests
        running.launch("refine", SKILLBUS_WORKERS__RECONCILE_SECONDS="1")
        wait_for(lambda before=before: server.requests >= before + 3, 150)  # type: ignore[misc]  # mypy cannot infer it
        time.sleep(0.1)
        running.kill("refine")
    running.start("refine", SKILLBUS_WORKERS__RECONCILE_SECONDS="1")
    running.skillbus("refine", "--json")
    assert refinement(running)["stages"]["roles"] == {"refined": 20, "waiting": 0, "invalid": 0}
    server.settle()
    asked = Counter(one.data for one in server.asked)
    assert len(asked) == SKILLS
    # Only what was under way at a kill is asked again: up to four calls each time.
    assert sum(asked.values()) <= SKILLS + 4 * KILLS
    roles = running.skillbus("skills", "show", "made:winch-3", "--json").data["passages"]
    assert {passage["role"] for passage in roles} == {"precondition"}
