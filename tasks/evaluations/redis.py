"""Store of evaluations of the distributed deployment, in Redis."""

from __future__ import annotations

from functools import partial
from typing import Any

from redis.client import Pipeline
from typing_extensions import override

from config.errors import NotFoundError
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


class RedisEvaluationStore(RedisStore, EvaluationStore):
    """An `EvaluationStore` in Redis. client: must return bytes."""

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
        def change_stored(pipeline: Pipeline, evaluation_id: bytes) -> int:
            data: Any = pipeline.hget(_PROMPTS, evaluation_id)
            data, count = change_run(data, change, naming) if data else (b"", 0)
            pipeline.multi()
            if count:
                pipeline.hset(_PROMPTS, evaluation_id, data)
            return count

        with self._connected() as client:
            # Repeated if another process changed the prompts meanwhile.
            return sum(
                client.transaction(
                    partial(change_stored, evaluation_id=one), _PROMPTS, value_from_callable=True
                )
                for one in client.hkeys(_PROMPTS)
            )

    @override
    def overwrite_deleted(self) -> None:
        with self._connected() as client:
            rewrite_log(client)
