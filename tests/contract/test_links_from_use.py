"""Links from use in both deployments: the same links, and none once the outcomes are gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from config.learning_settings import LearningSettings
from config.server_settings import ServerSettings
from graph.links.linker import Linker
from graph.local.store import SqliteSkillGraph
from graph.protocol import SkillGraph
from graph.records import DismissedLink, Link, LinkType
from skills.outcomes.model import AnsweredQuery, Outcome, OutcomeKind, Reporter
from tasks.broker.redis_connection import connect
from tasks.outcomes.links.links_from_use import LinksFromUse
from tasks.outcomes.links.mark_changed import has_unread_outcomes, mark_for_outcomes
from tasks.outcomes.protocol import OutcomeStore
from tasks.outcomes.redis import RedisOutcomeStore
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tests.contract.test_skill_graph import publication
from tests.support.samples.catalog import catalog_settings, empty_catalog, open_catalog
from tests.support.servers.redis_database import redis_settings

__all__ = ["redis_settings"]

ALIKE = {1: 0.8, 2: 0.6}


@pytest.fixture(params=["embedded", "distributed"])
def stores(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[SkillGraph, OutcomeStore]]:
    graph: SkillGraph
    outcomes: OutcomeStore
    if request.param == "embedded":
        graph = SqliteSkillGraph(tmp_path / "graph.db", writable=True)
        outcomes = SqliteOutcomeStore(tmp_path / "outcomes.db")
    else:
        url = request.getfixturevalue("neo4j_url")
        servers = catalog_settings(url, request.getfixturevalue("neo4j_password_file"))
        open_catalog(servers).close()
        empty_catalog(servers)
        graph = open_catalog(servers)
        redis: ServerSettings = request.getfixturevalue("redis_settings")
        outcomes = RedisOutcomeStore(connect(redis, binary=True), redis)
    yield graph, outcomes
    graph.close()
    outcomes.close()


def report(outcomes: OutcomeStore, number: int, said: dict[str, OutcomeKind]) -> None:
    query_id = f"q{number}"
    outcomes.add_answers([AnsweredQuery(query_id, "", "", "a task", 1e9 + number, hit=True)])
    outcomes.add_outcomes(
        [
            Outcome(
                f"{query_id}-{place}",
                query_id,
                f"lib:{name}",
                kind,
                Reporter.PERSON,
                "",
                1e9 + number,
                "wrong_step" if kind is OutcomeKind.REJECTED else "",
                place=place,
            )
            for place, (name, kind) in enumerate(said.items(), 1)
        ]
    )


def link(services: Any) -> set[Link]:
    """Link until no skill is marked; all links."""
    for _ in range(20):
        mark_for_outcomes(services)
        marks = services.graph.list_awaiting_linking(100)
        if not marks:
            assert not has_unread_outcomes(services)
            ids = [entry.skill_id for entry in services.graph.get_entries() if entry.seq]
            owned = services.graph.get_owned_links(ids)
            return {one for links in owned.values() for one in links}
        services.linker.relink(marks)
    raise AssertionError("skills are marked again and again")


def test_from_outcomes_to_links_and_back(stores: tuple[SkillGraph, OutcomeStore]) -> None:
    graph, outcomes = stores
    learned = LinksFromUse(outcomes, graph, LearningSettings())
    linker = Linker(graph, learned_links=learned)
    services = cast(
        Any,
        SimpleNamespace(graph=graph, outcomes=outcomes, learned_links=learned, linker=linker),
    )
    graph.publish(
        [
            publication(name, seq, body_terms=ALIKE, description_terms={seq: 1.0})
            for seq, name in enumerate("abc", 1)
        ]
    )
    plain = link(services)
    helped, rejected = OutcomeKind.HELPED, OutcomeKind.REJECTED
    report(outcomes, 1, {"a": helped, "b": helped, "c": rejected})
    assert has_unread_outcomes(services)
    found = link(services)
    together = {one.ends: one.weight for one in found if one.type is LinkType.USED_TOGETHER}
    assert together == {("lib:a", "lib:b"): 0.5, ("lib:b", "lib:a"): 0.5}
    adapted = {one.ends for one in found if one.evidence.startswith("outcomes x0.67 (rejected")}
    assert adapted == {
        ("lib:a", "lib:c"), ("lib:c", "lib:a"), ("lib:b", "lib:c"), ("lib:c", "lib:b")
    }  # fmt: skip
    graph.dismiss_link(DismissedLink("lib:a", "lib:b", LinkType.USED_TOGETHER, "wrong", 1.0))
    report(outcomes, 2, {"a": helped, "b": helped})
    assert not [one for one in link(services) if one.type is LinkType.USED_TOGETHER]
    outcomes.forget_owner("")
    assert link(services) == plain
