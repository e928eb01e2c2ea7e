"""Renamed settings, whose old names are accepted for one version, and removed settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")

RENAMED = {
    "paging": "passages",
    "workers.page_threads": "workers.embed_threads",
    "watch.look_seconds": "watch.rescan_seconds",
    "passages.gap": "passages.miss",
}
"""Old name -> current name, of a group or of `group.key`; a group is listed before its keys.

An entry is removed in the version after the one that added it.
"""


REMOVED = {
    "choice.floor": "choice.least_probability",
    "choice.floor_long": "choice.least_probability",
    "choice.floor_cosine": "choice.least_probability",
    "choice.near": "choice.least_probability",
    "reranker.late_milliseconds": "reranker.late_candidates",
}
"""Removed setting -> its replacement, which has another unit; the old value is ignored.

An entry is deleted in the version after the one that added it.
"""


def find_removed_variable(name: str) -> str:
    """Return the environment variable that replaces a removed one; "" if `name` was not removed."""
    for old, new in REMOVED.items():
        if name.lower() == _variable(old):
            return _variable(new).upper()
    return ""


def drop_removed_keys(content: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the content of a settings file without removed settings, and a pair (removed,
    replacement) for each of them."""
    kept = dict(content)
    found = []
    for old, new in REMOVED.items():
        group, _, key = old.partition(".")
        values = kept.get(group)
        if isinstance(values, Mapping) and key in values:
            kept[group] = {name: value for name, value in values.items() if name != key}
            found.append((old, new))
    return kept, found


def _convert_gap(gap: Any) -> float:
    """Return the `miss` with which method F sends about as much as with a score gap.

    Raises ValueError for a gap that is not a number.
    """
    miss = 0.2 * math.exp((4.2 - float(gap)) / 1.5)
    if math.isnan(miss):
        raise ValueError("not a number")
    return min(1.0, miss)


CONVERTED: dict[str, Callable[[Any], Any]] = {"passages.gap": _convert_gap}
"""Old name -> function that converts an old value, for settings whose meaning changed too."""


def rename_variable(name: str) -> str:
    """Return the current name of an environment variable; `name` itself unless it was renamed."""
    folded = name.lower()
    for old, new in RENAMED.items():
        prefix = _variable(old)
        if folded == prefix or folded.startswith(f"{prefix}__"):
            folded = _variable(new) + folded.removeprefix(prefix)
    if folded == name.lower():
        return name
    return folded.upper() if name.isupper() else folded


def rename_variables(variables: Mapping[str, Value]) -> dict[str, Value | Any]:
    """Return environment variables under their current names, without removed variables.

    A current name overrides an old name.
    """
    variables = {n: value for n, value in variables.items() if not find_removed_variable(n)}
    renamed = {
        rename_variable(name): _convert_variable(name, value) for name, value in variables.items()
    }
    return renamed | {name: value for name, value in variables.items() if name in renamed}


def rename_keys(content: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the content of a settings file under current names, and (old, current) of each rename.

    A value under a current name overrides one under the old name.
    """
    renamed = {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in content.items()
    }
    found = []
    for old, new in RENAMED.items():
        old_group, _, old_key = old.partition(".")
        new_group, _, new_key = new.partition(".")
        if not old_key and old_group in renamed:
            found.append((f"[{old_group}]", f"[{new_group}]"))
            value = renamed.pop(old_group)
            current = renamed.get(new_group)
            if isinstance(value, dict) and isinstance(current, dict):
                renamed[new_group] = value | current
            elif current is None:
                renamed[new_group] = value
        elif old_key and isinstance(renamed.get(old_group), dict) and old_key in renamed[old_group]:
            found.append((old, new))
            value = renamed[old_group].pop(old_key)
            renamed.setdefault(new_group, {}).setdefault(new_key, _convert(old, value))
    return renamed, found


def _convert(old: str, value: Any) -> Any:
    """Convert a value given under an old name; an invalid value is returned for the validation."""
    try:
        return CONVERTED[old](value) if old in CONVERTED else value
    except (TypeError, ValueError, OverflowError):
        return value


def _convert_variable(name: str, value: Value) -> Value | Any:
    for old in CONVERTED:
        same_key = name.lower().endswith("__" + old.rpartition(".")[2])
        if same_key and rename_variable(name).lower() == _variable(RENAMED[old]):
            return str(_convert(old, value))
    return value


def _variable(setting: str) -> str:
    return "skillbus_" + setting.replace(".", "__")
