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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from config.errors import NotFoundError
from config.settings import Settings
from skills.events import parse_event
from tasks.journal import Job, job_id
from tests.support.library import write_skill, write_topics
from tests.support.program import ROOT, wait_for
from tests.support.servers import RunServers, ServerControls
from tests.support.submitting import (
    OnRabbit,
    OnRedis,
    Outside,
    event,
    query,
    reply_name,
)
from tests.support.tiny import TinyEncoder, tiny_runtime
from workers.runtime import Runtime
from workers.submissions.redis_streams import GROUP
from workers.submissions.service import Submissions

SECONDS = 20.0
BUNDLE = {
    "query_id": "q",
    "status": "NO_SKILL_HIT",
    "reason": "the library holds no skill yet",
    "task": "x",
    "budget": 100,
    "degraded": [],
    "timings_ms": {},
}


@pytest.fixture(params=["redis", "rabbitmq"])
def outside(request: pytest.FixtureRequest, run_servers: RunServers) -> Iterator[Outside]:
    made: Outside = OnRedis(run_servers) if request.param == "redis" else OnRabbit(run_servers)
    made.clear()
    yield made
    made.clear()


@contextmanager
def idle(home: Path, outside: Outside, **groups: Any) -> Iterator[Runtime]:
    """A deployment whose workers are not started: what is accepted stays open until a test ends
    it."""
    given = {"submissions": {**outside.settings, "claim_seconds": 1.0}} | groups
    settings = Settings(**given).model_copy(update={"home": home})
    runtime = Runtime(settings, writable=True, encoder=TinyEncoder())
    try:
        yield runtime
    finally:
        runtime.stop()


@contextmanager
def consuming(runtime: Runtime, count: int = 1) -> Iterator[list[Submissions]]:
    """So many consumers and relays, connected."""
    with ExitStack() as stack:
        made = [stack.enter_context(Submissions(runtime)) for _ in range(count)]
        wait_for(lambda: all(one.consumer.connected.is_set() for one in made))
        yield made


def id_of(sent: dict[str, Any]) -> str:
    return job_id(parse_event(json.dumps(sent)))


def recorded(runtime: Runtime, sent: dict[str, Any]) -> Job | None:
    try:
        return runtime.journal.job(id_of(sent))
    except NotFoundError:
        return None


def test_a_query_is_recorded_answered_and_confirmed(outside: Outside, tmp_path: Path) -> None:
    name, asked = reply_name(tmp_path), query()
    with idle(tmp_path, outside) as runtime, consuming(runtime):
        outside.listen(name)
        outside.put(json.dumps(asked), name, "call-7")
        job = wait_for(lambda: recorded(runtime, asked))
        assert (job.kind, job.state, job.event.replyto) == ("query", "accepted", name)
        assert job.seconds_left > 3000
        wait_for(lambda: outside.left() == 0)
        started = time.monotonic()
        runtime.journal.finish(job.id, BUNDLE)
        [reply] = outside.replies(name, 1)
        assert time.monotonic() - started < 1
        assert reply.type == "skillbus.query.answered.v1"
        assert reply.data["status"] == "NO_SKILL_HIT"
        assert reply.correlation_id == reply.event["correlationid"] == "call-7"
        assert reply.event["subject"] == asked["id"]
        wait_for(lambda: runtime.journal.unreplied() == [])


def test_attributes_of_the_event_are_worth_as_much(outside: Outside, tmp_path: Path) -> None:
    name = reply_name(tmp_path)
    asked = query(replyto=name, correlationid="inside")
    with idle(tmp_path, outside) as runtime, consuming(runtime):
        outside.listen(name)
        outside.put(json.dumps(asked), name, "inside")
        job = wait_for(lambda: recorded(runtime, asked))
        runtime.journal.fail(job.id, "no index")
        [reply] = outside.replies(name, 1)
        assert (reply.type, reply.data["reason"]) == ("skillbus.query.failed.v1", "no index")
        assert reply.correlation_id == "inside"
        outside.put(json.dumps(query(replyto=name)), name + "x")
        [refused] = outside.replies(name + "x", 1, 3) if outside.name == "redis" else [None]
        wait_for(lambda: runtime.journal.count_letters() == 1)
        assert "not the same" in runtime.journal.letters()[0].reason
        assert refused is None or refused.type == "skillbus.message.refused.v1"


