"""Submissions through real brokers: nothing is lost or done twice, and every sender hears."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest

from deploy.stack.ports import free_port
from tasks.coordination import redis_lock
from tests.support.program.program import wait_for
from tests.support.servers.distributed import Deployments, Distributed, deployments
from tests.support.servers.servers import RunServers, ServerControls
from tests.support.servers.submitting import (
    BUNDLE,
    CLAIM_SECONDS,
    STREAM,
    Home,
    OnRabbit,
    OnRedis,
    Outside,
    at_broker,
    consuming,
    event,
    id_of,
    outside,
    query,
    recorded,
    reply_name,
)
from workers.backend.store_backend import StoreBackend
from workers.queue.broker import get_submission_broker
from workers.queue.connect import open_message_consumer
from workers.queue.protocol import ReceivedMessage
from workers.queue.recorder import MessageRecorder

__all__ = ["deployments", "outside"]

BACK_SECONDS = 120.0


@pytest.fixture(autouse=True)
def _lease_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies are sent twice where a machine stands still longer than the lease of their lock."""
    monkeypatch.setattr(redis_lock, "LEASE_SECONDS", 60.0)


@pytest.fixture(params=["redis-embedded", "rabbitmq-distributed"])
def home(request: pytest.FixtureRequest, run_servers: RunServers, tmp_path: Path) -> Iterator[Home]:
    """An embedded library and one on servers, whose submissions come from different brokers."""
    broker, _, kind = request.param.partition("-")
    with at_broker(broker, run_servers) as outside:
        if kind == "embedded":
            yield Home(outside, tmp_path)
        else:
            deployments: Deployments = request.getfixturevalue("deployments")
            yield Home(outside, tmp_path, deployments(broker).settings)


def answered(backend: StoreBackend, sent: list[dict[str, Any]]) -> bool:
    """Answer what is open; whether all that was sent is answered now."""
    for job in backend.journal.list_open_jobs("query"):
        backend.journal.finish_job(job, BUNDLE)
    states = backend.journal.get_job_states([id_of(each) for each in sent])
    return [state for state, _ in states.values()] == ["done"] * len(sent)


def test_a_query_is_recorded_answered_and_confirmed(home: Home, tmp_path: Path) -> None:
    name, asked = reply_name(tmp_path), query()
    with home() as backend, consuming(backend):
        home.outside.listen(name)
        home.outside.put(json.dumps(asked), name, "call-7")
        job = wait_for(lambda: recorded(backend, asked))
        assert (job.kind, job.state, job.event.replyto) == ("query", "accepted", name)
        assert job.expires_in_seconds > 3000
        wait_for(lambda: home.outside.left() == 0)
        backend.journal.finish_job(job.id, BUNDLE)
        [reply] = home.outside.replies(name, 1)
        assert reply.type == "skillbus.query.answered.v1"
        assert reply.data["status"] == "NO_SKILL_HIT"
        assert reply.correlation_id == reply.event["correlationid"] == "call-7"
        assert reply.event["subject"] == asked["id"]
        wait_for(lambda: backend.journal.list_pending_replies() == [])


def test_attributes_of_the_event_are_worth_as_much(home: Home, tmp_path: Path) -> None:
    name = reply_name(tmp_path)
    asked = query(replyto=name, correlationid="inside")
    with home() as backend, consuming(backend):
        home.outside.listen(name)
        home.outside.put(json.dumps(asked), name, "inside")
        job = wait_for(lambda: recorded(backend, asked))
        backend.journal.fail_job(job.id, "no index")
        [reply] = home.outside.replies(name, 1)
        assert (reply.type, reply.data["reason"]) == ("skillbus.query.failed.v1", "no index")
        assert reply.correlation_id == "inside"
        home.outside.put(json.dumps(query(replyto=name + "x")), name)
        [refused] = home.outside.replies(name, 1)
        assert refused.type == "skillbus.message.refused.v1"
        assert "differs between the message properties and the event" in refused.data["reason"]
        [letter] = backend.journal.list_dead_letters()
        assert "differs between the message properties and the event" in letter.reason


