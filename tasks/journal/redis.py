"""The journal of the distributed deployment, in Redis: jobs, outbox and dead letters.

Each job is a hash; sorted sets by time list the open and ended jobs and the outbox. Writes
that belong together are one Lua script, which Redis runs atomically. All times are of the clock of
Redis, so that the clocks of producers and workers need not agree. If that clock is set back, open
jobs keep their order.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any, get_args

from redis import Redis
from typing_extensions import override

from config.server_settings import ServerSettings
from skills.batches import batches
from skills.events import SKILL_UPSERTED, Event, parse_envelope
from tasks.broker.redis_connection import PREFIX, rewrite_log
from tasks.journal.protocol import (
    MAX_ASKED,
    AskedQuery,
    EndedJobs,
    Job,
    JobKind,
    Journal,
    job_id,
    quote_skill,
    wants_reply,
)
from tasks.journal.redis_work_records import RedisWorkRecords

_JOB = PREFIX + "job:"
_OPEN = PREFIX + "open:"
_ENDED = PREFIX + "ended:"
_OUTBOX = PREFIX + "outbox"
_ASKED = PREFIX + "asked:"
"""Prefix of a sorted set per owner, of its newest queries by time. Deleted queries stay in it until
newer ones replace them, or the owner sends no query for `_ASKED_SECONDS`."""
_ENDED_SESSION = PREFIX + "ended-session:"
_BELL = PREFIX + "outbox:bell"
"""A list of at most one item, pushed when a job enters the outbox: wakes a blocked reader."""
_STATE_KEYS = (_OPEN, _ENDED, _OUTBOX, _BELL)
_BATCH_SIZE = 500
_ASKED_SECONDS = 30 * 86_400

_NOW = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
"""

_ADD_JOB = f"""
if redis.call('EXISTS', KEYS[1]) == 1 then
    -- A client repeats a call whose answer was lost.
    return redis.call('HGET', KEYS[1], 'call') == ARGV[6] and 1 or 0
end
{_NOW}
local expires = ''
if ARGV[4] ~= '' then expires = string.format('%.6f', now + ARGV[4]) end
redis.call('HSET', KEYS[1], 'kind', ARGV[2], 'payload', ARGV[3], 'state', 'accepted',
    'reason', '', 'accepted', string.format('%.6f', now), 'expires', expires, 'owed', ARGV[5],
    'call', ARGV[6])
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
local place = math.max(now, (tonumber(last) or 0) + 0.000001)
redis.call('ZADD', KEYS[2], string.format('%.6f', place), ARGV[1])
if ARGV[2] == 'query' then
    redis.call('ZADD', KEYS[3], string.format('%.6f', now), ARGV[1])
    redis.call('ZREMRANGEBYRANK', KEYS[3], 0, -1 - {MAX_ASKED})
    redis.call('EXPIRE', KEYS[3], {_ASKED_SECONDS})
end
return 1
"""

_READ_JOBS = f"""
{_NOW}
local found = {{}}
for place, key in ipairs(KEYS) do
    local values = redis.call('HGETALL', key)
    if #values > 0 then
        values[#values + 1] = 'now'
        values[#values + 1] = string.format('%.6f', now)
    end
    found[place] = values
end
return found
"""

_END_JOB = f"""
if redis.call('HGET', KEYS[1], 'state') ~= 'accepted' then return 0 end
local kind = redis.call('HGET', KEYS[1], 'kind')
{_NOW}
redis.call('HSET', KEYS[1], 'state', ARGV[2], 'outcome', ARGV[3], 'reason', ARGV[4])
redis.call('HDEL', KEYS[1], 'stages')
redis.call('ZREM', KEYS[2] .. kind, ARGV[1])
redis.call('ZADD', KEYS[3] .. kind, string.format('%.6f', now), ARGV[1])
if redis.call('HGET', KEYS[1], 'owed') == '1' then
    redis.call('ZADD', KEYS[4], string.format('%.6f', now), ARGV[1])
    redis.call('LPUSH', KEYS[5], '')
    redis.call('LTRIM', KEYS[5], 0, 0)
end
return 1
"""

_START_STAGE = """
if redis.call('HGET', KEYS[1], 'state') ~= 'accepted' then return 0 end
local before = redis.call('HGET', KEYS[1], 'stages')
redis.call('HSET', KEYS[1], 'stages', before and before .. ' ' .. ARGV[1] or ARGV[1])
return 1
"""

_GET_OLDEST_AGE = f"""
{_NOW}
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if #first == 0 then return '0' end
return string.format('%.6f', now - first[2])
"""

