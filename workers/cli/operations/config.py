"""`config`: shows the settings."""

from __future__ import annotations

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
    """Show the settings in force, and the path of the file.

    Passwords in addresses are left out.
    """
    settings = read_settings()
    values = hide_passwords(settings.model_dump(mode="json"))
    print_result(values, lambda given: _print(settings, given))


def _print(settings: Settings, values: dict[str, Any]) -> None:
    path = get_config_path(settings.home)
    missing = "" if path.exists() else " (missing)"
    click.echo(f"# {path}{missing}, overridden by SKILLBUS_… variables")
    for name, value in values.items():
        if not isinstance(value, dict):
            click.echo(f"{name} = {value!r}")
    for name, value in values.items():
        if isinstance(value, dict):
            click.echo(f"\n[{name}]")
            for key, inner in value.items():
                click.echo(f"{key} = {inner!r}")