def test_no_sender_speaks_for_another(outside: Outside, tmp_path: Path) -> None:
    forged = query(owner="admin", afterseq=1 << 30)
    with Home(outside, tmp_path)() as backend, consuming(backend):
        outside.put(json.dumps(forged))
        [job] = wait_for(lambda: backend.journal.list_open_jobs("query"))
        kept = backend.journal.get_job(job).event
        assert (kept.id, kept.owner) == (forged["id"], "")
        assert kept.model_dump()["afterseq"] == 0


def test_the_same_event_is_done_and_answered_once(home: Home, tmp_path: Path) -> None:
    name, asked = reply_name(tmp_path), query()
    with home() as backend, consuming(backend, 2) as consumers:
        home.outside.listen(name)
        for _ in range(4):
            home.outside.put(json.dumps(asked), name)
        wait_for(lambda: sum(one.consumer.recorded for one in consumers) == 4)
        backend.journal.finish_job(id_of(asked), BUNDLE)
        assert len(home.outside.replies(name, 1)) == 1
        assert home.outside.replies(name, 1, 0.5) == []
        home.outside.put(json.dumps(asked), name)
        wait_for(lambda: sum(one.consumer.recorded for one in consumers) == 5)
        assert home.outside.replies(name, 1, 0.5) == []
        assert backend.journal.count_open_jobs("query") == 0


def test_outcomes_are_recorded_and_confirmed(home: Home, tmp_path: Path) -> None:
    name = reply_name(tmp_path)
    good, bad = (
        event(
            "skillbus.outcome.reported.v1",
            {"query_id": query_id, "outcomes": [{"outcome": "missing"}]},
        )
        for query_id in ("q-1", "q-2")
    )
    with home() as backend, consuming(backend):
        home.outside.listen(name)
        for one in (good, good, bad):
            home.outside.put(json.dumps(one), name)
        jobs = [wait_for(partial(recorded, backend, one)) for one in (good, bad)]
        assert [job.kind for job in jobs] == ["outcome", "outcome"]
        assert backend.journal.count_open_jobs("outcome") == 2
        backend.journal.finish_job(jobs[0].id, {"query_id": "q-1", "outcomes": 1})
        backend.journal.fail_job(jobs[1].id, "no answered query")
        replies = {reply.data["query_id"]: reply for reply in home.outside.replies(name, 2)}
        assert replies["q-1"].type == "skillbus.outcome.recorded.v1"
        assert replies["q-1"].data["outcomes"] == 1
        assert replies["q-2"].type == "skillbus.outcome.refused.v1"
        assert replies["q-2"].data["reason"] == "no answered query"
        assert home.outside.replies(name, 1, 0.5) == []


REFUSED = {
    "no JSON": (b"\xff\xfe not json", "not a CloudEvents"),
    "nothing": (b" ", "not a CloudEvents"),
    "NUL": (json.dumps(query()).encode().replace(b"wheel", b"\x00"), "not a CloudEvents"),
    "NUL, written": (
        json.dumps(event("skillbus.skill.removed.v1", {"skill_id": "a:b\0c"})).encode(),
        "skill_id",
    ),
    "no UTF-8": (json.dumps(query()).encode().replace(b"wheel", b"\xc0\xaf"), "not a CloudEvents"),
    "lone surrogates": (json.dumps(query("\ud800")).encode(), "not a CloudEvents"),
    "10 MB": (b"x" * 10_000_001, "at most 10000"),
    "no event": (b"[1, 2]", "not a CloudEvents"),
    "nested too deeply": (b"[" * 9_000, "not a CloudEvents"),
    "unknown type": (json.dumps(event("skillbus.skill.eaten.v1", {})).encode(), "not known"),
    "unknown version": (json.dumps(event("skillbus.query.asked.v9", {})).encode(), "version 9"),
    "an answer": (
        json.dumps(event("skillbus.query.failed.v1", {"query_id": "x", "reason": "y"})).encode(),
        "is a reply of skillbus",
    ),
    "a source of ours": (
        json.dumps(query(source="skillbus/serve")).encode(),
        "is reserved for skillbus",
    ),
    "too large": (json.dumps(query("x" * 20_000)).encode(), "at most 10000"),
    "Celery's queue": (json.dumps(query(replyto="skillbus.plan")).encode(), "replyto"),
    "another directory": (
        json.dumps(
            event("skillbus.source.changed.v1", {"source_id": "etc", "root": "/etc"})
        ).encode(),
        "submissions.roots",
    ),
}


