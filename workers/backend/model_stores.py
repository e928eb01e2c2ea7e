"""Opens stores that only the purge of a skill needs: those of a language model, whether or not the
settings name one, and the index that a reindex replaced."""

from __future__ import annotations

import contextlib

from config.errors import UsageError
from config.settings import Settings
from tasks.language_model.answer_store import AnswerStore
from tasks.language_model.skill_pairs.protocol import SkillPairStore


def open_model_stores(
    settings: Settings, stack: contextlib.ExitStack
) -> tuple[AnswerStore | None, SkillPairStore | None]:
    """Open answers and pairs of a language model, closed with the stack;
    None if a home has none."""
    answers: AnswerStore
    pairs: SkillPairStore
    if settings.distributed:
        from tasks.broker.redis_connection import connect
        from tasks.language_model.redis_answers import RedisAnswerStore
        from tasks.language_model.skill_pairs.redis import RedisSkillPairs

        answers = RedisAnswerStore(connect(settings.servers), settings.servers)
        stack.callback(answers.close)
        pairs = RedisSkillPairs(connect(settings.servers), settings.servers)
    else:
        from tasks.language_model.skill_pairs.sqlite import SqliteSkillPairs
        from tasks.language_model.sqlite_answers import SqliteAnswerStore

        path = settings.home / "answers.db"
        if not path.exists():
            return None, None
        answers = SqliteAnswerStore(path)
        stack.callback(answers.close)
        pairs = SqliteSkillPairs(path)
    stack.callback(pairs.close)
    return answers, pairs


def check_no_replaced_index(settings: Settings) -> None:
    """Raise UsageError while there is an index besides the one in use: it has revisions too."""
    if settings.distributed:
        from search.elastic.replacement import list_superseded

        others = list_superseded(settings.servers)
    else:
        folders = (settings.home / "index.old", settings.home / "index.new")
        others = [str(folder) for folder in folders if folder.exists()]
    if others:
        raise UsageError(
            f"{', '.join(others)}, which a reindex made, may have the skill too: end the reindex, "
            "run `skillbus reindex --drop-old`, then purge"
        )