_REOPEN_JOB = """
if redis.call('HGET', KEYS[1], 'state') ~= 'failed' then return 0 end
local kind = redis.call('HGET', KEYS[1], 'kind')
redis.call('HSET', KEYS[1], 'state', 'accepted', 'outcome', '', 'reason', '')
redis.call('ZREM', KEYS[3] .. kind, ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('ZADD', KEYS[2] .. kind, redis.call('HGET', KEYS[1], 'accepted'), ARGV[1])
return 1
"""

_DELETE_JOBS = """
local dropped = 0
for place, job in ipairs(ARGV) do
    if redis.call('ZREM', KEYS[1], job) == 1 then
        redis.call('ZREM', KEYS[2], job)
        redis.call('DEL', KEYS[2 + place])
        dropped = dropped + 1
    end
end
return dropped
"""

_MARK_REPLIED = """
redis.call('ZREM', KEYS[2], ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], 'owed', '0') end
"""


class RedisJournal(RedisWorkRecords, Journal):
    """The journal in Redis, which must persist its data (append-only file) and never evict it.

    Every call raises TransientError while Redis is away.
    """

    def __init__(self, client: Redis, settings: ServerSettings) -> None:
        super().__init__(client, settings)
        self._add_job = client.register_script(_ADD_JOB)
        self._read_jobs = client.register_script(_READ_JOBS)
        self._end_job = client.register_script(_END_JOB)
        self._start_stage = client.register_script(_START_STAGE)
        self._get_oldest_age = client.register_script(_GET_OLDEST_AGE)
        self._reopen_job = client.register_script(_REOPEN_JOB)
        self._delete_jobs = client.register_script(_DELETE_JOBS)
        self._mark_replied = client.register_script(_MARK_REPLIED)

    @override
    def add_job(self, event: Event, kind: JobKind, ttl_seconds: float | None = None) -> bool:
        own_id = job_id(event)
        ttl = "" if ttl_seconds is None else repr(ttl_seconds)
        reply = "1" if wants_reply(event) else "0"
        values = [own_id, kind, event.model_dump_json(), ttl, reply, secrets.token_hex(8)]
        keys = [_JOB + own_id, _OPEN + kind, _ASKED + event.owner]
        with self._connected():
            return bool(self._add_job(keys=keys, args=values))

    @override
    def finish_job(self, job_id: str, outcome: dict[str, Any] | None = None) -> bool:
        return self._end(job_id, "done", outcome, "")

    @override
    def fail_job(self, job_id: str, reason: str, *, usage: bool = False) -> None:
        self._end(job_id, "failed", {"usage": True} if usage else None, reason)

    @override
    def cancel_job(self, job_id: str) -> bool:
        return self._end(job_id, "cancelled", None, "")

    def _end(self, job_id: str, state: str, outcome: dict[str, Any] | None, reason: str) -> bool:
        text = "" if outcome is None else json.dumps(outcome, ensure_ascii=False)
        keys = [_JOB + job_id, *_STATE_KEYS]
        with self._connected():
            return bool(self._end_job(keys=keys, args=[job_id, state, text, reason]))

    @override
    def start_stage(self, job_id: str, stage: str) -> bool:
        with self._connected():
            return bool(self._start_stage(keys=[_JOB + job_id], args=[stage]))

    @override
    def list_stages(self, job_id: str) -> list[str]:
        with self._connected() as client:
            return (client.hget(_JOB + job_id, "stages") or "").split()

    @override
    def reopen_jobs(self, job_ids: Sequence[str]) -> None:
        with self._connected():
            for one in job_ids:
                self._reopen_job(keys=[_JOB + one, *_STATE_KEYS], args=[one])

    @override
    def get_jobs(self, job_ids: Sequence[str]) -> dict[str, Job]:
        with self._connected():
            rows: Any = self._read_jobs(keys=[_JOB + job_id for job_id in job_ids])
        return {
            job_id: _to_job(job_id, dict(zip(row[::2], row[1::2], strict=True)))
            for job_id, row in zip(job_ids, rows, strict=True)
            if row
        }

    @override
    def list_open_jobs(self, kind: JobKind, limit: int = 10_000) -> list[str]:
        with self._connected() as client:
            return list(client.zrange(_OPEN + kind, 0, limit - 1))

    @override
    def count_open_jobs(self, kind: JobKind) -> int:
        with self._connected() as client:
            return int(client.zcard(_OPEN + kind))

    @override
    def get_oldest_job_age(self, kind: JobKind) -> float:
        with self._connected():
            age: Any = self._get_oldest_age(keys=[_OPEN + kind])
        return max(0.0, float(age))

    @override
    def get_job_states(self, job_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        with self._connected() as client, client.pipeline(transaction=False) as pipeline:
            for one in job_ids:
                pipeline.hmget(_JOB + one, "state", "reason")
            found = zip(job_ids, pipeline.execute(), strict=True)
        return {one: (state, reason or "") for one, (state, reason) in found if state}

    @override
    def list_ended_jobs(self, kind: JobKind, since: float, state: str = "done") -> EndedJobs:
        with self._connected() as client:
            seconds, micros = client.time()
            ids = client.zrangebyscore(_ENDED + kind, f"{since:.6f}", "+inf")
        states = self.get_job_states(ids)
        ended = tuple(one for one in ids if states.get(one, ("", ""))[0] == state)
        return EndedJobs(ended, seconds + micros / 1e6)

    @override
    def list_asked(self, owner: str) -> list[AskedQuery]:
        with self._connected() as client:
            ids = client.zrevrange(_ASKED + owner, 0, -1)
            with client.pipeline(transaction=False) as pipeline:
                for one in ids:
                    pipeline.hmget(_JOB + one, "payload", "state", "accepted")
                found = zip(ids, pipeline.execute(), strict=True)
        return [
            AskedQuery(one, json.loads(payload)["data"].get("task", ""), state, float(accepted))
            for one, (payload, state, accepted) in found
            if payload
        ]

    @override
    def end_session(self, session_id: str, seconds: float) -> None:
        with self._connected() as client:
            client.set(_ENDED_SESSION + session_id, "", px=int(seconds * 1_000))

    @override
    def is_session_ended(self, session_id: str) -> bool:
        with self._connected() as client:
            return bool(client.exists(_ENDED_SESSION + session_id))

    @override
    def delete_ended_jobs(self, kind: JobKind, age_seconds: float) -> int:
        deleted = 0
        with self._connected() as client:
            seconds, micros = client.time()
            before = f"({seconds + micros / 1e6 - age_seconds:.6f}"
            while ids := client.zrange(
                _ENDED + kind, "-inf", before, byscore=True, offset=0, num=_BATCH_SIZE
            ):
                keys = [_ENDED + kind, _OUTBOX, *(_JOB + one for one in ids)]
                deleted += int(self._delete_jobs(keys=keys, args=ids))
        return deleted

    @override
    def forget_skill(self, skill_id: str) -> int:
        self._delete_reasons()
        named, upserted = quote_skill(skill_id), quote_skill(SKILL_UPSERTED)
        with self._connected() as client:
            ids = client.zrange(_OPEN + "event", 0, -1)
        for batch in batches(ids, _BATCH_SIZE):
            found = self._read_hashes([_JOB + one for one in batch])
            for one, values in zip(batch, found, strict=True):
                payload = values.get("payload", "")
                if named in payload and upserted in payload:
                    self.cancel_job(one)
        return sum(self._forget_ended(kind, named) for kind in get_args(JobKind))

    def _forget_ended(self, kind: str, named: str) -> int:
        with self._connected() as client:
            ids = client.zrange(_ENDED + kind, 0, -1)
        deleted = 0
        for batch in batches(ids, _BATCH_SIZE):
            found = self._read_hashes([_JOB + one for one in batch])
            naming = [
                one
                for one, values in zip(batch, found, strict=True)
                if named in values.get("payload", "") or named in values.get("outcome", "")
            ]
            if naming:
                keys = [_ENDED + kind, _OUTBOX, *(_JOB + one for one in naming)]
                with self._connected():
                    deleted += int(self._delete_jobs(keys=keys, args=naming))
        return deleted

    @override
    def overwrite_deleted(self) -> None:
        """Request a rewrite of the append-only file, which holds the deleted values until then."""
        with self._connected() as client:
            rewrite_log(client)

    @override
    def list_pending_replies(self, limit: int = 100) -> list[str]:
        with self._connected() as client:
            return list(client.zrange(_OUTBOX, 0, limit - 1))

    @override
    def mark_replied(self, job_id: str) -> None:
        with self._connected():
            self._mark_replied(keys=[_JOB + job_id, _OUTBOX], args=[job_id])

    @override
    def wait_for_pending_reply(self, seconds: float) -> None:
        """Wait for a job; each job wakes only one of several waiting processes."""
        # The socket would time out first if the block lasted as long as its own timeout, or without
        # limit, which is what 0 means.
        timeout = max(0.001, min(seconds, self._settings.timeout_seconds / 2))
        with self._connected() as client:
            client.blpop([_BELL], timeout=timeout)


def _to_job(job_id: str, values: dict[str, str]) -> Job:
    outcome, expires = values.get("outcome"), values["expires"]
    return Job(
        id=job_id,
        kind=values["kind"],
        event=parse_envelope(values["payload"]),
        state=values["state"],
        outcome=json.loads(outcome) if outcome else None,
        reason=values["reason"],
        accepted=float(values["accepted"]),
        expires_in_seconds=float(expires) - float(values.get("now", expires)) if expires else None,
    )
