"""The shape of a task's message: one list of ids, and short texts as headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from config.errors import PermanentError

_LONGEST_TEXT = 200


def parse_task_ids(content: Any) -> list[str]:
    """The ids of a message's content, `[[ids], {}, …]` as Celery writes it (protocol 2).

    Raises PermanentError when it is anything else.
    """
    if isinstance(content, list) and len(content) == 3:
        arguments, named, embedded = content
        follows = embedded.values() if isinstance(embedded, dict) else [embedded]
        if named or any(follows) or not isinstance(arguments, list) or len(arguments) != 1:
            raise PermanentError(f"a task takes one list of ids, not {_shorten(content)}")
        if is_id_list(arguments[0]):
            ids: list[str] = arguments[0]
            return ids
    raise PermanentError(f"a task takes one list of ids, not {_shorten(content)}")


def is_id_list(value: Any) -> bool:
    """Whether a value is a list of texts."""
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def parse_text_header(headers: Mapping[str, Any], name: str) -> str:
    """A header that is a short text; raises PermanentError when it is anything else."""
    value = headers.get(name)
    if isinstance(value, str) and len(value) <= _LONGEST_TEXT:
        return value
    raise PermanentError(f"header {name!r} is no short text but {_shorten(value)}")


def _shorten(value: Any) -> str:
    try:
        return repr(value)[:_LONGEST_TEXT]
    except RecursionError:
        return "something nested too deeply"