def test_what_is_no_submission_becomes_a_dead_letter_and_its_sender_is_notified(
    home: Home, tmp_path: Path
) -> None:
    name = reply_name(tmp_path)
    limits = {"submissions": {**home.outside.settings, "message_bytes": 10_000}}
    with home(**limits) as backend, consuming(backend) as [one]:
        home.outside.listen(name)
        for body, reason in REFUSED.values():
            home.outside.put(body, name, "c-1")
            [reply] = home.outside.replies(name, 1)
            assert reply.type == "skillbus.message.refused.v1"
            assert reason in reply.data["reason"]
            assert reply.correlation_id == "c-1"
            letter = backend.journal.get_dead_letter(reply.data["letter_id"])
            assert reason in letter.reason
            assert letter.body == body.decode("utf-8", "replace")[:16_384]
        wait_for(lambda: home.outside.left() == 0)
        assert (one.consumer.recorded, one.consumer.refused) == (0, len(REFUSED))
        assert (
            backend.journal.count_open_jobs("query")
            == backend.journal.count_open_jobs("event")
            == 0
        )


FORMS = {
    ("application/x-python-serialize", ""): "content type 'application/x-python-serialize'",
    ("text/xml; charset=utf-8", ""): "content type 'text/xml; charset=utf-8'",
    ("application/json", "gzip"): "content encoding 'gzip'",
    ("application/cloudevents+json; charset=UTF-8", "utf-8"): "",
    ("text/plain", ""): "",
}


def test_a_message_of_another_form_becomes_a_dead_letter(
    run_servers: RunServers, tmp_path: Path
) -> None:
    outside = OnRabbit(run_servers)
    outside.clear()
    name = reply_name(tmp_path)
    with Home(outside, tmp_path)() as backend, consuming(backend) as [one]:
        outside.listen(name)
        for (kind, encoding), reason in FORMS.items():
            sent = query()
            outside.put(json.dumps(sent), name, encoding=encoding or None, kind=kind)
            if not reason:
                wait_for(partial(recorded, backend, sent))
                continue
            [reply] = outside.replies(name, 1)
            assert reason in reply.data["reason"]
            assert reason in backend.journal.get_dead_letter(reply.data["letter_id"]).reason
        # A property that is not UTF-8, which amqp cannot decode.
        properties = pika.BasicProperties(correlation_id=b"\xff", reply_to=name)
        with outside.channel() as channel:
            channel.basic_publish("", STREAM, b"undecodable", properties)
            # An exchange passes on any routing key.
            channel.exchange_declare("everything", "fanout", auto_delete=True)
            channel.queue_bind(STREAM, "everything")
            channel.basic_publish("everything", b"\xff", json.dumps(query()))
        wait_for(lambda: one.consumer.recorded == 3 and one.consumer.refused == 4)
        [letter, *_] = backend.journal.list_dead_letters()
        assert "properties that cannot be decoded" in letter.reason
        assert letter.body == "undecodable"
    outside.clear()


def test_an_entry_without_an_event_becomes_a_dead_letter(
    run_servers: RunServers, tmp_path: Path
) -> None:
    outside = OnRedis(run_servers)
    outside.clear()
    with Home(outside, tmp_path)() as backend, consuming(backend):
        name = reply_name(tmp_path)
        outside.client.xadd("skillbus.events", {"evnet": "{}", "reply_to": name})
        [reply] = outside.replies(name, 1)
        assert "no field 'event'" in reply.data["reason"]
        assert '"evnet"' in backend.journal.list_dead_letters()[0].body
    outside.clear()