def test_the_same_event_is_done_and_answered_once(outside: Outside, tmp_path: Path) -> None:
    name, asked = reply_name(tmp_path), query()
    with idle(tmp_path, outside) as runtime, consuming(runtime, 2) as consumers:
        outside.listen(name)
        for _ in range(4):
            outside.put(json.dumps(asked), name)
        wait_for(lambda: sum(one.consumer.taken for one in consumers) == 4)
        runtime.journal.finish(id_of(asked), BUNDLE)
        assert len(outside.replies(name, 2, 1.0)) == 1
        outside.put(json.dumps(asked), name)
        wait_for(lambda: sum(one.consumer.taken for one in consumers) == 5)
        assert outside.replies(name, 1, 0.5) == []
        assert runtime.journal.count_open("query") == 0


REFUSED = {
    "no JSON": (b"\xff\xfe not json", "not a CloudEvents"),
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


def test_what_is_no_submission_is_buried_and_its_sender_told(
    outside: Outside, tmp_path: Path
) -> None:
    name = reply_name(tmp_path)
    limits = {"submissions": {**outside.settings, "message_bytes": 10_000}}
    with idle(tmp_path, outside, **limits) as runtime, consuming(runtime) as [one]:
        outside.listen(name)
        for body, reason in REFUSED.values():
            outside.put(body, name, "c-1")
            [reply] = outside.replies(name, 1)
            assert reply.type == "skillbus.message.refused.v1"
            assert reason in reply.data["reason"]
            assert reply.correlation_id == "c-1"
            letter = runtime.journal.letter(reply.data["letter_id"])
            assert reason in letter.reason
            assert letter.body == body.decode("utf-8", "replace")[:16_384]
        wait_for(lambda: outside.left() == 0)
        assert (one.consumer.taken, one.consumer.refused) == (0, len(REFUSED))
        assert runtime.journal.count_open("query") == runtime.journal.count_open("event") == 0


CELERYS = ("skillbus.plan", "celery")


@pytest.mark.parametrize("target", [*CELERYS, "skillbus:journal", "a\nb", "x" * 250])
def test_replies_go_nowhere_else(outside: Outside, tmp_path: Path, target: str) -> None:
    with idle(tmp_path, outside) as runtime, consuming(runtime):
        if target in CELERYS:
            outside.listen(target)
        outside.put(json.dumps(query()), target)
        wait_for(lambda: runtime.journal.count_letters() == 1)
        assert "replies cannot go to" in runtime.journal.letters()[0].reason
        wait_for(lambda: outside.left() == 0)
        assert runtime.journal.count_open("query") == 0
    if isinstance(outside, OnRedis):
        assert set(outside.client.keys()) <= {"skillbus.events"}
    elif target in CELERYS:
        with outside.channel() as channel:  # type: ignore[attr-defined]
            assert channel.queue_delete(target).method.message_count == 0


def test_an_entry_without_an_event_is_buried(run_servers: RunServers, tmp_path: Path) -> None:
    outside = OnRedis(run_servers)
    outside.clear()
    with idle(tmp_path, outside) as runtime, consuming(runtime):
        name = reply_name(tmp_path)
        outside.client.xadd("skillbus.events", {"evnet": "{}", "reply_to": name})
        [reply] = outside.replies(name, 1)
        assert "no field 'event'" in reply.data["reason"]
        assert '"evnet"' in runtime.journal.letters()[0].body
    outside.clear()


def test_a_reply_queue_that_is_not_there_is_told_and_holds_up_nobody(
    run_servers: RunServers, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outside = OnRabbit(run_servers)
    outside.clear()
    name, lost, other = reply_name(tmp_path), query(), query()
    with idle(tmp_path, outside) as runtime, consuming(runtime):
        outside.listen(name)
        outside.put(json.dumps(lost), name + "-gone")
        outside.put(json.dumps(other), name)
        wait_for(lambda: runtime.journal.count_open("query") == 2)
        for sent in (lost, other):
            runtime.journal.finish(id_of(sent), BUNDLE)
        assert outside.replies(name, 1)
        wait_for(lambda: runtime.journal.unreplied() == [])
    outside.clear()


def test_too_many_wait_and_nothing_is_lost(outside: Outside, tmp_path: Path) -> None:
    sent = [query() for _ in range(6)]
    with idle(tmp_path, outside, workers={"open_queries": 2}) as runtime:
        with consuming(runtime) as [one]:
            for each in sent:
                outside.put(json.dumps(each))
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
    from workers.runtime import Runtime
    from workers.submissions.broker import broker_of, open_carrier
    from workers.submissions.intake import Intake

    settings, moment = pickle.loads(bytes.fromhex(sys.argv[1]))
    runtime = Runtime(settings, writable=True, encoder=TinyEncoder())
    carrier = open_carrier(broker_of(settings), "victim")
    os.write(1, b"ready\\n")
    while not (found := carrier.receive(0.5, 10)):
        pass
    if moment == "recorded":
        Intake(runtime).take(found[0].message)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("moment", ["read", "recorded"])
def test_what_a_killed_consumer_held_comes_again(
    outside: Outside, tmp_path: Path, moment: str
) -> None:
    name, asked = reply_name(tmp_path), query()
    with idle(tmp_path, outside) as runtime:
        settings = runtime.settings
        with consuming(runtime):  # makes the queue
            outside.listen(name)
    outside.put(json.dumps(asked), name)
    argument = pickle.dumps((settings, moment)).hex()
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(VICTIM), argument],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == -signal.SIGKILL, run.stderr
    with idle(tmp_path, outside) as runtime:
        assert (recorded(runtime, asked) is not None) == (moment == "recorded")
        with consuming(runtime) as [one]:
            wait_for(lambda: one.consumer.taken == 1)
            wait_for(lambda: outside.left() == 0)
            assert runtime.journal.open_jobs("query") == [id_of(asked)]
            runtime.journal.finish(id_of(asked), BUNDLE)
            assert len(outside.replies(name, 2, 1.0)) == 1


def test_two_consumers_share_and_one_relay_replies(outside: Outside, tmp_path: Path) -> None:
    name, sent = reply_name(tmp_path), [query() for _ in range(60)]
    with idle(tmp_path, outside) as runtime, consuming(runtime, 2) as consumers:
        outside.listen(name)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda each: outside.put(json.dumps(each), name), sent))
        wait_for(lambda: runtime.journal.count_open("query") == len(sent))
        for each in sent:
            runtime.journal.finish(id_of(each), BUNDLE)
        replies = outside.replies(name, len(sent))
        assert {one.event["subject"] for one in replies} == {each["id"] for each in sent}
        assert outside.replies(name, 1, 0.3) == []
        assert sum(one.consumer.taken for one in consumers) == len(sent)
        assert all(one.consumer.taken for one in consumers)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["redis"])
