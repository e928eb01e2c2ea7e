"""Old names of settings, which are accepted for one version with a warning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")

RENAMED = {
    "paging": "passages",
    "workers.page_threads": "workers.embed_threads",
    "choice.near": "choice.floor_cosine",
    "watch.look_seconds": "watch.rescan_seconds",
}
"""Old name -> current name, of a group or of `group.key`.

An entry is removed in the version after the one that added it.
"""


def rename_variable(name: str) -> str:
    """The current name of an environment variable; `name` itself unless it was renamed."""
    folded = name.lower()
    for old, new in RENAMED.items():
        prefix = _variable(old)
        if folded == prefix or folded.startswith(f"{prefix}__"):
            renamed = _variable(new) + folded.removeprefix(prefix)
            return renamed.upper() if name.isupper() else renamed
    return name


def rename_variables(variables: Mapping[str, Value]) -> dict[str, Value]:
    """Environment variables under their current names; a current name overrides an old one."""
    renamed = {rename_variable(name): value for name, value in variables.items()}
    return renamed | {name: value for name, value in variables.items() if name in renamed}


def rename_keys(content: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The content of a settings file under current names, and the (old, current) names in it.

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
            renamed.setdefault(new_group, {}).setdefault(new_key, value)
    return renamed, found


def _variable(setting: str) -> str:
    return "skillbus_" + setting.replace(".", "__")
