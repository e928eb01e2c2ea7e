"""Store of pairs of skills of the distributed deployment, in Redis.

Pairs are hashes by content: one field for each other content, in the hashes of both, so that all
pairs of a skill are read at once. Pairs that queries compared are counted in a sorted set; the
additions of each query are stored with it, so that deleting the query takes them back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence, Set
from dataclasses import asdict

from redis import Redis
from typing_extensions import override

from config.server_settings import ServerSettings
from skills.bundle.rejection import RejectionReason
from tasks.broker.redis_connection import PREFIX, RedisStore, rewrite_log
from tasks.language_model.answer_store import RefinementKind
from tasks.language_model.skill_pairs import protocol
from tasks.language_model.skill_pairs.protocol import (
    ComparedPair,
    ContentPair,
    PairVerdict,
    RejectedPair,
    SkillPairStore,
)

_VERDICTS = PREFIX + "pair-verdicts:"
"""A hash per kind and content: by other content the skills and the verdict. Earlier versions stored
pairs before they asked about them, without a type."""
_LINKED = PREFIX + "pairs-linked:"
"""A set per kind: contents with a verdict that gives a link."""
_QUERIES = PREFIX + "rejecting-queries"
"""Keys of queries by their number."""
_QUERY = PREFIX + "rejecting-query:"
"""The compared pairs of each query, in JSON."""
_NUMBER = PREFIX + "rejecting-number"
_PAIRS = PREFIX + "compared-pairs"
"""Compared pairs by the number of their queries."""

_SCAN_COUNT = 1_000

_RECORD = """
if redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], redis.call('INCR', KEYS[3]), ARGV[1])
redis.call('SET', KEYS[2] .. ARGV[1], ARGV[2])
local function count(text, by)
    local values = cjson.decode(text)
    for _, pair in ipairs(values.pairs) do
        if tonumber(redis.call('ZINCRBY', KEYS[4], by, pair)) <= 0 then
            redis.call('ZREM', KEYS[4], pair)
        end
    end
end
count(ARGV[2], 1)
for _, old in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1 - tonumber(ARGV[3]))) do
    local text = redis.call('GET', KEYS[2] .. old)
    if text then count(text, -1) end
    redis.call('DEL', KEYS[2] .. old)
    redis.call('ZREM', KEYS[1], old)
end
return 1
"""

_SAVE = """
local stored = redis.call('HGET', KEYS[1], ARGV[2])
if stored and cjson.decode(stored).type then return end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
if ARGV[4] == '1' then redis.call('SADD', KEYS[3], ARGV[1], ARGV[2]) end
"""
"""KEYS: the hashes of the first and of the second content, the set of contents with links. ARGV:
both contents, the values, whether the verdict gives a link."""

_FORGET = """
local function is_linked(key)
    for _, text in ipairs(redis.call('HVALS', key)) do
        local kind = cjson.decode(text).type
        if kind and kind ~= '' then return true end
    end
    return false
end
local others = redis.call('HKEYS', KEYS[1])
for _, other in ipairs(others) do
    redis.call('HDEL', KEYS[2] .. other, ARGV[1])
    if not is_linked(KEYS[2] .. other) then redis.call('SREM', KEYS[3], other) end
