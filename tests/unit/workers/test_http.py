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

import httpx
import pytest

from config.errors import NotFoundError, SetupError, UsageError
from config.settings import Settings
from skills.events import QueryAsked, new_event
from tasks.journal.sqlite import SqliteJournal
from workers.http import limits
from workers.http.access import Access, Caller, _bucket_of, identify
from workers.http.app import create_gateway
from workers.http.limits import Buckets, Room
from workers.http.tokens import ANONYMOUS, Scope, Tokens
from workers.http.waiting import Waiting


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "tokens.json")


def test_a_token_is_found_by_its_secret_alone(tokens: Tokens) -> None:
    assert (tokens.exist(), tokens.find("skb_x")) == (False, None)
    secret = tokens.add("ci", Scope.WRITE)
    other = tokens.add("agents", Scope.READ)
    found = tokens.find(secret)
    assert found is not None
    assert (found.name, found.allows) == ("ci", Scope.WRITE)
    for wrong in ("", secret[:-1], secret + "x", secret.upper(), "\udcff", found.sha256):
        assert tokens.find(wrong) is None
    kept = tokens.path.read_text()
    assert secret not in kept
    assert other not in kept
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600


def test_another_process_is_heard_at_once(tokens: Tokens) -> None:
    other = Tokens(tokens.path)
    secret = other.add("ci", Scope.READ)
    assert tokens.find(secret) is not None
    other.revoke("ci")
    assert tokens.find(secret) is None
    assert tokens.exist()
    with pytest.raises(NotFoundError, match="'ci'"):
        tokens.revoke("ci")


def test_a_token_ends(tokens: Tokens) -> None:
    secret = tokens.add("brief", Scope.READ, time.time() + 0.05)
    assert tokens.find(secret) is not None
    time.sleep(0.06)
    assert tokens.find(secret) is None
    assert tokens.all()[0].is_over(time.time())


@pytest.mark.parametrize("name", ["", "a b", "-x", "a/b", "x" * 65, "é", "a\n", "anonymous"])
def test_names_that_no_token_has(tokens: Tokens, name: str) -> None:
    with pytest.raises(UsageError, match="name"):
        tokens.add(name, Scope.READ)
    assert not tokens.exist()


def test_a_name_is_taken_once_even_by_many(tokens: Tokens) -> None:
    made: list[str] = []

    def add() -> None:
        with contextlib.suppress(UsageError):
            made.append(Tokens(tokens.path).add("ci", Scope.READ))

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
def test_a_file_that_is_none_is_refused(tokens: Tokens, content: str) -> None:
    tokens.path.write_text(content)
    tokens.path.chmod(0o600)
    with pytest.raises(SetupError, match="no file of"):
        tokens.find("skb_x")


def test_a_file_that_others_can_read_is_refused(tokens: Tokens) -> None:
    secret = tokens.add("ci", Scope.READ)
    tokens.path.chmod(0o640)
    tokens.path.write_text(tokens.path.read_text() + " ")
    with pytest.raises(SetupError, match="chmod 600"):
        tokens.find(secret)


def test_a_file_that_is_moved_away_lets_nobody_in(tokens: Tokens) -> None:
    access = Access(tokens, open=True)
    assert identify(access, {}) == Caller(ANONYMOUS, Scope.READ)
    secret = tokens.add("ci", Scope.ADMIN)
    known = {"authorization": f"Bearer {secret}"}
    assert identify(access, known) == Caller("ci", Scope.ADMIN)
    tokens.path.rename(tokens.path.with_name("away"))
    assert identify(access, {}) is None
    assert identify(access, known) is None


@pytest.mark.parametrize("target", ["nowhere", "tokens.json"])
def test_a_link_that_leads_nowhere_lets_nobody_in(tokens: Tokens, target: str) -> None:
    tokens.path.symlink_to(tokens.path.with_name(target))
    assert identify(Access(tokens, open=True), {}) is None


def test_a_file_whose_mode_is_changed_is_looked_at_again(tokens: Tokens) -> None:
    secret = tokens.add("ci", Scope.READ)
    assert tokens.find(secret) is not None
    tokens.path.chmod(0o644)
    with pytest.raises(SetupError, match="chmod 600"):
        tokens.find(secret)


