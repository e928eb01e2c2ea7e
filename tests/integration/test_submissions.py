"""Submissions through real brokers: nothing is lost or done twice, and every sender hears."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deploy.stack.ports import free_port
from tests.support.distributed import Deployments, Distributed, deployments
from tests.support.program import ROOT, wait_for
from tests.support.servers import RunServers, ServerControls
from tests.support.submitting import (
    BUNDLE,
    Home,
    OnRabbit,
    OnRedis,
    Outside,
    consuming,
    event,
    id_of,
    outside,
    query,
    recorded,
    reply_name,
)
from workers.backend.channel import Channel

__all__ = ["deployments", "outside"]

BACK_SECONDS = 30.0


@pytest.fixture(params=["embedded", "distributed"])
def home(request: pytest.FixtureRequest, outside: Outside, tmp_path: Path) -> Home:
    """An embedded library, and one on servers whose tasks and submissions share the broker."""
    if request.param == "embedded":
        return Home(outside, tmp_path)
    deployments: Deployments = request.getfixturevalue("deployments")
    return Home(outside, tmp_path, deployments(outside.name).settings)


def answered(channel: Channel, sent: list[dict[str, Any]]) -> bool:
    """Answer what is open; whether all that was sent is answered now."""
    for job in channel.journal.open_jobs("query"):
        channel.journal.finish(job, BUNDLE)
    states = channel.journal.states([id_of(each) for each in sent])
    return [state for state, _ in states.values()] == ["done"] * len(sent)


def test_a_query_is_recorded_answered_and_confirmed(home: Home, tmp_path: Path) -> None:
    name, asked = reply_name(tmp_path), query()
    with home() as runtime, consuming(runtime):
        home.outside.listen(name)
        home.outside.put(json.dumps(asked), name, "call-7")
        job = wait_for(lambda: recorded(runtime, asked))
        assert (job.kind, job.state, job.event.replyto) == ("query", "accepted", name)
        assert job.seconds_left > 3000
        wait_for(lambda: home.outside.left() == 0)
        started = time.monotonic()
        runtime.journal.finish(job.id, BUNDLE)
        [reply] = home.outside.replies(name, 1)
        assert time.monotonic() - started < 1
        assert reply.type == "skillbus.query.answered.v1"
        assert reply.data["status"] == "NO_SKILL_HIT"
        assert reply.correlation_id == reply.event["correlationid"] == "call-7"
        assert reply.event["subject"] == asked["id"]
        wait_for(lambda: runtime.journal.unreplied() == [])


def test_attributes_of_the_event_are_worth_as_much(home: Home, tmp_path: Path) -> None:
    name = reply_name(tmp_path)
    asked = query(replyto=name, correlationid="inside")
    with home() as runtime, consuming(runtime):
        home.outside.listen(name)
        home.outside.put(json.dumps(asked), name, "inside")
        job = wait_for(lambda: recorded(runtime, asked))
        runtime.journal.fail(job.id, "no index")
        [reply] = home.outside.replies(name, 1)
        assert (reply.type, reply.data["reason"]) == ("skillbus.query.failed.v1", "no index")
        assert reply.correlation_id == "inside"
        home.outside.put(json.dumps(query(replyto=name + "x")), name)
        [refused] = home.outside.replies(name, 1)
        assert refused.type == "skillbus.message.refused.v1"
        assert "not the same" in refused.data["reason"]
        assert "not the same" in runtime.journal.letters()[0].reason


def test_nobody_speaks_for_another(outside: Outside, tmp_path: Path) -> None:
    forged = query(owner="admin", afterseq=1 << 30)
    with Home(outside, tmp_path)() as runtime, consuming(runtime):
        outside.put(json.dumps(forged))
        [job] = wait_for(lambda: runtime.journal.open_jobs("query"))
        kept = runtime.journal.job(job).event
        assert (kept.id, kept.owner) == (forged["id"], "")
        assert kept.model_dump()["afterseq"] == 0


def test_the_same_event_is_done_and_answered_once(home: Home, tmp_path: Path) -> None:
    name, asked = reply_name(tmp_path), query()
    with home() as runtime, consuming(runtime, 2) as consumers:
        home.outside.listen(name)
        for _ in range(4):
            home.outside.put(json.dumps(asked), name)
        wait_for(lambda: sum(one.consumer.taken for one in consumers) == 4)
        runtime.journal.finish(id_of(asked), BUNDLE)
        assert len(home.outside.replies(name, 2, 1.0)) == 1
        home.outside.put(json.dumps(asked), name)
        wait_for(lambda: sum(one.consumer.taken for one in consumers) == 5)
        assert home.outside.replies(name, 1, 0.5) == []
        assert runtime.journal.count_open("query") == 0


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
        "is what skillbus answers",
    ),
    "a source of ours": (json.dumps(query(source="skillbus/serve")).encode(), "only skillbus"),
    "too large": (json.dumps(query("x" * 20_000)).encode(), "at most 10000"),
    "Celery's queue": (json.dumps(query(replyto="skillbus.plan")).encode(), "replyto"),
    "another directory": (
        json.dumps(
            event("skillbus.source.changed.v1", {"source_id": "etc", "root": "/etc"})
        ).encode(),
        "submissions.roots",
    ),
}


def test_what_is_no_submission_is_buried_and_its_sender_told(home: Home, tmp_path: Path) -> None:
    name = reply_name(tmp_path)
    limits = {"submissions": {**home.outside.settings, "message_bytes": 10_000}}
    with home(**limits) as runtime, consuming(runtime) as [one]:
        home.outside.listen(name)
        for body, reason in REFUSED.values():
            home.outside.put(body, name, "c-1")
            [reply] = home.outside.replies(name, 1)
            assert reply.type == "skillbus.message.refused.v1"
            assert reason in reply.data["reason"]
            assert reply.correlation_id == "c-1"
            letter = runtime.journal.letter(reply.data["letter_id"])
            assert reason in letter.reason
            assert letter.body == body.decode("utf-8", "replace")[:16_384]
        wait_for(lambda: home.outside.left() == 0)
        assert (one.consumer.taken, one.consumer.refused) == (0, len(REFUSED))
        assert runtime.journal.count_open("query") == runtime.journal.count_open("event") == 0


FORMS = {
    ("application/x-python-serialize", ""): "content type 'application/x-python-serialize'",
    ("text/xml; charset=utf-8", ""): "content type 'text/xml; charset=utf-8'",
    ("application/json", "gzip"): "content encoding 'gzip'",
    ("application/cloudevents+json; charset=UTF-8", "utf-8"): "",
    ("text/plain", ""): "",
}


def test_a_message_of_another_form_is_buried(run_servers: RunServers, tmp_path: Path) -> None:
    outside = OnRabbit(run_servers)
    outside.clear()
    name = reply_name(tmp_path)
    with Home(outside, tmp_path)() as runtime, consuming(runtime) as [one]:
        outside.listen(name)
        for (kind, encoding), reason in FORMS.items():
            sent = query()
            outside.put(json.dumps(sent), name, encoding=encoding or None, kind=kind)
            if not reason:
                wait_for(lambda sent=sent: recorded(runtime, sent))
                continue
            [reply] = outside.replies(name, 1)
            assert reason in reply.data["reason"]
            assert reason in runtime.journal.letter(reply.data["letter_id"]).reason
        wait_for(lambda: one.consumer.taken == 2)
        assert one.consumer.refused == 3
    outside.clear()


def test_an_entry_without_an_event_is_buried(run_servers: RunServers, tmp_path: Path) -> None:
    outside = OnRedis(run_servers)
    outside.clear()
    with Home(outside, tmp_path)() as runtime, consuming(runtime):
        name = reply_name(tmp_path)
        outside.client.xadd("skillbus.events", {"evnet": "{}", "reply_to": name})
        [reply] = outside.replies(name, 1)
        assert "no field 'event'" in reply.data["reason"]
        assert '"evnet"' in runtime.journal.letters()[0].body
    outside.clear()


def test_too_many_wait_and_nothing_is_lost(home: Home, tmp_path: Path) -> None:
    sent = [query() for _ in range(6)]
    with home(workers={"open_queries": 2}) as runtime:
        with consuming(runtime) as [one]:
            for each in sent:
                home.outside.put(json.dumps(each))
            wait_for(lambda: "wait already" in one.status()["problem"])  # type: ignore[operator]
            assert runtime.journal.count_open("query") == 2
            time.sleep(1.5)  # beyond `claim_seconds`: what is held is not taken twice
            assert one.consumer.taken == 2
            for job in runtime.journal.open_jobs("query"):
                runtime.journal.finish(job)
            wait_for(lambda: one.consumer.taken == 4)
        # The rest was handed back, and the next consumer has it at once.
        for job in runtime.journal.open_jobs("query"):
            runtime.journal.finish(job)
        with consuming(runtime) as [other]:
            wait_for(lambda: other.consumer.taken == 2)
            assert other.status()["problem"] == ""
        states = runtime.journal.states([id_of(each) for each in sent])
        assert len(states) == 6


VICTIM = """
    import os, pickle, signal, sys
    from tests.support.tiny import TinyEncoder
    from workers.backend.distributed import Remote
    from workers.backend.embedded import Runtime
    from workers.queue.broker import broker_of, open_carrier
    from workers.queue.intake import Intake

    settings = pickle.loads(bytes.fromhex(sys.argv[1]))
    if settings.distributed:
        channel = Remote(settings, writable=True)
    else:
        channel = Runtime(settings, writable=True, encoder=TinyEncoder())
    carrier = open_carrier(broker_of(settings), "victim")
    found = []
    while len(found) < 2:
        found += carrier.receive(0.5, 10)
    Intake(channel).take(found[0].message)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_consumer_held_comes_again(home: Home, tmp_path: Path) -> None:
    """One message was recorded and not confirmed, the other was only read."""
    name, sent = reply_name(tmp_path), [query(), query()]
    home.outside.listen(name)
    with home() as runtime:
        settings = runtime.settings
        with consuming(runtime):  # makes the group
            pass
    for each in sent:
        home.outside.put(json.dumps(each), name)
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(VICTIM), pickle.dumps(settings).hex()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == -signal.SIGKILL, run.stderr
    with home() as runtime:
        assert [recorded(runtime, each) is not None for each in sent] == [True, False]
        with consuming(runtime) as [one]:
            wait_for(lambda: one.consumer.taken == 2)
            wait_for(lambda: home.outside.left() == 0)
            assert set(runtime.journal.open_jobs("query")) == {id_of(each) for each in sent}
            wait_for(lambda: answered(runtime, sent))
            replies = home.outside.replies(name, 3, 1.0)
    assert sorted(each.event["subject"] for each in replies) == sorted(each["id"] for each in sent)


