"""Function that opens the store of evaluations of a deployment."""

from __future__ import annotations

import contextlib

from config.settings import Settings
from tasks.evaluations.protocol import EvaluationStore


def open_evaluations(settings: Settings, stack: contextlib.ExitStack) -> EvaluationStore:
    """Return the store of runs of `skillbus eval`, closed with the stack. All processes that use a
    home share its store, including processes that only read the library."""
    store: EvaluationStore
    if settings.distributed:
        from tasks.broker.redis_connection import connect
        from tasks.evaluations.redis import RedisEvaluationStore

        client = connect(settings.servers, binary=True)
        store = RedisEvaluationStore(client, settings.servers)
    else:
        from tasks.evaluations.sqlite import SqliteEvaluationStore

        store = SqliteEvaluationStore(settings.home / "evaluations.db")
    stack.callback(store.close)
    return store
