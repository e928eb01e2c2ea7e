"""Replies on Redis: streams that expire, and keys of another type, which are left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from config.inbound_settings import SubmissionSettings
from config.server_settings import ServerSettings
from config.settings import Settings
from skills.events import QueryFailed, new_event
from tasks.broker.redis_connection import connect
from tests.support.servers.redis_database import redis_settings
from workers.queue.broker import get_submission_broker
from workers.queue.redis_reply_publisher import RedisReplyPublisher

__all__ = ["redis_settings"]


def test_a_reply_expires_and_a_key_of_another_type_is_left_as_it_is(
    redis_settings: ServerSettings, tmp_path: Path
) -> None:
    submissions = SubmissionSettings(
        broker=redis_settings.redis, broker_password_file=redis_settings.redis_password_file
    )
    broker = get_submission_broker(
        Settings(home=tmp_path, servers=redis_settings, submissions=submissions)
    )
    publisher = RedisReplyPublisher(broker)
    reply = new_event(QueryFailed(query_id="q", reason="too late"), "skillbus/test")
    with connect(redis_settings) as connected:
        client: Any = connected  # its types are those of all protocol versions
        assert publisher.send("skillbus.replies.me", reply)
        [(_, fields)] = client.xrange("skillbus.replies.me")
        assert fields["event"] == reply.model_dump_json()
        lives = client.pttl("skillbus.replies.me")
        assert 0 < lives <= submissions.reply_seconds * 1000
        client.rpush("skillbus.replies.list", "of another program")
        assert not publisher.send("skillbus.replies.list", reply)
        assert client.ttl("skillbus.replies.list") == -1
        client.delete("skillbus.replies.me", "skillbus.replies.list")
    publisher.close()
