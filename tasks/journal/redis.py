"""The journal of the distributed deployment, in Redis.

A job is a hash; sorted sets by time name those that are open and those that have ended. What
belongs together is written by a script, which Redis runs as a whole. All times are of the clock of
Redis, so that the clocks of producers and workers need not agree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from redis import Redis

from config.errors import NotFoundError
from config.settings import ServerSettings
from skills.events import Event, parse_event
from tasks.broker.redis_connection import PREFIX, translate_errors
from tasks.journal import protocol
from tasks.journal.protocol import DeadLetter, Job, JobKind, job_id, wants_reply

_JOB = PREFIX + "job:"
_OPEN = PREFIX + "open:"
_ENDED = PREFIX + "ended:"
_FAILED = PREFIX + "failed"
_OUTBOX = PREFIX + "outbox"
_BELL = PREFIX + "outbox:bell"
_LETTERS = PREFIX + "letters"
_LETTER = PREFIX + "letter:"
_AT_ONCE = 500

_NOW = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
"""

_ACCEPT = f"""
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
{_NOW}
local expires = ''
if ARGV[4] ~= '' then expires = string.format('%.6f', now + ARGV[4]) end
redis.call('HSET', KEYS[1], 'kind', ARGV[2], 'payload', ARGV[3], 'state', 'accepted',
    'reason', '', 'accepted', string.format('%.6f', now), 'expires', expires, 'owed', ARGV[5])
redis.call('ZADD', KEYS[2], string.format('%.6f', now), ARGV[1])
return 1
"""

_READ = f"""
{_NOW}
local values = redis.call('HGETALL', KEYS[1])
if #values > 0 then
    values[#values + 1] = 'now'
    values[#values + 1] = string.format('%.6f', now)
end
return values
"""

_END = f"""
if redis.call('HGET', KEYS[1], 'state') ~= 'accepted' then return 0 end
local kind = redis.call('HGET', KEYS[1], 'kind')
{_NOW}
redis.call('HSET', KEYS[1], 'state', ARGV[2], 'outcome', ARGV[3], 'reason', ARGV[4])
redis.call('HDEL', KEYS[1], 'stages')
redis.call('ZREM', KEYS[2] .. kind, ARGV[1])
redis.call('ZADD', KEYS[3] .. kind, string.format('%.6f', now), ARGV[1])
if ARGV[2] == 'failed' then
    redis.call('ZADD', KEYS[4], string.format('%.6f', now), ARGV[1])
end
if redis.call('HGET', KEYS[1], 'owed') == '1' then
    redis.call('ZADD', KEYS[5], string.format('%.6f', now), ARGV[1])
    redis.call('LPUSH', KEYS[6], '')
    redis.call('LTRIM', KEYS[6], 0, 0)
end
return 1
"""

_GO_ON = """
if redis.call('HGET', KEYS[1], 'state') ~= 'accepted' then return 0 end
local before = redis.call('HGET', KEYS[1], 'stages')
redis.call('HSET', KEYS[1], 'stages', before and before .. ' ' .. ARGV[1] or ARGV[1])
return 1
"""

_AGE = f"""
{_NOW}
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if #first == 0 then return '0' end
return string.format('%.6f', now - first[2])
"""

_REOPEN = """
if redis.call('HGET', KEYS[1], 'state') ~= 'failed' then return 0 end
local kind = redis.call('HGET', KEYS[1], 'kind')
redis.call('HSET', KEYS[1], 'state', 'accepted', 'reason', '')
redis.call('ZREM', KEYS[3] .. kind, ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
redis.call('ZADD', KEYS[2] .. kind, redis.call('HGET', KEYS[1], 'accepted'), ARGV[1])
return 1
"""

_DROP = """
local dropped = 0
for place, job in ipairs(ARGV) do
    if redis.call('ZREM', KEYS[1], job) == 1 then
        redis.call('ZREM', KEYS[2], job)
        redis.call('ZREM', KEYS[3], job)
        redis.call('DEL', KEYS[3 + place])
        dropped = dropped + 1
    end
end
return dropped
"""

_REPLIED = """
redis.call('ZREM', KEYS[2], ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], 'owed', '0') end
"""

_ENDINGS = (_OPEN, _ENDED, _FAILED, _OUTBOX, _BELL)

T = TypeVar("T")


