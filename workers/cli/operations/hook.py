"""`hook`: adds skills to the prompts of a coding agent; installs itself in the agent's settings."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import get_args

import click

from config.errors import UsageError
from config.inbound_settings import HookSettings
from skills.bundle.escaping import escape_terminal_line
from workers.agent_hook import prompt_hook
from workers.agent_hook.installation import (
    EVENTS,
    SCOPES,
    HookFile,
    Scope,
    build_command,
    open_hook_file,
)
from workers.cli.common import ask, json_option, print_list, print_to_stderr, read_settings

agent_argument = click.argument("agent", type=click.Choice(prompt_hook.AGENTS))
scope_option = click.option(
    "--scope",
    type=click.Choice(get_args(Scope)),
    default="user",
    show_default=True,
    help="user: your own settings; project: those of the project in this directory.",
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show the change only.")


@click.group()
def hook() -> None:
    """Add skills to each prompt of a coding agent.

    \b
    Examples:
      skillbus hook install claude-code
      skillbus hook status
    """


def _add_agent(agent: str, title: str) -> None:
    @hook.command(
        agent,
        context_settings={"ignore_unknown_options": True},
        short_help=f"Handle a hook event of {title}.",
        help=f"""Handle a hook event of {title}: read it as JSON on standard input, ask a
        running `skillbus serve`, and write the skills for the prompt as JSON, or nothing.

        The exit code is 0 after errors too, so that no prompt is blocked.
        """,
    )
    @click.option("--verbose", is_flag=True, help="Print to standard error what was done.")
    @click.option(
        "--without-settings", is_flag=True, help="Skip the settings file and the environment."
    )
    @click.pass_context
    def run(ctx: click.Context, /, verbose: bool, without_settings: bool, **options: str) -> None:
        words = [agent]
        words += ["--verbose"] * verbose + ["--without-settings"] * without_settings
        home = ctx.find_root().obj
        for name, value in {"home": home, **options}.items():
            if value is not None:
                words += [f"--{name.replace('_', '-')}", str(value)]
        ctx.exit(prompt_hook.main(words))

    for name, field in HookSettings.model_fields.items():
        # Values are checked where they are read: an invalid value must not end a prompt.
        option = click.option(
            f"--{name.replace('_', '-')}",
            metavar="VALUE",
            help=f"Setting hook.{name}: {field.description}.",
        )
        option(run)


_add_agent("claude-code", "Claude Code")
_add_agent("codex", "Codex")


@hook.command("install")
@agent_argument
@scope_option
@dry_run_option
@yes_option
def install(agent: str, scope: Scope, dry_run: bool, yes: bool) -> None:
    """Add the hook to the settings of an agent.

    The change is shown, and you are asked to confirm.

    \b
    Examples:
      skillbus hook install claude-code
      skillbus hook install codex --scope project --dry-run
    """
    settings = read_settings()
    file = open_hook_file(agent, scope, Path.cwd())
    _change(file, file.with_hook(build_command(agent, scope, settings)), dry_run, yes)
    if agent == "codex" and not dry_run:
        print_to_stderr("start codex and trust the hook with /hooks: it skips new hooks until then")


@hook.command("uninstall")
@agent_argument
@scope_option
@dry_run_option
@yes_option
def uninstall(agent: str, scope: Scope, dry_run: bool, yes: bool) -> None:
    """Remove the hook from the settings of an agent.

    The change is shown, and you are asked to confirm.
    """
    file = open_hook_file(agent, scope, Path.cwd())
    if not file.installed:
        click.echo(f"{file.path}: not installed")
        return
    _change(file, file.without_hook(), dry_run, yes)


def _change(file: HookFile, text: str, dry_run: bool, yes: bool) -> None:
    if text == file.content:
        click.echo(f"{file.path}: installed already")
        return
    for line in difflib.unified_diff(
        (file.content or "").splitlines(),
        text.splitlines(),
        str(file.path) if file.content is not None else "/dev/null",
        str(file.path),
        lineterm="",
    ):
        text_of_line = line[1:].lstrip()
        indent = line[1 : len(line) - len(text_of_line)]
        click.echo(line[:1] + indent.expandtabs(4) + escape_terminal_line(text_of_line))
    if dry_run:
        return
    if not yes and not ask(f"Change {file.path}?"):
        raise UsageError("nothing was changed; --yes skips the question")
    file.write(text)
    click.echo(f"{file.path}: changed")


@hook.command("status")
@json_option
def status() -> None:
    """Show where the hook is installed, and if it is up to date."""
    settings = read_settings()
    rows = []
    paths: set[Path] = set()
    for agent in prompt_hook.AGENTS:
        for scope in SCOPES:
            file = open_hook_file(agent, scope, Path.cwd())
            if file.path in paths:  # in the home folder, the project's file is the user's
                continue
            paths.add(file.path)
            try:
                found = file.installed
                state = _describe(found, build_command(agent, scope, settings))
            except UsageError as error:
                found, state = {}, str(error)
            rows.append(
                {
                    "agent": agent,
                    "scope": scope,
                    "file": str(file.path),
                    "state": state,
                    "commands": found,
                }
            )
    print_list(rows, ("agent", "scope", "state", "file"))


def _describe(found: dict[str, str], command: str) -> str:
    if not found:
        return "not installed"
    if found == dict.fromkeys(EVENTS, command):
        return "installed"
    return "outdated: install it again"
