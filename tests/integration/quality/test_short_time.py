"""Answers that are wanted sooner than all stages would take: what is left out first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from skills.bundle.model import Bundle
from skills.events import QueryAsked, SourceChanged
from tasks.policies import Deadline
from tasks.query.pipeline import answer_query
from tests.support.samples.library import TOPICS, write_topics
from tests.support.samples.tiny import settle, tiny_backend
from workers.backend.embedded import EmbeddedBackend
from workers.http.app import create_gateway

TASK = TOPICS["kiln-firing"]
WITHOUT_LINKS = "ranked without links: too little time was left"
BY_WORDS = "ranked by words only: too little time was left to encode the task"

SLOW = 1_000_000.0
"""Milliseconds that are more than any answer is wanted."""


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[EmbeddedBackend]:
    with tiny_backend(tmp_path / "home") as opened:
        root = write_topics(tmp_path / "crafts")
        opened.submit(SourceChanged(source_id="crafts", root=str(root)), "tests")
        settle(opened)
        yield opened


def answer(backend: EmbeddedBackend, took: Mapping[str, float], seconds: float = 600) -> Bundle:
    """The bundle after queries whose stages took so many milliseconds."""
    backend.services.stage_durations.record(took)
    request = QueryAsked(task=TASK)
    bundle, vector = answer_query(
        backend.services, Deadline(600), "q", request, wanted_seconds=seconds
    )
    assert (vector is None) is (BY_WORDS in bundle.degraded)
    return bundle


def test_with_time_enough_nothing_is_left_out(backend: EmbeddedBackend) -> None:
    bundle = answer(backend, {"encode": 1, "diffuse": 1, "choose": 1})
    assert bundle.degraded == ()
    assert {"encode", "diffuse"} <= bundle.timings_ms.keys()


def test_links_are_left_out_before_the_encoder(backend: EmbeddedBackend) -> None:
    bundle = answer(backend, {"diffuse": SLOW})
    assert bundle.degraded == (WITHOUT_LINKS,)
    assert "encode" in bundle.timings_ms
    assert bundle.skills[0].skill_id == "crafts:kiln-firing"


def test_without_time_for_the_encoder_words_decide(backend: EmbeddedBackend) -> None:
    bundle = answer(backend, {"encode": SLOW})
    assert bundle.degraded == (BY_WORDS,)
    assert bundle.skills[0].skill_id == "crafts:kiln-firing"


def test_what_always_follows_needs_its_time_too(backend: EmbeddedBackend) -> None:
    assert answer(backend, {"select_passages": SLOW}).degraded == (BY_WORDS, WITHOUT_LINKS)


def test_what_was_left_out_is_measured_again(backend: EmbeddedBackend) -> None:
    bundles = [answer(backend, {}) for _ in range(2)]
    backend.services.stage_durations.record({"diffuse": SLOW})
    bundles += [answer(backend, {}) for _ in range(3)]
    assert [bool(one.degraded) for one in bundles[2:]] == [True, False, False]


def test_the_gateway_says_how_long_the_answer_is_wanted(backend: EmbeddedBackend) -> None:
    for _ in range(9):
        backend.services.stage_durations.record({"diffuse": 300_000.0})

    async def ask(within: int) -> list[str]:
        transport = httpx.ASGITransport(create_gateway(backend))
        async with httpx.AsyncClient(transport=transport, base_url="http://skillbus") as client:
            parameters = {"answer_within_ms": within}
            answered = await client.post("/v1/queries", params=parameters, json={"task": TASK})
        return list(answered.json()["bundle"]["degraded"])

    assert asyncio.run(ask(200_000)) == [WITHOUT_LINKS]
    assert asyncio.run(ask(600_000)) == []