def test_too_many_wait_and_nothing_is_lost(home: Home, tmp_path: Path) -> None:
    sent = [query() for _ in range(6)]
    with home(workers={"open_queries": 2}) as backend:
        with consuming(backend) as [one]:
            for each in sent:
                home.outside.put(json.dumps(each))
            wait_for(lambda: "too many open" in one.status()["problem"])
            assert backend.journal.count_open_jobs("query") == 2
            if home.outside.name == "redis":
                time.sleep(CLAIM_SECONDS * 1.5)  # what is held is not taken twice
            assert one.consumer.recorded == 2
            for job in backend.journal.list_open_jobs("query"):
                backend.journal.finish_job(job)
            wait_for(lambda: one.consumer.recorded == 4)
        # The rest was handed back, and the next consumer has it at once.
        for job in backend.journal.list_open_jobs("query"):
            backend.journal.finish_job(job)
        with consuming(backend) as [other]:
            wait_for(lambda: other.consumer.recorded == 2)
            assert other.status()["problem"] == ""
        states = backend.journal.get_job_states([id_of(each) for each in sent])
        assert len(states) == 6


def die_with_two_messages(home: Home) -> None:
    """Record the first of two messages, confirm none, and die."""
    with home() as backend:
        broker = get_submission_broker(backend.settings)
        message_consumer = open_message_consumer(broker, "victim")
        found: list[ReceivedMessage] = []
        while len(found) < 2:
            found += message_consumer.receive(0.5, 10)
        MessageRecorder(backend).record(found[0].message)
        os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_consumer_held_comes_again(home: Home, tmp_path: Path) -> None:
    """One message was recorded and not confirmed, the other was only read."""
    name, sent = reply_name(tmp_path), [query(), query()]
    home.outside.listen(name)
    with home() as backend, consuming(backend):  # makes the group
        pass
    for each in sent:
        home.outside.put(json.dumps(each), name)
    victim = multiprocessing.get_context("fork").Process(target=die_with_two_messages, args=(home,))
    victim.start()
    victim.join(200)
    assert victim.exitcode == -signal.SIGKILL
    with home() as backend:
        assert [recorded(backend, each) is not None for each in sent] == [True, False]
        with consuming(backend) as [one]:
            wait_for(lambda: one.consumer.recorded == 2)
            wait_for(lambda: home.outside.left() == 0)
            assert set(backend.journal.list_open_jobs("query")) == {id_of(each) for each in sent}
            wait_for(lambda: answered(backend, sent))
            replies = home.outside.replies(name, 2)
            assert home.outside.replies(name, 1, 0.5) == []
    assert sorted(each.event["subject"] for each in replies) == sorted(each["id"] for each in sent)


def test_two_consumers_share_and_one_relay_replies(home: Home, tmp_path: Path) -> None:
    name, sent = reply_name(tmp_path), [query() for _ in range(60)]
    with home() as backend, consuming(backend, 2) as consumers:
        home.outside.listen(name)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda each: home.outside.put(json.dumps(each), name), sent))
        wait_for(lambda: backend.journal.count_open_jobs("query") == len(sent))
        for each in sent:
            backend.journal.finish_job(id_of(each), BUNDLE)
        replies = home.outside.replies(name, len(sent))
        assert {one.event["subject"] for one in replies} == {each["id"] for each in sent}
        assert home.outside.replies(name, 1, 0.3) == []
        assert sum(one.consumer.recorded for one in consumers) == len(sent)
        assert all(one.consumer.recorded for one in consumers)


