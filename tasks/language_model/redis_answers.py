"""Store of answers of the distributed deployment, in Redis.

Answers and refinements are JSON objects that are set once, without expiry; the counts of each day
do not expire either. Reservations expire by the clock of Redis.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from redis import Redis
from typing_extensions import override

from config.language_model_settings import ModelStage
from config.server_settings import ServerSettings
from skills.batches import batches
from tasks.broker.redis_connection import PREFIX, RedisStore, rewrite_log
from tasks.language_model.answer_store import (
    AnswerStore,
    RefinementKind,
    StageUsage,
    StoredAnswer,
)
from tasks.language_model.protocol import TokenUsage

_ANSWER = PREFIX + "model-answer:"
_USAGE = PREFIX + "model-usage:"
"""A hash per day: `STAGE:COUNT`."""
_RESERVED = PREFIX + "model-reserved:"
"""A hash per day: tokens and end of each reservation."""
_REFINEMENTS = PREFIX + "refinements:"
"""A hash per kind: the documents by subject."""
_BATCH_SIZE = 500

_RESERVE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local spent = 0
local found = redis.call('HGETALL', KEYS[2])
for place = 1, #found, 2 do
    local tokens, ends = string.match(found[place + 1], '(%d+) (%d+)')
    if tonumber(ends) > now then
        spent = spent + tonumber(tokens)
    else
        redis.call('HDEL', KEYS[2], found[place])
    end
end
local limit = tonumber(ARGV[3])
if limit > 0 then
    local used = redis.call('HGETALL', KEYS[1])
    for place = 1, #used, 2 do
        if string.match(used[place], ':prompt$') or string.match(used[place], ':completion$') then
            spent = spent + tonumber(used[place + 1])
        end
    end
    if spent + tonumber(ARGV[2]) > limit then return 0 end
end
local left = redis.call('PTTL', KEYS[2])
redis.call('HSET', KEYS[2], ARGV[1], string.format('%d %d', ARGV[2], now + ARGV[4]))
redis.call('PEXPIRE', KEYS[2], math.max(left, tonumber(ARGV[4])))
return 1
"""


class RedisAnswerStore(RedisStore, AnswerStore):
    """An `AnswerStore` in Redis, which must persist its data (append-only file) and never evict
    it."""

    def __init__(self, client: Redis, settings: ServerSettings) -> None:
        super().__init__(client, settings)
        self._reserve = client.register_script(_RESERVE)

    @override
    def get_answer(self, key: str) -> StoredAnswer | None:
        with self._connected() as client:
            found = client.get(_ANSWER + key)
        if found is None:
            return None
        values = json.loads(found)
        return StoredAnswer(values["text"], values["reason"])

    @override
    def save_answer(self, key: str, stage: ModelStage, model: str, answer: StoredAnswer) -> None:
        values = {"stage": stage, "model": model, "text": answer.text, "reason": answer.reason}
        with self._connected() as client:
            client.set(_ANSWER + key, json.dumps(values), nx=True)

    @override
    def reserve_tokens(self, day: str, tokens: int, limit: int, seconds: float) -> str | None:
        reservation = uuid.uuid4().hex
        values: list[str | int] = [reservation, tokens, limit, max(1, round(seconds * 1000))]
        with self._connected():
            reserved = self._reserve(keys=[_USAGE + day, _RESERVED + day], args=values)
        return reservation if reserved else None

    @override
    def settle(
        self, reservation: str, day: str, stage: ModelStage, usage: TokenUsage, calls: int
    ) -> None:
        counts = {"calls": calls, "prompt": usage.prompt, "completion": usage.completion}
        with self._connected() as client, client.pipeline(transaction=True) as pipeline:
            pipeline.hdel(_RESERVED + day, reservation)
            for name, count in counts.items():
                pipeline.hincrby(_USAGE + day, f"{stage}:{name}", count)
            pipeline.execute()

    @override
    def count_stored(self, day: str, stage: ModelStage) -> None:
        with self._connected() as client:
            client.hincrby(_USAGE + day, f"{stage}:stored", 1)

    @override
    def get_usage(self, day: str) -> dict[str, StageUsage]:
        with self._connected() as client:
            found: dict[str, str] = client.hgetall(_USAGE + day)
        counts: dict[str, dict[str, int]] = {}
        for name, value in found.items():
            stage, _, count = name.rpartition(":")
            counts.setdefault(stage, {})[count] = int(value)
        return {
            stage: StageUsage(
                calls=values.get("calls", 0),
                prompt_tokens=values.get("prompt", 0),
                completion_tokens=values.get("completion", 0),
                stored=values.get("stored", 0),
            )
            for stage, values in sorted(counts.items())
        }

    @override
    def get_refinements(
        self, kind: RefinementKind, subjects: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        with self._connected() as client:
            for batch in batches(subjects, _BATCH_SIZE):
                documents = client.hmget(_refinements_key(kind), batch)
                found |= {
                    subject: json.loads(document)
                    for subject, document in zip(batch, documents, strict=True)
                    if document is not None
                }
        return found

    @override
    def save_refinements(
        self, kind: RefinementKind, documents: Mapping[str, Mapping[str, Any]]
    ) -> None:
        if not documents:
            return
        with self._connected() as client, client.pipeline(transaction=True) as pipeline:
            for subject, document in documents.items():
                pipeline.hsetnx(_refinements_key(kind), subject, json.dumps(document))
            pipeline.execute()

    @override
    def forget(self, subjects: Sequence[str]) -> int:
        deleted = 0
        with self._connected() as client:
            for key in client.scan_iter(match=_ANSWER + "*", count=_BATCH_SIZE):
                deleted += client.delete(key)
            for key in client.scan_iter(match=_REFINEMENTS + "*", count=_BATCH_SIZE):
                deleted += client.hdel(key, *subjects) if subjects else 0
            rewrite_log(client)
        return int(deleted)


def _refinements_key(kind: RefinementKind) -> str:
    return f"{_REFINEMENTS}{kind.stage}:{kind.version}:{kind.model}"
