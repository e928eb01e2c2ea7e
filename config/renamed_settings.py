"""Renamed settings, whose old names are accepted for one version, and removed settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")

RENAMED = {
    "paging": "passages",
    "workers.page_threads": "workers.embed_threads",
    "watch.look_seconds": "watch.rescan_seconds",
}
"""Old name -> current name, of a group or of `group.key`; a group is listed before its keys.

An entry is removed in the version after the one that added it.
"""

REMOVED = {
    "choice.floor": "choice.least_probability",
    "choice.floor_long": "choice.least_probability",
    "choice.floor_cosine": "choice.least_probability",
    "choice.near": "choice.least_probability",
    "passages.gap": "passages.miss",
    "reranker.late_milliseconds": "reranker.late_candidates",
}
"""Removed setting -> its replacement, which has another unit; the old value is ignored.

An entry is deleted in the version after the one that added it.
"""

_PREFIX = "SKILLBUS_"


def to_variable(setting: str) -> str:
    """Return the environment variable that sets a setting or a group."""
    return _PREFIX + setting.upper().replace(".", "__")


def to_setting(variable: str) -> str:
    """Return the setting or group that an environment variable sets."""
    return variable.lower().removeprefix(_PREFIX.lower()).replace("__", ".")


def get_current_name(setting: str) -> str:
    """Return the current name of a setting or group; `setting` itself unless it was renamed."""
    for old, new in RENAMED.items():
        if f"{setting}.".startswith(f"{old}."):
            setting = new + setting.removeprefix(old)
    return setting


def describe_old_name(setting: str, to_text: Callable[[str], str] = str) -> str:
    """Return what replaces an old name, for a warning; "" for a current name.

    to_text: the form of names in the text, such as `to_variable`.
    """
    current = get_current_name(setting)
    if current in REMOVED:
        return f"{to_text(setting)} is ignored; {to_text(REMOVED[current])} replaces it"
    if current != setting:
        new = to_text(current)
        return f"{to_text(setting)} is now {new}; the next version will not accept the old name"
    return ""


def rename_variables(variables: Mapping[str, Value]) -> dict[str, Value]:
    """Return environment variables under their current names, in lower case, without removed ones.

    A current name overrides an old name.
    """
    settings = {to_setting(name): value for name, value in variables.items()}
    current = {get_current_name(name): value for name, value in settings.items()}
    current |= {name: value for name, value in settings.items() if name in current}
    return {to_variable(n).lower(): value for n, value in current.items() if n not in REMOVED}


def rename_keys(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a settings file under current names, without removed settings.

    A value under a current name overrides one under the old name.
    """
    groups = {name: values for name, values in content.items() if isinstance(values, Mapping)}
    renamed: dict[str, dict[str, Any]] = {get_current_name(name): {} for name in groups}
    for group, values in groups.items():
        for key, value in values.items():
            setting = f"{group}.{key}"
            current = get_current_name(setting)
            if current in REMOVED:
                continue
            if current == setting:
                renamed[group][key] = value
            else:
                new_group, _, new_key = current.partition(".")
                renamed.setdefault(new_group, {}).setdefault(new_key, value)
    return renamed | {name: value for name, value in content.items() if name not in groups}
