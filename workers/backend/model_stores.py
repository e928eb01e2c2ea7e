"""Opens the stores of a language model: its answers, and its statements about pairs of skills."""

from __future__ import annotations

import contextlib

from config.settings import Settings
from tasks.language_model.answer_store import AnswerStore
from tasks.language_model.skill_pairs.protocol import SkillPairStore

_FILE = "answers.db"


def open_answers(settings: Settings, stack: contextlib.ExitStack) -> AnswerStore | None:
    """Open the answers of the language model, closed with the stack; None if no stage uses a model.

    In a home they are shared by all processes that use it, including those that only read the
    library.
    """
    return _open_answers(settings, stack) if settings.language_model.in_use else None


def open_skill_pairs(settings: Settings, stack: contextlib.ExitStack) -> SkillPairStore | None:
    """Open the verdicts and rejections about pairs of skills, closed with the stack; None if no
    stage uses a model. They are shared as the answers are."""
    return _open_skill_pairs(settings, stack) if settings.language_model.in_use else None


def open_model_stores(
    settings: Settings, stack: contextlib.ExitStack
) -> tuple[AnswerStore | None, SkillPairStore | None]:
    """Open answers and pairs, closed with the stack, whether or not a stage uses a model; None if a
    home has none."""
    if not settings.distributed and not (settings.home / _FILE).exists():
        return None, None
    return _open_answers(settings, stack), _open_skill_pairs(settings, stack)


def _open_answers(settings: Settings, stack: contextlib.ExitStack) -> AnswerStore:
    answers: AnswerStore
    if settings.distributed:
        from tasks.broker.redis_connection import connect
        from tasks.language_model.redis_answers import RedisAnswerStore

        answers = RedisAnswerStore(connect(settings.servers), settings.servers)
    else:
        from tasks.language_model.sqlite_answers import SqliteAnswerStore

        answers = SqliteAnswerStore(settings.home / _FILE)
    stack.callback(answers.close)
    return answers


def _open_skill_pairs(settings: Settings, stack: contextlib.ExitStack) -> SkillPairStore:
    pairs: SkillPairStore
    if settings.distributed:
        from tasks.broker.redis_connection import connect
        from tasks.language_model.skill_pairs.redis import RedisSkillPairs

        pairs = RedisSkillPairs(connect(settings.servers), settings.servers)
    else:
        from tasks.language_model.skill_pairs.sqlite import SqliteSkillPairs

        pairs = SqliteSkillPairs(settings.home / _FILE)
    stack.callback(pairs.close)
    return pairs