def test_two_consumers_share_and_one_relay_replies(home: Home, tmp_path: Path) -> None:
    name, sent = reply_name(tmp_path), [query() for _ in range(60)]
    with home() as runtime, consuming(runtime, 2) as consumers:
        home.outside.listen(name)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda each: home.outside.put(json.dumps(each), name), sent))
        wait_for(lambda: runtime.journal.count_open("query") == len(sent))
        for each in sent:
            runtime.journal.finish(id_of(each), BUNDLE)
        replies = home.outside.replies(name, len(sent))
        assert {one.event["subject"] for one in replies} == {each["id"] for each in sent}
        assert home.outside.replies(name, 1, 0.3) == []
        assert sum(one.consumer.taken for one in consumers) == len(sent)
        assert all(one.consumer.taken for one in consumers)


def test_a_broker_that_was_killed_comes_back(
    outside: Outside, servers: ServerControls, tmp_path: Path
) -> None:
    server = servers[outside.name]
    name, sent = reply_name(tmp_path), [query() for _ in range(6)]
    outside.drop()
    home = Home(outside, tmp_path)
    with home(workers={"open_queries": 2}) as runtime, consuming(runtime) as [one]:
        outside.listen(name)
        for each in sent:
            outside.put(json.dumps(each), name)
        wait_for(lambda: "wait already" in one.status()["problem"])
        time.sleep(1)  # RabbitMQ forgets a queue that is made just before it is killed
        server.kill()
        early = runtime.journal.open_jobs("query")
        for job in early:
            runtime.journal.finish(job, BUNDLE)
        wait_for(lambda: not one.consumer.connected.is_set() and one.relay.problem)
        assert "does not answer" in one.status()["problem"]
        # Two were recorded and are answered; the other four were handed out, and not confirmed.
        assert set(runtime.journal.unreplied()) == set(early)
        assert len(early) == one.consumer.taken == 2
        server.start_again()
        returned = time.monotonic()
        wait_for(lambda: answered(runtime, sent), BACK_SECONDS)
        replies = outside.replies(name, len(sent))
        print(f"{outside.name}: works {time.monotonic() - returned:.1f} s after it is back")
        assert sorted(each.event["subject"] for each in replies) == sorted(
            each["id"] for each in sent
        )
        assert outside.replies(name, 1, 0.3) == []
        wait_for(lambda: outside.left() == 0 and not one.status()["problem"])
        assert runtime.journal.count_letters() == 0


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
    wait_for(lambda: "taking skillbus.events" in process.text("err") or process.ended.is_set())
    for each in sent:
        outside.put(json.dumps(each), name)
    told = wait_for(lambda: _held(made))
    assert (told["connected"], told["recorded"], told["waiting"]) == (True, 2, 0)
    assert time.time() - told["last_message"] < 60
    assert "2 recorded, 0 refused" in made.skillbus("status").out
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        figures = answer.read().decode()
    assert 'skillbus_submissions_total{outcome="recorded"} 2.0' in figures
    assert "skillbus_consumers 1.0" in figures
    process.send(signal.SIGTERM)
    assert process.wait(20).code == 0, process.text("err")
    assert made.skillbus("status", "--json").data["submissions"] == []
    with Home(outside, tmp_path, made.settings)() as channel, consuming(channel) as [one]:
        wait_for(lambda: answered(channel, sent))
        replies = outside.replies(name, len(sent))
        assert one.consumer.taken == 3
    assert {each.event["subject"] for each in replies} == {each["id"] for each in sent}


def _held(made: Distributed) -> Any:
    """What the one consumer tells, once it has all in hand and cannot record any more."""
    told = made.skillbus("status", "--json").data["submissions"]
    held = told and "wait already" in told[0]["problem"] and told[0]["waiting"] == 0
    return told[0] if held else None


def test_a_stream_that_was_deleted_is_made_again(run_servers: RunServers, tmp_path: Path) -> None:
    outside = OnRedis(run_servers)
    outside.clear()
    with Home(outside, tmp_path)() as runtime, consuming(runtime) as [one]:
        outside.client.delete("skillbus.events")
        outside.put(json.dumps(query()))
        wait_for(lambda: one.consumer.taken == 1)
    outside.clear()
