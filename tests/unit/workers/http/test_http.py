"""Tokens, rate limits and waiting, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import stat
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import structlog
from fastapi.testclient import TestClient

from config.errors import (
    MisconfiguredError,
    NotFoundError,
    SkillbusError,
    TransientError,
    UsageError,
)
from config.settings import Settings
from skills.events import QueryAsked, new_event
from tasks.journal.sqlite import SqliteJournal
from workers.http import problems
from workers.http.access import AccessRules, _get_bucket_key
from workers.http.app import create_gateway
from workers.http.authentication import Caller, authenticate
from workers.http.limits import rate_limits
from workers.http.limits.rate_limits import FairSemaphore, RateLimiter
from workers.http.queries.job_waiter import JobWaiter
from workers.http.tokens import ANONYMOUS, TokenScope, TokenStore

INSIDE = "Neo4j at bolt://inside.example:7687"


@pytest.fixture
def tokens(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path / "tokens.json")


def test_a_token_is_found_by_its_secret_alone(tokens: TokenStore) -> None:
    assert (tokens.are_configured(), tokens.find("skb_x")) == (False, None)
    secret = tokens.add("ci", TokenScope.WRITE)
    other = tokens.add("agents", TokenScope.READ)
    found = tokens.find(secret)
    assert found is not None
    assert (found.name, found.granted_scope) == ("ci", TokenScope.WRITE)
    for wrong in ("", secret[:-1], secret + "x", secret.upper(), "\udcff", found.sha256):
        assert tokens.find(wrong) is None
    kept = tokens.path.read_text()
    assert secret not in kept
    assert other not in kept
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600


def test_changes_of_another_process_count_at_once(tokens: TokenStore) -> None:
    other = TokenStore(tokens.path)
    secret = other.add("ci", TokenScope.READ)
    assert tokens.find(secret) is not None
    other.revoke("ci")
    assert tokens.find(secret) is None
    assert tokens.are_configured()
    with pytest.raises(NotFoundError, match="'ci'"):
        tokens.revoke("ci")


def test_a_token_ends(tokens: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tokens.add("brief", TokenScope.READ, time.time() + 3600)
    assert tokens.find(secret) is not None
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 3601)
    assert tokens.find(secret) is None
    assert tokens.all()[0].is_expired(time.time())


@pytest.mark.parametrize("name", ["", "a b", "-x", "a/b", "x" * 65, "é", "a\n", "anonymous"])
def test_names_that_no_token_has(tokens: TokenStore, name: str) -> None:
    with pytest.raises(UsageError, match="name"):
        tokens.add(name, TokenScope.READ)
    assert not tokens.are_configured()


def test_a_name_is_taken_once_even_by_many(tokens: TokenStore) -> None:
    made: list[str] = []

    def add() -> None:
        with contextlib.suppress(UsageError):
            made.append(TokenStore(tokens.path).add("ci", TokenScope.READ))

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert tokens.find(made[0]) is not None


@pytest.mark.parametrize(
    "content", ["", "{", "{}", '[{"name": "x"}]', "\x00", json.dumps([["x"] * 5])]
)
def test_a_file_that_is_none_is_refused(tokens: TokenStore, content: str) -> None:
    tokens.path.write_text(content)
    tokens.path.chmod(0o600)
    with pytest.raises(MisconfiguredError, match="not a file of"):
        tokens.find("skb_x")


def test_a_file_that_others_can_read_is_refused(tokens: TokenStore) -> None:
    secret = tokens.add("ci", TokenScope.READ)
    tokens.path.chmod(0o640)
    tokens.path.write_text(tokens.path.read_text() + " ")
    with pytest.raises(MisconfiguredError, match="chmod 600"):
        tokens.find(secret)


def test_a_file_that_is_moved_away_admits_no_one(tokens: TokenStore) -> None:
    assert authenticate({}, tokens, allow_anonymous=True) == Caller(ANONYMOUS, TokenScope.READ)
    secret = tokens.add("ci", TokenScope.ADMIN)
    known = {"authorization": f"Bearer {secret}"}
    assert authenticate(known, tokens, allow_anonymous=True) == Caller("ci", TokenScope.ADMIN)
    tokens.path.rename(tokens.path.with_name("away"))
    assert authenticate({}, tokens, allow_anonymous=True) is None
    assert authenticate(known, tokens, allow_anonymous=True) is None


@pytest.mark.parametrize("target", ["nowhere", "tokens.json"])
def test_a_link_that_leads_nowhere_admits_no_one(tokens: TokenStore, target: str) -> None:
    tokens.path.symlink_to(tokens.path.with_name(target))
    assert authenticate({}, tokens, allow_anonymous=True) is None


def test_a_file_whose_mode_is_changed_is_looked_at_again(tokens: TokenStore) -> None:
    secret = tokens.add("ci", TokenScope.READ)
    assert tokens.find(secret) is not None
    tokens.path.chmod(0o644)
    with pytest.raises(MisconfiguredError, match="chmod 600"):
        tokens.find(secret)


FAILURES: dict[str, SkillbusError] = {
    "the catalog does not answer": TransientError(
        f"{INSIDE} did not answer", public_message="the catalog does not answer"
    ),
    "a setting of this deployment is wrong": MisconfiguredError(f"{INSIDE} refuses the login"),
}


def test_a_failed_server_is_named_in_the_log_and_to_the_local_user_alone(
    tokens: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = structlog.testing.CapturingLogger()
    monkeypatch.setattr(problems, "log", log)
    list_sources = Mock(side_effect=[one for one in FAILURES.values() for _ in ("remote", "own")])
    backend: Any = SimpleNamespace(
        settings=Settings(home=tmp_path),
        journal=None,
        graph_for=lambda reader: SimpleNamespace(list_sources=list_sources),
        skills=None,
    )
    headers = {"Authorization": f"Bearer {tokens.add('ci', TokenScope.ADMIN)}"}
    remote, own = (
        TestClient(create_gateway(backend, access), "http://skillbus", headers=headers)
        for access in (AccessRules(tokens), None)
    )

    def ask(client: TestClient) -> str:
        answer = client.get("/v1/sources")
        assert answer.status_code == 503
        return str(answer.json()["detail"])

    for number, shown in enumerate(FAILURES):
        detail = ask(remote)
        assert detail.startswith(shown)
        assert INSIDE not in detail
        assert [INSIDE in call.kwargs["reason"] for call in log.calls[2 * number :]] == [True]
        assert INSIDE in ask(own)


def test_a_bucket_empties_and_fills(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    buckets = RateLimiter(per_minute=60, burst=3)
    assert [buckets.acquire("a") for _ in range(3)] == [0, 0, 0]
    assert buckets.acquire("a") == pytest.approx(1.0)
    assert buckets.acquire("b") == 0
    now[0] += 1.5
    assert buckets.acquire("a") == 0
    assert buckets.acquire("a") == pytest.approx(0.5)
    now[0] += 1_000
    assert [buckets.acquire("a") for _ in range(4)][:3] == [0, 0, 0]


def test_any_number_of_names_have_a_bounded_number_of_buckets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(rate_limits, "MAX_BUCKETS", 100)
    buckets = RateLimiter(per_minute=60, burst=2)
    taken = [buckets.acquire(f"anonymous {number}") for number in range(200)]
    assert taken[:102] == [0] * 102
    assert all(taken[102:])  # they share what is left
    assert buckets.acquire("anonymous 7") == 0
    now[0] += 10
    assert [buckets.acquire(f"another {number}") for number in range(100)] == [0] * 100
    assert len(buckets._levels) <= 101


def test_who_has_no_token_shares_a_limit_with_the_own_address_alone() -> None:
    def bucket(host: str | None, name: str = ANONYMOUS, path: str = "/v1/sources") -> str:
        client = None if host is None else (host, 4711)
        state = {"caller": Caller(name, TokenScope.READ)}
        return _get_bucket_key({"client": client, "path": path, "state": state})

    assert bucket("192.0.2.1") != bucket("192.0.2.2")
    assert bucket("2001:db8::1") == bucket("2001:db8::ffff:1") != bucket("2001:db8:0:1::1")
    assert bucket(None) == bucket("") != bucket("192.0.2.1")
    assert bucket("192.0.2.1", "ci") == bucket("192.0.2.2", "ci") == "ci"
    hosts = {bucket("192.0.2.1", path=f"/v1/webhooks/{one}") for one in ("github", "gitlab")}
    assert len(hosts | {bucket("192.0.2.1")}) == 3
    unknown = [bucket("192.0.2.1", path="/v1/webhooks/" + "x" * n) for n in (20, 2_000)]
    assert unknown[0] == unknown[1]


def test_what_is_given_back_was_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    buckets = RateLimiter(per_minute=60, burst=2)
    for _ in range(9):
        assert buckets.acquire("a") == 0
        buckets.refund("a")
    buckets.refund("a")
    assert [buckets.acquire("a") for _ in range(3)] == [0, 0, pytest.approx(1.0)]


def test_half_of_the_room_is_for_others() -> None:
    async def run() -> None:
        slots = FairSemaphore(4)
        async with slots.slot("slow", 60), slots.slot("slow", 60):
            with pytest.raises(TimeoutError):
                async with slots.slot("slow", 0.02):
                    pytest.fail("there was room")
            async with slots.slot("a", 60), slots.slot("b", 60):
                waiting = asyncio.create_task(enter(slots, "c"))
                await asyncio.sleep(0.02)
                assert not waiting.done()
            assert await waiting

    async def enter(slots: FairSemaphore, name: str) -> bool:
        async with slots.slot(name, 60):
            return True

    asyncio.run(run())


def test_many_requests_wait_for_jobs_and_each_gets_its_own() -> None:
    journal = SqliteJournal(":memory:")
    events = [new_event(QueryAsked(task="x"), "skillbus/test") for _ in range(3)]
    for event in events:
        journal.add_job(event, "query", ttl_seconds=600)

    async def run() -> list[bool]:
        waiting = JobWaiter(journal)

        async def end() -> None:
            await asyncio.sleep(0.02)
            journal.finish_job(events[0].id, {})
            journal.cancel_job(events[1].id)

        results = await asyncio.gather(
            waiting.wait_until_ended(events[0].id, 60),
            waiting.wait_until_ended(events[0].id, 60),
            waiting.wait_until_ended(events[1].id, 60),
            waiting.wait_until_ended(events[2].id, 0.05),
            waiting.wait_until_ended("absent", 60),
            end(),
        )
        assert await waiting.wait_until_ended(events[0].id, 60)
        assert not await waiting.wait_until_ended(events[2].id, 0)
        return [bool(one) for one in results[:5]]

    assert asyncio.run(run()) == [True, True, True, False, True]
    journal.close()