def test_a_broker_that_was_killed_comes_back(
    servers: ServerControls, run_servers: RunServers, tmp_path: Path, kind: str
) -> None:
    server = servers[kind]
    outside: Outside = OnRedis(run_servers) if kind == "redis" else OnRabbit(run_servers)
    outside.clear()
    name, before, after = reply_name(tmp_path), query(), query()
    with idle(tmp_path, outside) as runtime, consuming(runtime) as [one]:
        outside.listen(name)
        outside.put(json.dumps(before), name)
        wait_for(lambda: one.consumer.taken == 1)
        server.kill()
        runtime.journal.finish(id_of(before), BUNDLE)
        wait_for(lambda: "does not answer" in one.consumer.problem, SECONDS)
        wait_for(lambda: one.relay.problem, SECONDS)
        assert runtime.journal.unreplied() == [id_of(before)]
        server.start_again()
        wait_for(lambda: one.status()["problem"] == "", 3 * SECONDS)
        outside.put(json.dumps(after), name)
        wait_for(lambda: one.consumer.taken == 2)
        runtime.journal.finish(id_of(after), BUNDLE)
        replies = outside.replies(name, 2)
        assert {each.event["subject"] for each in replies} == {before["id"], after["id"]}
        outside.clear()


def test_reply_streams_are_bounded_and_expire(run_servers: RunServers, tmp_path: Path) -> None:
    outside = OnRedis(run_servers)
    outside.clear()
    name = reply_name(tmp_path)
    limits = {"submissions": {**outside.settings, "replies": 10, "reply_seconds": 100.0}}
    with idle(tmp_path, outside, **limits) as runtime, consuming(runtime):
        for _ in range(300):
            outside.put("no event", name)
        wait_for(lambda: runtime.journal.count_letters() == 300)
        wait_for(lambda: outside.left() == 0)
        assert outside.client.xlen(name) <= 110
        assert 0 < outside.client.ttl(name) <= 100
        outside.client.set(name + "-text", "no stream")
        outside.put("no event", name + "-text")
        wait_for(lambda: runtime.journal.count_letters() == 301)
        wait_for(lambda: outside.left() == 0)
        assert outside.client.get(name + "-text") == "no stream"
    assert outside.client.xinfo_consumers("skillbus.events", GROUP) == []
    outside.clear()