def test_a_broker_that_was_killed_comes_back(
    outside: Outside, servers: ServerControls, tmp_path: Path
) -> None:
    server = servers[outside.name]
    name, sent = reply_name(tmp_path), [query() for _ in range(6)]
    outside.drop()
    home = Home(outside, tmp_path)
    with home(workers={"open_queries": 2}) as backend, consuming(backend) as [one]:
        outside.listen(name)
        for each in sent:
            outside.put(json.dumps(each), name)
        wait_for(lambda: "too many open" in one.status()["problem"])
        time.sleep(1)  # RabbitMQ forgets a queue that is made just before it is killed
        server.kill()
        early = backend.journal.list_open_jobs("query")
        for job in early:
            backend.journal.finish_job(job, BUNDLE)
        wait_for(lambda: not one.consumer.connected.is_set() and one.relay.problem)
        assert "does not answer" in one.status()["problem"]
        # Two were recorded and are answered; the other four were handed out, and not confirmed.
        assert set(backend.journal.list_pending_replies()) == set(early)
        assert len(early) == one.consumer.recorded == 2
        server.start_again()
        returned = time.monotonic()
        wait_for(lambda: answered(backend, sent), BACK_SECONDS)
        replies = outside.replies(name, len(sent))
        print(f"{outside.name}: works {time.monotonic() - returned:.1f} s after it is back")
        assert sorted(each.event["subject"] for each in replies) == sorted(
            each["id"] for each in sent
        )
        assert outside.replies(name, 1, 0.3) == []
        wait_for(lambda: outside.left() == 0 and not one.status()["problem"])
        assert backend.journal.count_dead_letters() == 0


def test_consume_on_servers_gives_back_what_it_holds(
    outside: Outside, deployments: Deployments, tmp_path: Path
) -> None:
    name, sent = reply_name(tmp_path), [query() for _ in range(5)]
    port = free_port()
    own = {
        f"SKILLBUS_SUBMISSIONS__{key.upper()}": str(value)
        for key, value in outside.settings.items()
        if value
    }
    made = deployments(
        outside.name,
        SKILLBUS_WORKERS__OPEN_QUERIES="2",
        SKILLBUS_WORKERS__METRICS_PORT=str(port),
        **own,
    )
    outside.listen(name)
    process = made.skillbus.start("consume")
    wait_for(lambda: "consuming skillbus.events" in process.text("err") or process.ended.is_set())
    began = time.time()
    for each in sent:
        outside.put(json.dumps(each), name)
    reported = wait_for(lambda: _held(made))
    assert (reported["connected"], reported["recorded"], reported["waiting"]) == (True, 2, 0)
    assert began - 1 <= reported["last_message"] <= time.time() + 1
    assert "2 accepted, 0 refused" in made.skillbus("status").out
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        figures = answer.read().decode()
    assert 'skillbus_submissions_total{outcome="recorded"} 2.0' in figures
    assert "skillbus_consumers 1.0" in figures
    process.send(signal.SIGTERM)
    assert process.wait().code == 0, process.text("err")
    assert made.skillbus("status", "--json").data["submissions"] == []
    with Home(outside, tmp_path, made.settings)() as backend, consuming(backend) as [one]:
        wait_for(lambda: answered(backend, sent))
        replies = outside.replies(name, len(sent))
        assert one.consumer.recorded == 3
    assert {each.event["subject"] for each in replies} == {each["id"] for each in sent}


def _held(made: Distributed) -> Any:
    """What the one consumer tells, once it has all in hand and cannot record any more."""
    reported = made.skillbus("status", "--json").data["submissions"]
    held = reported and "too many open" in reported[0]["problem"] and not reported[0]["waiting"]
    return reported[0] if held else None


def test_a_stream_that_was_deleted_is_made_again(run_servers: RunServers, tmp_path: Path) -> None:
    outside = OnRedis(run_servers)
    outside.clear()
    with Home(outside, tmp_path)() as backend, consuming(backend) as [one]:
        outside.client.delete("skillbus.events")
        outside.put(json.dumps(query()))
        wait_for(lambda: one.consumer.recorded == 1)
    outside.clear()
