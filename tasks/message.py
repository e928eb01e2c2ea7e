"""Format of task messages: one list of ids in the body, short texts in the headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from config.errors import PermanentError

TRACE_HEADER = "trace_id"
"""Header with the trace id of the event or query that led to the task."""

_MAX_TEXT_CHARACTERS = 200


def parse_task_ids(content: Any) -> list[str]:
    """The ids in a message body, `[[ids], {}, …]` as Celery writes it (protocol 2).

    Raises PermanentError for any other body.
    """
    if isinstance(content, list) and len(content) == 3:
        args, kwargs, embed = content
        followups = embed.values() if isinstance(embed, dict) else [embed]
        if kwargs or any(followups) or not isinstance(args, list) or len(args) != 1:
            raise PermanentError(f"a task takes one list of ids, not {_shorten(content)}")
        ids = args[0]
        if isinstance(ids, list) and all(isinstance(one, str) for one in ids):
            return ids
    raise PermanentError(f"a task takes one list of ids, not {_shorten(content)}")


def parse_text_header(headers: Mapping[str, Any], name: str) -> str:
    """A header that is a text of at most 200 characters; raises PermanentError for any other."""
    value = headers.get(name)
    if isinstance(value, str) and len(value) <= _MAX_TEXT_CHARACTERS:
        return value
    raise PermanentError(f"header {name!r} is not a short text but {_shorten(value)}")


def _shorten(value: Any) -> str:
    try:
        return repr(value)[:_MAX_TEXT_CHARACTERS]
    except RecursionError:
        return "a value nested too deeply"