def test_replies_on_rabbitmq_expire(run_servers: RunServers, tmp_path: Path) -> None:
    outside = OnRabbit(run_servers)
    outside.clear()
    name = reply_name(tmp_path)
    limits = {"submissions": {**outside.settings, "reply_seconds": 0.3}}
    with idle(tmp_path, outside, **limits) as runtime, consuming(runtime) as [one]:
        outside.listen(name)
        outside.put("no event", name)
        wait_for(lambda: one.consumer.refused == 1)
        time.sleep(0.6)
        assert outside.replies(name, 1, 0.3) == []
        started = time.monotonic()
        outside.put("a-" + "b" * 400_000, encoding="punycode")  # a quarter of a minute to decode
        outside.put(json.dumps(query()).encode(), encoding="none such")
        wait_for(lambda: (one.consumer.refused, one.consumer.taken) == (2, 1))
        assert time.monotonic() - started < 8
    outside.clear()


def test_a_stream_that_was_deleted_is_made_again(run_servers: RunServers, tmp_path: Path) -> None:
    outside = OnRedis(run_servers)
    outside.clear()
    with idle(tmp_path, outside) as runtime, consuming(runtime) as [one]:
        outside.client.delete("skillbus.events")
        outside.put(json.dumps(query()))
        wait_for(lambda: one.consumer.taken == 1)
    outside.clear()


def test_skills_are_told_once_they_are_settled(outside: Outside, tmp_path: Path) -> None:
    root = write_topics(tmp_path / "crafts")
    (root / "empty").mkdir()
    (root / "empty" / "SKILL.md").write_text("")
    name = reply_name(tmp_path)
    given = {"submissions": {**outside.settings, "roots": [str(tmp_path)]}}

    def changed(**data: Any) -> str:
        data = {"source_id": "crafts", "root": str(root)} | data
        return json.dumps(event("skillbus.source.changed.v1", data))

    with tiny_runtime(tmp_path / "home", **given) as runtime, consuming(runtime):
        outside.listen(name)
        outside.put(changed(), name, "all")
        replies = outside.replies(name, 11)
        kinds = [one.type for one in replies]
        assert kinds.count("skillbus.skill.published.v1") == 10
        assert kinds.count("skillbus.skill.failed.v1") == 1
        published = runtime.graph.changes(0).pointers
        for one in replies:
            if one.type == "skillbus.skill.published.v1":
                assert published[one.data["skill_id"]] >= one.data["revision"]["seq"]
            else:
                assert (one.data["skill_id"], one.correlation_id) == ("crafts:empty", "all")
        # One of them changes: that one is told, and what is broken still.
        write_skill(root, "bee-keeping", "Another description of bees")
        outside.put(changed(root="", paths=["bee-keeping/SKILL.md"]), name, "one")
        [one] = outside.replies(name, 1)
        assert one.data["skill_id"] == "crafts:bee-keeping"
        asked = query("inspect a bee hive")
        outside.put(json.dumps(asked), name)
        [answer] = outside.replies(name, 1)
        assert answer.data["skills"][0]["skill_id"] == "crafts:bee-keeping"
        outside.put(json.dumps(event("skillbus.skill.removed.v1", {"skill_id": "no:such"})), name)
        [failed] = outside.replies(name, 1)
        assert failed.type == "skillbus.skill.failed.v1"
        assert "no skill no:such" in failed.data["reason"]
        wait_for(lambda: runtime.journal.unreplied() == [])


def test_who_waits_for_skills_is_told_after_a_while(
    run_servers: RunServers, tmp_path: Path
) -> None:
    outside = OnRedis(run_servers)
    outside.clear()
    root, name = write_topics(tmp_path / "crafts"), reply_name(tmp_path)
    given = {"submissions": {**outside.settings, "roots": [str(tmp_path)], "settle_seconds": 0.3}}
    held = TinyEncoder(lambda _: time.sleep(1.5))
    sent = event("skillbus.source.changed.v1", {"source_id": "crafts", "root": str(root)})
    with tiny_runtime(tmp_path / "home", held, **given) as runtime, consuming(runtime):
        outside.put(json.dumps(sent), name)
        replies = outside.replies(name, 10)
        assert {one.type for one in replies} == {"skillbus.skill.failed.v1"}
        assert "still waits" in replies[0].data["reason"]
    outside.clear()
