"""`config`: shows the settings."""

from __future__ import annotations

import click

from config.load_settings import get_config_path
from workers.cli.common import json_option, print_json, read_settings
from workers.monitoring.setting_origins import hide_passwords


@click.group()
def config() -> None:
    """Show settings."""


@config.command("show")
@json_option
@click.pass_context
def show_config(ctx: click.Context, as_json: bool) -> None:
    """Show the settings in force, and the path of the file.

    Passwords in addresses are left out.
    """
    settings = read_settings(ctx)
    values = hide_passwords(settings.model_dump(mode="json"))
    if as_json:
        print_json(values)
        return
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