def test_settings_are_told_to_the_user_alone(tokens: Tokens, tmp_path: Path) -> None:
    def refuse() -> None:
        raise SetupError("redis://inside.example:6379 refuses the login: check /run/secrets/redis")

    channel: Any = SimpleNamespace(
        settings=Settings(home=tmp_path),
        journal=None,
        graph=SimpleNamespace(sources=refuse),
    )
    secret = tokens.add("ci", Scope.ADMIN)

    def ask(access: Access | None, **headers: str) -> str:
        transport = httpx.ASGITransport(create_gateway(channel, access))
        client = httpx.AsyncClient(transport=transport, base_url="http://skillbus")
        answer = asyncio.run(client.get("/v1/sources", headers=headers))
        assert answer.is_server_error
        return str(answer.json()["detail"])

    told = ask(Access(tokens), Authorization=f"Bearer {secret}")
    assert "inside.example" not in told
    assert "/run/secrets" not in told
    assert "inside.example" in ask(None)


def test_a_bucket_empties_and_fills(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    buckets = Buckets(a_minute=60, burst=3)
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 0]
    assert buckets.take("a") == pytest.approx(1.0)
    assert buckets.take("b") == 0
    now[0] += 1.5
    assert buckets.take("a") == 0
    assert buckets.take("a") == pytest.approx(0.5)
    now[0] += 1_000
    assert [buckets.take("a") for _ in range(4)][:3] == [0, 0, 0]


def test_any_number_of_names_have_a_bounded_number_of_buckets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(limits, "MOST_BUCKETS", 100)
    buckets = Buckets(a_minute=60, burst=2)
    taken = [buckets.take(f"anonymous {number}") for number in range(200)]
    assert taken[:102] == [0] * 102
    assert all(taken[102:])  # they share what is left
    assert buckets.take("anonymous 7") == 0
    now[0] += 10
    assert [buckets.take(f"another {number}") for number in range(100)] == [0] * 100
    assert len(buckets._levels) <= 101


def test_who_has_no_token_shares_a_limit_with_the_own_address_alone() -> None:
    def bucket(host: str | None, name: str = ANONYMOUS, path: str = "/v1/sources") -> str:
        client = None if host is None else (host, 4711)
        state = {"caller": Caller(name, Scope.READ)}
        return _bucket_of({"client": client, "path": path, "state": state})

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
    buckets = Buckets(a_minute=60, burst=2)
    for _ in range(9):
        assert buckets.take("a") == 0
        buckets.give_back("a")
    buckets.give_back("a")
    assert [buckets.take("a") for _ in range(3)] == [0, 0, pytest.approx(1.0)]


def test_half_of_the_room_is_for_others() -> None:
    async def run() -> None:
        room = Room(4)
        async with room.place("slow", 1), room.place("slow", 1):
            with pytest.raises(TimeoutError):
                async with room.place("slow", 0.02):
                    pytest.fail("there was room")
            async with room.place("a", 1), room.place("b", 1):
                waiting = asyncio.create_task(enter(room, "c"))
                await asyncio.sleep(0.02)
                assert not waiting.done()
            assert await waiting

    async def enter(room: Room, name: str) -> bool:
        async with room.place(name, 5):
            return True

    asyncio.run(run())


def test_many_wait_for_jobs_and_each_hears_of_its_own() -> None:
    journal = SqliteJournal(":memory:")
    events = [new_event(QueryAsked(task="x"), "skillbus/test") for _ in range(3)]
    for event in events:
        journal.accept(event, "query", seconds=5)

    async def run() -> list[bool]:
        waiting = Waiting(journal)

        async def end() -> None:
            await asyncio.sleep(0.02)
            journal.finish(events[0].id, {})
            journal.cancel(events[1].id)

        results = await asyncio.gather(
            waiting.ended(events[0].id, 5),
            waiting.ended(events[0].id, 5),
            waiting.ended(events[1].id, 5),
            waiting.ended(events[2].id, 0.05),
            waiting.ended("absent", 5),
            end(),
        )
        assert await waiting.ended(events[0].id, 5)
        assert not await waiting.ended(events[2].id, 0)
        return [bool(one) for one in results[:5]]

    assert asyncio.run(run()) == [True, True, True, False, True]
    journal.close()
