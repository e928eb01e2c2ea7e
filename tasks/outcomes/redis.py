"""Store of outcomes of the distributed deployment, in Redis, next to the journal.

Writes that belong together are one Lua script, which Redis runs atomically.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from redis import Redis
from typing_extensions import override

from config.errors import NotFoundError, PermanentError
from config.server_settings import ServerSettings
from skills.batches import batches
from skills.outcomes.codec import dump_answer, dump_outcome, load_answer, load_outcome
from skills.outcomes.model import AnsweredQuery, Outcome
from tasks.outcomes.protocol import (
    KEPT_TOMBSTONE_SECONDS,
    MAX_CHANGES,
    AnswerPlace,
    OutcomeChanges,
    StoredVector,
    TaskVectors,
    describe_full_query,
    describe_unknown_queries,
)
from tasks.outcomes.redis_days import RedisDays
from tasks.outcomes.redis_scripts import (
    ADD_ANSWER,
    ADD_OUTCOMES,
    ANSWER,
    ANSWERED_ON,
    ANSWERS,
    CHANGES,
    CONTRIBUTORS,
    EPOCH,
    FORGET,
    OUTCOMES,
    OWNERS,
    RECORD_UNTIL,
    RECORDED,
    REPORTED_ON,
    SAVE_VECTOR,
    SESSION,
    TOMBSTONES,
)

_DATA, _VECTOR = b"a", b"v:"
_SCALE = struct.Struct("<d")
_BATCH = 500


class RedisOutcomeStore(RedisDays):
    """An `OutcomeStore` in Redis, which must persist its data (append-only file) and never evict
    it."""

    def __init__(self, client: Redis, settings: ServerSettings) -> None:
        """client: a client with binary values."""
        super().__init__(client, settings)
        self._add_answer = client.register_script(ADD_ANSWER)
        self._add_outcomes = client.register_script(ADD_OUTCOMES)
        self._forget_query = client.register_script(FORGET)
        self._save_vector = client.register_script(SAVE_VECTOR)
        self._record_until = client.register_script(RECORD_UNTIL)

    # -- answered queries
    @override
    def add_answers(
        self, answers: Sequence[AnsweredQuery], vectors: TaskVectors | None = None
    ) -> None:
        with self._connected() as client, client.pipeline(transaction=False) as pipeline:
            for one in answers:
                time_, session = repr(one.answered), _session_name(one)
                data = dump_answer(one)
                args: list[Any] = [one.query_id, data, one.owner, time_, one.day, session]
                self._add_answer(args=args, client=pipeline)
            if vectors is not None:
                field = _VECTOR + vectors.model.encode()
                for query_id, vector in vectors.vectors.items():
                    stored = _SCALE.pack(vector.scale) + vector.values.tobytes()
                    self._save_vector(args=[query_id, field, stored], client=pipeline)
            pipeline.execute()

    @override
    def drop_answers(self, query_ids: Sequence[str]) -> None:
        for answer in self.get_answers(query_ids).values():
            self._forget(answer, "unreported")

    @override
    def get_answers(self, query_ids: Sequence[str]) -> dict[str, AnsweredQuery]:
        found = self._read_fields(query_ids, [_DATA])
        return {
            query_id: load_answer(data)
            for query_id, (data,) in zip(query_ids, found, strict=True)
            if data is not None
        }

    def _read_fields(self, query_ids: Sequence[str], fields: Sequence[bytes]) -> list[list[Any]]:
        with self._connected() as client, client.pipeline(transaction=False) as pipeline:
            for query_id in query_ids:
                pipeline.hmget(ANSWER + query_id, fields)
            found: list[list[Any]] = pipeline.execute()
        return found

    @override
    def list_session(self, owner: str, session: str, limit: int) -> list[AnsweredQuery]:
        if not session:
            return []
        with self._connected() as client:
            name = SESSION + _name_session(owner, session)
            ids = [one.decode() for one in client.zrange(name, -limit, -1)]
        return list(self.get_answers(ids).values())

    @override
    def list_answers_before(self, place: AnswerPlace, limit: int) -> list[AnsweredQuery]:
        ids: list[str] = []
        with self._connected() as client:
            # Answers of the same time are among the first that are read.
            for start in itertools.count(0, _BATCH):
                rows = client.zrange(
                    ANSWERS, place.answered, "-inf", desc=True, byscore=True, withscores=True,
                    offset=start, num=_BATCH,
                )  # fmt: skip
                named = (AnswerPlace(answered, one.decode()) for one, answered in rows)
                ids += [one.query_id for one in named if one < place]
                if len(ids) >= limit or len(rows) < _BATCH:
                    break
        return list(self.get_answers(ids[:limit]).values())

    # -- outcomes
    @override
    def add_outcomes(self, outcomes: Sequence[Outcome], accepted: float = math.inf) -> int:
        if not outcomes:
            return 0
        args: list[Any] = [repr(accepted)]
        for one in outcomes:
            args += [one.query_id, one.key, one.day, one.owner, dump_outcome(one)]
        with self._connected():
            result: Any = self._add_outcomes(args=args)
        new, unknown, full = result
        if unknown:
            raise NotFoundError(describe_unknown_queries([unknown.decode()]))
        if full:
            raise PermanentError(describe_full_query(full.decode()))
        return int(new)

    @override
    def get_outcomes(self, query_ids: Sequence[str]) -> dict[str, tuple[Outcome, ...]]:
        with self._connected() as client, client.pipeline(transaction=False) as pipeline:
            for query_id in query_ids:
                pipeline.hgetall(OUTCOMES + query_id)
            found = pipeline.execute()
        return {
            query_id: tuple(
                load_outcome(key.decode(), query_id, fields[key]) for key in sorted(fields)
            )
            for query_id, fields in zip(query_ids, found, strict=True)
            if fields
        }

    @override
    def get_changes(self, after: int, limit: int = MAX_CHANGES) -> OutcomeChanges:
        with self._connected() as client:
            rows = client.zrange(
                CHANGES, f"({after}", "+inf", byscore=True, withscores=True,
                offset=0, num=limit + 1,
            )  # fmt: skip
        ids = tuple(query_id.decode() for query_id, _ in rows[:limit])
        epoch = int(rows[:limit][-1][1]) if rows else after
        return OutcomeChanges(epoch, ids, len(rows) > limit)

    @override
    def get_epoch(self) -> int:
        with self._connected() as client:
            return int(client.get(EPOCH) or 0)

    @override
    def list_outcomes(self) -> Iterator[Outcome]:
        for day in self.list_report_days():
            yield from sorted(self.list_outcomes_of(day), key=lambda one: (one.reported, one.key))

    @override
    def count_outcomes(self) -> Mapping[str, int]:
        with self._connected() as client:
            counts = client.hgetall(OWNERS)
        return {owner.decode(): int(count) for owner, count in sorted(counts.items())}

    @override
    def forget_owner(self, owner: str) -> int:
        deleted = 0
        for batch in batches((one for one, _ in self._scan_answered()), _BATCH):
            answers, outcomes = self.get_answers(batch), self.get_outcomes(batch)
            for query_id, answer in answers.items():
                if answer.owner == owner:
                    deleted += self._forget(answer, "all")
                elif any(one.owner == owner for one in outcomes.get(query_id, ())):
                    deleted += self._forget(answer, "reported", owner)
        self._prune_tombstones()
        return deleted

    @override
    def forget_outcomes(self, query_id: str) -> int:
        answers = self.get_answers([query_id])
        if query_id not in answers:
            raise NotFoundError(describe_unknown_queries([query_id]))
        return self._forget(answers[query_id], "outcomes")

    @override
    def forget_before(self, seconds: float) -> int:
        deleted = 0
        early = (one for one, answered in self._scan_answered() if answered < seconds)
        for batch in batches(early, _BATCH):
            for answer in self.get_answers(batch).values():
                deleted += self._forget(answer, "all")
        self._prune_tombstones()
        return deleted

    def _scan_answered(self) -> Iterator[tuple[str, float]]:
        """Yield answered queries with the time of their answer, unordered; some may come twice."""
        with self._connected() as client:
            for query_id, answered in client.zscan_iter(ANSWERS, count=_BATCH):
                yield query_id.decode(), answered

    def _forget(
        self,
        answer: AnsweredQuery,
        what: Literal["all", "unreported", "outcomes", "reported"],
        owner: str = "",
    ) -> int:
        """Run the script FORGET."""
        args = [answer.query_id, what, repr(time.time()), owner, _session_name(answer)]
        with self._connected():
            return int(self._forget_query(args=args))

    def _prune_tombstones(self) -> None:
        with self._connected() as client:
            before = f"({time.time() - KEPT_TOMBSTONE_SECONDS!r}"
            while ids := client.zrange(
                TOMBSTONES, "-inf", before, byscore=True, offset=0, num=_BATCH
            ):
                with client.pipeline() as pipeline:
                    pipeline.zrem(CHANGES, *ids)
                    pipeline.zrem(TOMBSTONES, *ids)
                    pipeline.execute()

    # -- vectors of past tasks
    @override
    def get_vectors(self, model: str, query_ids: Sequence[str]) -> dict[str, StoredVector]:
        found = self._read_fields(query_ids, [_VECTOR + model.encode()])
        return {
            query_id: StoredVector(
                np.frombuffer(data, dtype=np.int8, offset=_SCALE.size), _SCALE.unpack_from(data)[0]
            )
            for query_id, (data,) in zip(query_ids, found, strict=True)
            if data is not None
        }

    # -- contributors
    @override
    def add_contributor(self, source_id: str, owner: str) -> None:
        with self._connected() as client:
            client.sadd(CONTRIBUTORS, json.dumps([source_id, owner]))

    @override
    def list_contributors(self) -> dict[str, frozenset[str]]:
        with self._connected() as client:
            rows = [json.loads(one) for one in client.smembers(CONTRIBUTORS)]
        owners: dict[str, set[str]] = {}
        for source_id, owner in sorted(rows):
            owners.setdefault(source_id, set()).add(owner)
        return {source_id: frozenset(found) for source_id, found in owners.items()}

    @override
    def count_contributors(self) -> int:
        with self._connected() as client:
            return int(client.scard(CONTRIBUTORS))

    # -- days
    @override
    def list_answers_of(self, day: int) -> Iterator[AnsweredQuery]:
        for batch in batches(self.list_queries(ANSWERED_ON, day), _BATCH):
            yield from self.get_answers(batch).values()

    @override
    def list_outcomes_of(self, day: int) -> Iterator[Outcome]:
        for batch in batches(self.list_queries(REPORTED_ON, day), _BATCH):
            for outcomes in self.get_outcomes(batch).values():
                yield from (one for one in outcomes if one.day == day)

    @override
    def prune_days(self, before: int) -> int:
        deleted = 0
        for day in self.mark_pruned(before):
            for batch in batches(self.list_queries(ANSWERED_ON, day), _BATCH):
                answers = self.get_answers(batch).values()
                for answer in answers:
                    self._forget(answer, "all")
                deleted += len(answers)
        self._prune_tombstones()
        return deleted

    # -- recorded answers
    @override
    def get_recorded_until(self) -> float:
        with self._connected() as client:
            return float(client.get(RECORDED) or 0.0)

    @override
    def set_recorded_until(self, seconds: float) -> None:
        with self._connected():
            self._record_until(args=[repr(seconds)])


def _name_session(owner: str, session: str) -> str:
    return hashlib.sha256(json.dumps([owner, session]).encode()).hexdigest()[:32]


def _session_name(answer: AnsweredQuery) -> str:
    """Return the name of the set of a query's session, "" without a session."""
    return _name_session(answer.owner, answer.session) if answer.session else ""
