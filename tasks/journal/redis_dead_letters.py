"""Dead letters in Redis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from typing_extensions import override

from config.errors import NotFoundError
from tasks.broker.redis_connection import PREFIX, RedisStore
from tasks.journal import protocol
from tasks.journal.protocol import DeadLetter, DeadLetterStore, quote_skill

_LETTERS = PREFIX + "letters"
_LETTER = PREFIX + "letter:"


class RedisDeadLetters(RedisStore, DeadLetterStore):
    """Dead letters as one hash each, listed in a set sorted by time."""

    def _read_hashes(self, keys: Sequence[str]) -> list[dict[str, str]]:
        """Return one hash per key, empty if the key does not exist."""
        with self._connected() as client, client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hgetall(key)
            return list(pipeline.execute())

    @override
    def add_dead_letter(self, letter: DeadLetter) -> None:
        values = asdict(letter) | {"ids": json.dumps(letter.ids, ensure_ascii=False)}
        values["buried"] = values.pop("failed_at")  # the stored name is from earlier versions
        with self._connected() as client:
            with client.pipeline(transaction=True) as pipeline:
                pipeline.hset(_LETTER + letter.id, mapping=values)
                pipeline.zadd(_LETTERS, {letter.id: letter.failed_at})
                pipeline.zrange(_LETTERS, 0, -1 - protocol.MAX_DEAD_LETTERS)
                oldest = pipeline.execute()[-1]
            if oldest:
                client.zrem(_LETTERS, *oldest)
                client.delete(*(_LETTER + letter_id for letter_id in oldest))

    @override
    def list_dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        with self._connected() as client:
            ids = client.zrevrange(_LETTERS, 0, limit - 1)
        found = self._read_hashes([_LETTER + letter_id for letter_id in ids])
        return [_to_dead_letter(values) for values in found if values]

    @override
    def get_dead_letter(self, letter_id: str) -> DeadLetter:
        with self._connected() as client:
            values = client.hgetall(_LETTER + letter_id)
        if not values:
            raise NotFoundError(f"no dead letter {letter_id!r}; `skillbus dead list` lists them")
        return _to_dead_letter(values)

    @override
    def count_dead_letters(self) -> int:
        with self._connected() as client:
            return int(client.zcard(_LETTERS))

    @override
    def delete_dead_letter(self, letter_id: str) -> bool:
        with self._connected() as client, client.pipeline(transaction=True) as pipeline:
            pipeline.zrem(_LETTERS, letter_id)
            pipeline.delete(_LETTER + letter_id)
            return bool(pipeline.execute()[0])

    @override
    def forget_dead_letters(self, skill_id: str) -> int:
        named = quote_skill(skill_id)
        with self._connected() as client:
            ids = client.zrange(_LETTERS, 0, -1)
        found = self._read_hashes([_LETTER + letter_id for letter_id in ids])
        return sum(
            self.delete_dead_letter(letter_id)
            for letter_id, values in zip(ids, found, strict=True)
            if named in values.get("ids", "") or named in values.get("body", "")
        )


def _to_dead_letter(values: dict[str, str]) -> DeadLetter:
    return DeadLetter(
        id=values["id"],
        task=values["task"],
        ids=tuple(json.loads(values["ids"])),
        reason=values["reason"],
        attempts=int(values["attempts"]),
        trace_id=values["trace_id"],
        body=values["body"],
        failed_at=float(values["buried"]),
    )
