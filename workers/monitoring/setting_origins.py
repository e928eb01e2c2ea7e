"""Origin of each setting in force: its default, the settings file or the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from config.errors import UsageError
from config.load_settings import get_config_path, load_settings, read_settings_file
from config.renamed_settings import get_current_name, to_setting, to_variable
from config.secrets import strip_passwords
from config.settings import Settings


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """A setting. value: as JSON, with URLs without passwords. origin: `default`, `file`
    or `environment`. variable: the variable that sets it. is_changed: whether a restart
    would change the value."""

    name: str
    value: Any
    origin: str
    variable: str
    is_changed: bool


def list_settings_in_force(settings: Settings) -> tuple[list[SettingInForce], str]:
    """Return every setting by name, and why the settings file cannot be read now, "" if it can.

    settings: the settings that this process was started with.
    """
    problem = ""
    content: dict[str, Any] = {}
    now = settings
    try:
        content = read_settings_file(get_config_path(settings.home))
        now = load_settings(settings.home, warn=lambda _: None)
    except UsageError as error:
        problem = str(error)
    ours = (name for name in os.environ if name.upper().startswith("SKILLBUS_"))
    variables = {get_current_name(to_setting(name)) for name in ours}
    later = dict(_list_values(now))
    return [
        SettingInForce(
            name,
            hide_passwords(value),
            _find_origin(name, content, variables),
            to_variable(name),
            value != later.get(name, value),
        )
        for name, value in _list_values(settings)
    ], problem


def _list_values(settings: Settings) -> Iterator[tuple[str, Any]]:
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            for key, inner in value.model_dump(mode="json").items():
                yield f"{name}.{key}", inner
        else:
            yield name, value if isinstance(value, str) else str(value)


def _find_origin(name: str, content: dict[str, Any], variables: set[str]) -> str:
    group, _, key = name.partition(".")
    if variables & {name, group} or any(one.startswith(f"{name}.") for one in variables):
        return "environment"
    in_file = content.get(group)
    if key:
        in_file = in_file.get(key) if isinstance(in_file, dict) else None
    return "default" if in_file is None else "file"


def hide_passwords(value: Any) -> Any:
    """Return a value without the passwords of URLs in it."""
    if isinstance(value, str) and "://" in value and "@" in value:
        return ",".join(strip_passwords(value))
    if isinstance(value, list):
        return [hide_passwords(one) for one in value]
    if isinstance(value, dict):
        return {name: hide_passwords(one) for name, one in value.items()}
    return value
