"""Store of evaluations of the distributed deployment, in Redis."""

from __future__ import annotations

from functools import partial
from typing import Any

from redis import Redis
from typing_extensions import override

from config.errors import NotFoundError
from config.server_settings import ServerSettings
from tasks.broker.redis_connection import PREFIX, RedisStore, rewrite_log
from tasks.evaluations.model import (
    Evaluation,
    EvaluationSummary,
    dump_prompts,
    dump_summary,
    load_prompts,
    load_summary,
)
from tasks.evaluations.protocol import (
    MAX_EVALUATIONS,
    ChangePrompt,
    EvaluationStore,
    change_run,
    describe_unknown_evaluation,
)

_SUMMARIES = PREFIX + "evaluations"
_PROMPTS = PREFIX + "evaluation-prompts"
"""Names of hashes of runs by id."""

_REPLACE = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""
"""Script that replaces the prompts of a run unless they were changed or removed meanwhile."""


class RedisEvaluationStore(RedisStore, EvaluationStore):
    """An `EvaluationStore` in Redis. client: must return bytes."""

    def __init__(self, client: Redis, settings: ServerSettings) -> None:
        super().__init__(client, settings)
        self._replace = client.register_script(_REPLACE)

    @override
    def add(self, evaluation: Evaluation) -> None:
        summary = evaluation.summary
        with self._connected() as client:
            with client.pipeline(transaction=True) as pipeline:
                pipeline.hsetnx(_SUMMARIES, summary.evaluation_id, dump_summary(summary))
                pipeline.hsetnx(_PROMPTS, summary.evaluation_id, dump_prompts(evaluation.prompts))
                pipeline.execute()
            surplus = [one.evaluation_id for one in self.list_summaries()[MAX_EVALUATIONS:]]
            self._delete(client, surplus)

    @override
    def list_summaries(self) -> list[EvaluationSummary]:
        with self._connected() as client:
            texts = client.hvals(_SUMMARIES)
        found = [load_summary(text) for text in texts]
        return sorted(found, key=lambda one: (one.made, one.evaluation_id), reverse=True)

    @override
    def get(self, evaluation_id: str) -> Evaluation:
        with self._connected() as client, client.pipeline(transaction=True) as pipeline:
            pipeline.hget(_SUMMARIES, evaluation_id)
            pipeline.hget(_PROMPTS, evaluation_id)
            summary, prompts = pipeline.execute()
        if summary is None or prompts is None:
            raise NotFoundError(describe_unknown_evaluation(evaluation_id))
        return Evaluation(load_summary(summary), load_prompts(prompts))

    @override
    def remove(self, evaluation_id: str) -> None:
        with self._connected() as client:
            deleted = self._delete(client, [evaluation_id])
        if not deleted:
            raise NotFoundError(describe_unknown_evaluation(evaluation_id))

    @staticmethod
    def _delete(client: Any, evaluation_ids: list[str]) -> int:
        if not evaluation_ids:
            return 0
        with client.pipeline(transaction=True) as pipeline:
            pipeline.hdel(_SUMMARIES, *evaluation_ids)
            pipeline.hdel(_PROMPTS, *evaluation_ids)
            return int(pipeline.execute()[0])

    @override
    def change_prompts(self, change: ChangePrompt, naming: str = "") -> int:
        with self._connected() as client:
            return sum(
                change_run(
                    partial(client.hget, _PROMPTS, evaluation_id),
                    partial(self._replace_prompts, evaluation_id),
                    change,
                    naming,
                )
                for evaluation_id in client.hkeys(_PROMPTS)
            )

    def _replace_prompts(self, evaluation_id: bytes, before: bytes, after: bytes) -> bool:
        return bool(self._replace(keys=[_PROMPTS], args=[evaluation_id, before, after]))

    @override
    def overwrite_deleted(self) -> None:
        with self._connected() as client:
            rewrite_log(client)