end
redis.call('DEL', KEYS[1])
redis.call('SREM', KEYS[3], ARGV[1])
return #others
"""
"""KEYS: the hash of the content, the prefix of those of other contents, the set of contents with
links. ARGV: the content."""


class RedisSkillPairs(RedisStore, SkillPairStore):
    """A `SkillPairStore` in Redis, which must persist its data (append-only file) and never evict
    it."""

    def __init__(self, client: Redis, settings: ServerSettings) -> None:
        super().__init__(client, settings)
        self._record = client.register_script(_RECORD)
        self._save = client.register_script(_SAVE)
        self._forget = client.register_script(_FORGET)

    @override
    def find_known(self, kind: RefinementKind, pairs: Sequence[ContentPair]) -> set[ContentPair]:
        with self._connected() as client, client.pipeline(transaction=False) as pipeline:
            for one, other in pairs:
                pipeline.hget(_verdicts(kind, one), other)
            found = pipeline.execute()
        return {
            pair
            for pair, text in zip(pairs, found, strict=True)
            if text is not None and "type" in json.loads(text)
        }

    @override
    def save_verdicts(self, kind: RefinementKind, verdicts: Sequence[PairVerdict]) -> None:
        with self._connected():
            for verdict in verdicts:
                values = asdict(verdict)
                del values["hashes"]
                keys = [*(_verdicts(kind, one) for one in verdict.hashes), _linked(kind)]
                args: list[str | int] = [
                    *verdict.hashes,
                    json.dumps(values),
                    int(bool(verdict.type)),
                ]
                self._save(keys=keys, args=args)

    @override
    def find_links(
        self, kind: RefinementKind, hashes: Sequence[str]
    ) -> dict[str, list[PairVerdict]]:
        asked = list(dict.fromkeys(hashes))
        with self._connected() as client, client.pipeline(transaction=False) as pipeline:
            for one in asked:
                pipeline.hgetall(_verdicts(kind, one))
            found = pipeline.execute()
        links: dict[str, list[PairVerdict]] = {}
        for one, fields in zip(asked, found, strict=True):
            read = [_to_verdict(one, other, text) for other, text in fields.items()]
            links[one] = sorted(
                (verdict for verdict in read if verdict.type), key=lambda verdict: verdict.hashes
            )
        return links

    @override
    def list_linked(self, kind: RefinementKind) -> Iterator[str]:
        with self._connected() as client:
            yield from sorted(client.smembers(_linked(kind)))

    @override
    def record(self, query_key: str, compared: Set[ComparedPair]) -> None:
        pairs = [json.dumps([one, other, reason.value]) for one, other, reason in sorted(compared)]
        values = json.dumps({"pairs": pairs})
        keys = [_QUERIES, _QUERY, _NUMBER, _PAIRS]
        with self._connected():
            self._record(keys=keys, args=[query_key, values, protocol.MAX_QUERIES])

    @override
    def list_rejected_pairs(self, min_queries: int, limit: int) -> list[RejectedPair]:
        with self._connected() as client:
            rows = client.zrange(
                _PAIRS, "+inf", min_queries, desc=True, byscore=True, withscores=True,
                offset=0, num=4 * limit,
            )  # fmt: skip
        found = []
        for text, queries in rows:
            one, other, reason = json.loads(text)
            found.append(RejectedPair((one, other), RejectionReason(reason), int(queries)))
        found.sort(key=lambda pair: (-pair.queries, pair.skill_ids, pair.reason))
        return found[:limit]

    @override
    def forget(self, hashes: Sequence[str]) -> int:
        deleted = 0
        with self._connected() as client:
            for one in hashes:
                for key in client.scan_iter(match=f"{_VERDICTS}*:{one}", count=_SCAN_COUNT):
                    prefix = key.removesuffix(one)
                    linked = _LINKED + prefix.removeprefix(_VERDICTS).removesuffix(":")
                    deleted += int(self._forget(keys=[key, prefix, linked], args=[one]))
            rewrite_log(client)
        return deleted


def _verdicts(kind: RefinementKind, content_hash: str) -> str:
    return f"{_VERDICTS}{kind.model}:{kind.version}:{content_hash}"


def _linked(kind: RefinementKind) -> str:
    return f"{_LINKED}{kind.model}:{kind.version}"


def _to_verdict(asked: str, other: str, text: str) -> PairVerdict:
    values = json.loads(text)
    one, two = values["skill_ids"]
    return PairVerdict(
        protocol.order_pair(asked, other),
        (one, two),
        values.get("type", ""),
        values.get("first", True),
        values.get("evidence", ""),
    )