class RedisJournal:
    """Jobs and dead letters in Redis, which is to keep them: append-only file, no eviction.

    Every call raises TransientError while Redis is away.
    """

    def __init__(self, client: Redis, settings: ServerSettings) -> None:
        self._client = client
        self._settings = settings
        self._accept = client.register_script(_ACCEPT)
        self._read = client.register_script(_READ)
        self._end = client.register_script(_END)
        self._pass_stage = client.register_script(_GO_ON)
        self._age = client.register_script(_AGE)
        self._reopen = client.register_script(_REOPEN)
        self._drop = client.register_script(_DROP)
        self._replied = client.register_script(_REPLIED)

    def _call(self, work: Callable[[Any], T]) -> T:
        with translate_errors(self._settings):
            return work(self._client)

    # -- jobs
    def add_job(self, event: Event, kind: JobKind, ttl_seconds: float | None = None) -> bool:
        """Record a job; False when it was accepted before."""
        one = job_id(event)
        wanted = "" if ttl_seconds is None else repr(ttl_seconds)
        values: list[str | int] = [
            one,
            kind,
            event.model_dump_json(),
            wanted,
            int(wants_reply(event)),
        ]
        with translate_errors(self._settings):
            return bool(self._accept(keys=[_JOB + one, _OPEN + kind], args=values))

    def finish_job(self, job_id: str, outcome: dict[str, Any] | None = None) -> None:
        """Record success, once; a job that has ended is left as it is."""
        self._ended(job_id, "done", outcome, "")

    def fail_job(self, job_id: str, reason: str) -> None:
        """Record failure with its reason, once."""
        self._ended(job_id, "failed", None, reason)

    def cancel_job(self, job_id: str) -> bool:
        """Have an open job not worked on any further; False when it has ended or is unknown."""
        return self._ended(job_id, "cancelled", None, "")

    def _ended(self, job_id: str, state: str, outcome: dict[str, Any] | None, reason: str) -> bool:
        text = "" if outcome is None else json.dumps(outcome, ensure_ascii=False)
        with translate_errors(self._settings):
            return bool(
                self._end(keys=[_JOB + job_id, *_ENDINGS], args=[job_id, state, text, reason])
            )

    def start_stage(self, job_id: str, stage: str) -> bool:
        """Note that work on a job has come to a stage; False when the job has ended."""
        with translate_errors(self._settings):
            return bool(self._pass_stage(keys=[_JOB + job_id], args=[stage]))

    def list_stages(self, job_id: str) -> list[str]:
        """The stages that work on an open job has come to, in order."""
        return (self._call(lambda client: client.hget(_JOB + job_id, "stages")) or "").split()

    def reopen_jobs(self, job_ids: Sequence[str]) -> None:
        """Have failed jobs worked on again."""
        with translate_errors(self._settings):
            for one in job_ids:
                self._reopen(keys=[_JOB + one, *_ENDINGS], args=[one])

    def get_job(self, job_id: str) -> Job:
        """One job; raises NotFoundError when there is none of this id."""
        with translate_errors(self._settings):
            found: Any = self._read(keys=[_JOB + job_id])
        if not found:
            raise NotFoundError(f"no event or query with id {job_id!r}")
        return _job(job_id, dict(zip(found[::2], found[1::2], strict=True)))

    def list_open_jobs(self, kind: JobKind, limit: int = 10_000) -> list[str]:
        """Ids of jobs that have not ended, oldest first."""
        return self._call(lambda client: list(client.zrange(_OPEN + kind, 0, limit - 1)))

    def count_open_jobs(self, kind: JobKind) -> int:
        """How many jobs have not ended."""
        return self._call(lambda client: int(client.zcard(_OPEN + kind)))

    def get_oldest_job_age(self, kind: JobKind) -> float:
        """Seconds since the oldest job that has not ended was accepted."""
        with translate_errors(self._settings):
            age: Any = self._age(keys=[_OPEN + kind])
        return max(0.0, float(age))

    def get_job_states(self, job_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        """State and reason of each job that is known."""

        def read(client: Any) -> list[list[str | None]]:
            with client.pipeline(transaction=False) as pipeline:
                for one in job_ids:
                    pipeline.hmget(_JOB + one, "state", "reason")
                return list(pipeline.execute())

        found = zip(job_ids, self._call(read), strict=True)
        return {one: (state, reason or "") for one, (state, reason) in found if state}

    def list_failed_jobs(self, limit: int = 100) -> list[Job]:
        """Jobs that failed, newest first."""
        ids = self._call(lambda client: list(client.zrevrange(_FAILED, 0, limit - 1)))
        found = self._hashes([_JOB + one for one in ids])
        return [_job(one, values) for one, values in zip(ids, found, strict=True) if values]

    def delete_ended_jobs(self, kind: JobKind, age_seconds: float) -> int:
        """Drop jobs of a kind that ended more than `age` seconds ago; how many."""
        seconds, micros = self._call(lambda client: client.time())
        before = f"({seconds + micros / 1e6 - age_seconds:.6f}"
        dropped = 0
        while ids := self._call(lambda client: _ended_before(client, kind, before)):
            with translate_errors(self._settings):
                keys = [_ENDED + kind, _FAILED, _OUTBOX, *(_JOB + one for one in ids)]
                dropped += int(self._drop(keys=keys, args=ids))
        return dropped

    def list_pending_replies(self, limit: int = 100) -> list[str]:
        """The outbox: jobs that have ended and whose sender waits for a reply."""
        return self._call(lambda client: list(client.zrange(_OUTBOX, 0, limit - 1)))

    def mark_replied(self, job_id: str) -> None:
        """The reply to a job was sent."""
        with translate_errors(self._settings):
            self._replied(keys=[_JOB + job_id, _OUTBOX], args=[job_id])

    def wait_for_pending_reply(self, seconds: float) -> None:
        """Wait until a job comes into the outbox; of several who wait one is woken."""
        patience = min(seconds, self._settings.timeout_seconds / 2)
        self._call(lambda client: client.blpop([_BELL], timeout=patience))

    def _hashes(self, keys: Sequence[str]) -> list[dict[str, str]]:
        def read(client: Any) -> list[dict[str, str]]:
            with client.pipeline(transaction=False) as pipeline:
                for key in keys:
                    pipeline.hgetall(key)
                return list(pipeline.execute())

        return self._call(read)

    # -- dead letters
    def add_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a dead letter; the oldest of too many make room."""
        values = asdict(letter) | {"ids": json.dumps(letter.ids, ensure_ascii=False)}

        def write(client: Any) -> None:
            with client.pipeline(transaction=True) as pipeline:
                pipeline.hset(_LETTER + letter.id, mapping=values)
                pipeline.zadd(_LETTERS, {letter.id: letter.buried})
                pipeline.zrange(_LETTERS, 0, -1 - protocol.MAX_DEAD_LETTERS)
                oldest = pipeline.execute()[-1]
            if oldest:
                client.zrem(_LETTERS, *oldest)
                client.delete(*(_LETTER + one for one in oldest))

        self._call(write)

    def list_dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        """Dead letters, newest first."""
        ids = self._call(lambda client: list(client.zrevrange(_LETTERS, 0, limit - 1)))
        return [_letter(values) for values in self._hashes([_LETTER + i for i in ids]) if values]

    def get_dead_letter(self, letter_id: str) -> DeadLetter:
        """One dead letter; raises NotFoundError when there is none of this id."""
        values = self._call(lambda client: client.hgetall(_LETTER + letter_id))
        if not values:
            raise NotFoundError(f"no dead letter {letter_id!r}; `skillbus dead list` names them")
        return _letter(values)

    def count_dead_letters(self) -> int:
        """How many dead letters there are."""
        return self._call(lambda client: int(client.zcard(_LETTERS)))

    def delete_dead_letter(self, letter_id: str) -> bool:
        """Drop a dead letter; False when it is gone already."""

        def drop(client: Any) -> bool:
            with client.pipeline(transaction=True) as pipeline:
                pipeline.zrem(_LETTERS, letter_id)
                pipeline.delete(_LETTER + letter_id)
                return bool(pipeline.execute()[0])

        return self._call(drop)

    def close(self) -> None:
        """Release the connections."""
        self._client.close()


def _ended_before(client: Any, kind: JobKind, before: str) -> list[str]:
    ended = client.zrange(_ENDED + kind, "-inf", before, byscore=True, offset=0, num=_AT_ONCE)
    return list(ended)


def _job(job_id: str, values: dict[str, str]) -> Job:
    outcome, expires = values.get("outcome"), values["expires"]
    return Job(
        id=job_id,
        kind=values["kind"],
        event=parse_event(values["payload"]),
        state=values["state"],
        outcome=json.loads(outcome) if outcome else None,
        reason=values["reason"],
        accepted=float(values["accepted"]),
        expires_in_seconds=float(expires) - float(values.get("now", expires)) if expires else None,
    )


def _letter(values: dict[str, str]) -> DeadLetter:
    return DeadLetter(
        id=values["id"],
        task=values["task"],
        ids=tuple(json.loads(values["ids"])),
        reason=values["reason"],
        attempts=int(values["attempts"]),
        trace_id=values["trace_id"],
        body=values["body"],
        buried=float(values["buried"]),
    )
