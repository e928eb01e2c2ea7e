"""Replies to submissions: where they go, how long they are kept, and what they say about skills."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tasks.ingest.preparation import prepare
from tasks.ingest.preparation.prepare import PreparedSkill, UnreadableSkill, prepare_skill
from tests.support.program.program import wait_for
from tests.support.samples.library import write_skill, write_topics
from tests.support.samples.tiny import tiny_backend
from tests.support.servers.servers import RunServers
from tests.support.servers.submitting import (
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
    reply_name,
)
from workers.queue.redis_consumer import GROUP

__all__ = ["outside"]

CELERYS = ("skillbus.plan", "celery")
NO_REPLY_NAMES = (
    *CELERYS,
    "skillbus:journal",
    "skillbus.events",
    "skillbus.replies.",
    "skillbus.replies.*",
    "skillbus.replies.[a-z]?",
    "skillbus.replies.a\r\nDEL x",
    "skillbus.replies.a\0",
    "skillbus.replies.é",
    "x" * 250,
)


def test_replies_go_nowhere_else(outside: Outside, tmp_path: Path) -> None:
    with Home(outside, tmp_path)() as backend, consuming(backend):
        for name in CELERYS:
            outside.listen(name)
        for target in NO_REPLY_NAMES:
            outside.put(json.dumps(query()), target)
            outside.put(json.dumps(query(replyto=target)))
        wait_for(lambda: backend.journal.count_dead_letters() == 2 * len(NO_REPLY_NAMES))
        reasons = [letter.reason for letter in backend.journal.list_dead_letters()]
        assert sum("replies cannot go to" in one for one in reasons) == len(NO_REPLY_NAMES)
        assert sum("replyto: " in one for one in reasons) == len(NO_REPLY_NAMES)
        assert not any("\n" in one or "\r" in one for one in reasons)
        wait_for(lambda: outside.left() == 0)
        assert backend.journal.count_open_jobs("query") == 0
    if isinstance(outside, OnRedis):
        assert set(outside.client.keys()) <= {"skillbus.events"}
    elif isinstance(outside, OnRabbit):
        with outside.channel() as channel:
            for name in CELERYS:
                assert channel.queue_delete(name).method.message_count == 0


def test_a_missing_reply_queue_is_reported_and_delays_no_other(
    run_servers: RunServers, tmp_path: Path
) -> None:
    outside = OnRabbit(run_servers)
    outside.clear()
    name, sent = reply_name(tmp_path), [query() for _ in range(3)]
    full = {"x-max-length": 0, "x-overflow": "reject-publish"}
    with outside.channel() as channel:
        channel.queue_declare(name + "-full", durable=True, arguments=full)
    with Home(outside, tmp_path)() as backend, consuming(backend) as [one]:
        outside.listen(name)
        for each, end in zip(sent, ("-gone", "-full", ""), strict=True):
            outside.put(json.dumps(each), name + end)
        outside.put("no event", name + "-full")
        wait_for(lambda: one.consumer.recorded == 3 and one.consumer.refused == 1)
        for each in sent:
            backend.journal.finish_job(id_of(each), BUNDLE)
        [reply] = outside.replies(name, 1)
        assert reply.event["subject"] == sent[2]["id"]
        wait_for(lambda: backend.journal.list_pending_replies() == [])
        assert one.status()["problem"] == ""
    outside.clear()


def test_reply_streams_are_bounded_and_expire(run_servers: RunServers, tmp_path: Path) -> None:
    outside = OnRedis(run_servers)
    outside.clear()
    name = reply_name(tmp_path)
    limits = {"submissions": {**outside.settings, "replies": 10, "reply_seconds": 100.0}}
    with Home(outside, tmp_path)(**limits) as backend, consuming(backend):
        for _ in range(300):
            outside.put("no event", name)
        wait_for(lambda: backend.journal.count_dead_letters() == 300)
        wait_for(lambda: outside.left() == 0)
        assert outside.client.xlen(name) <= 110
        assert 0 < outside.client.ttl(name) <= 100
        outside.client.set(name + "-text", "no stream")
        outside.put("no event", name + "-text")
        wait_for(lambda: backend.journal.count_dead_letters() == 301)
        wait_for(lambda: outside.left() == 0)
        assert outside.client.get(name + "-text") == "no stream"
    assert outside.client.xinfo_consumers("skillbus.events", GROUP) == []
    outside.clear()


def test_replies_on_rabbitmq_expire(run_servers: RunServers, tmp_path: Path) -> None:
    outside = OnRabbit(run_servers)
    outside.clear()
    name = reply_name(tmp_path)
    limits = {"submissions": {**outside.settings, "reply_seconds": 0.3}}
    with Home(outside, tmp_path)(**limits) as backend, consuming(backend) as [one]:
        outside.listen(name)
        outside.put("no event", name)
        wait_for(lambda: one.consumer.refused == 1)
        time.sleep(2)
        assert outside.replies(name, 1, 0.3) == []
        outside.put("a-" + "b" * 2_000_000, encoding="punycode")  # minutes to decode
        wait_for(lambda: one.consumer.refused == 2)
    outside.clear()


def test_skills_are_reported_once_they_are_settled(outside: Outside, tmp_path: Path) -> None:
    root = write_topics(tmp_path / "crafts")
    (root / "empty").mkdir()
    (root / "empty" / "SKILL.md").write_text("")
    name = reply_name(tmp_path)
    given: dict[str, Any] = {"submissions": {**outside.settings, "roots": [str(tmp_path)]}}

    def changed(**data: Any) -> str:
        data = {"source_id": "crafts", "root": str(root)} | data
        return json.dumps(event("skillbus.source.changed.v1", data))

    with tiny_backend(tmp_path / "home", **given) as backend, consuming(backend):
        outside.listen(name)
        outside.put(changed(), name, "all")
        replies = outside.replies(name, 11)
        kinds = [one.type for one in replies]
        assert kinds.count("skillbus.skill.published.v1") == 10
        assert kinds.count("skillbus.skill.failed.v1") == 1
        published = backend.graph.get_changes_since(0).pointers
        for one in replies:
            if one.type == "skillbus.skill.published.v1":
                assert published[one.data["skill_id"]] >= one.data["revision"]["seq"]
            else:
                assert (one.data["skill_id"], one.correlation_id) == ("crafts:empty", "all")
        # One of them changes: it is reported, and what is still broken.
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
        wait_for(lambda: backend.journal.list_pending_replies() == [])


def test_waiting_for_skills_ends_with_a_report_after_a_while(
    run_servers: RunServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = OnRedis(run_servers)
    outside.clear()
    root, name = write_topics(tmp_path / "crafts"), reply_name(tmp_path)
    submissions = {**outside.settings, "roots": [str(tmp_path)], "settle_seconds": 0.3}
    reported = threading.Event()

    def prepare_late(*args: Any) -> PreparedSkill | UnreadableSkill:
        reported.wait(120)
        return prepare_skill(*args)

    monkeypatch.setattr(prepare, "prepare_skill", prepare_late)
    sent = event("skillbus.source.changed.v1", {"source_id": "crafts", "root": str(root)})
    with (
        tiny_backend(tmp_path / "home", submissions=submissions) as backend,
        consuming(backend),
    ):
        outside.put(json.dumps(sent), name)
        replies = outside.replies(name, 10)
        assert {one.type for one in replies} == {"skillbus.skill.failed.v1"}
        assert "still waits" in replies[0].data["reason"]
        reported.set()
    outside.clear()
