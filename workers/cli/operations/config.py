"""`config`: shows the settings."""

from __future__ import annotations

import json
from typing import Any

import click

from config.load_settings import get_config_path
from config.settings import Settings
from workers.cli.common import json_option, print_result, read_settings
from workers.monitoring.setting_origins import hide_passwords


@click.group()
def config() -> None:
    """Show settings."""


@config.command("show")
@json_option
def show_config() -> None:
    """Show the settings in force, and the path of the settings file.

    They are printed as TOML, as the file has them; settings without a value are comments.
    Passwords in addresses are left out.
    """
    settings = read_settings()
    values = hide_passwords(settings.model_dump(mode="json"))
    print_result(values, lambda given: _print(settings, given))


def _print(settings: Settings, values: dict[str, Any]) -> None:
    path = get_config_path(settings.home)
    missing = "" if path.exists() else " (missing)"
    click.echo(f"# {path}{missing}, overridden by SKILLBUS_… variables")
    groups = {name: value for name, value in values.items() if isinstance(value, dict)}
    click.echo(f"# home = {_to_toml(values.pop('home'))}")  # the file cannot set it
    _print_group({name: value for name, value in values.items() if name not in groups})
    for name, group in groups.items():
        click.echo(f"\n[{name}]")
        _print_group(group)


def _print_group(group: dict[str, Any]) -> None:
    for name, value in group.items():
        click.echo(f"# {name} =" if value is None else f"{name} = {_to_toml(value)}")


def _to_toml(value: Any) -> str:
    if isinstance(value, dict):
        fields = (f"{json.dumps(name)} = {_to_toml(one)}" for name, one in value.items())
        return f"{{{', '.join(fields)}}}"
    return json.dumps(value, ensure_ascii=False)
