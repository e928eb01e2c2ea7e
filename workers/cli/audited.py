"""The decorator of commands that change something: each call writes one audit record."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from config.settings import Settings
from workers.audit.commands import get_outcome, is_recording, recording
from workers.audit.log import AuditLog, Outcome
from workers.cli.exit_codes import EXIT_FAILED

Function = TypeVar("Function", bound=Callable[..., Any])

_SETTINGS = "skillbus.settings"
"""Key of a command's settings in the root context."""

_DRY = ("dry_run", "estimate")
"""Options with which a command changes nothing."""


def audited(action: str, *names: str) -> Callable[[Function], Function]:
    """Decorate a command that changes something: each call that reads its settings is recorded.

    names: of the parameters that name the object.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            if any(kwargs.get(name) for name in _DRY):
                return function(*args, **kwargs)
            meta = click.get_current_context().find_root().meta
            name = _describe(kwargs, names)
            with recording(action, name, lambda: meta.get(_SETTINGS), _get_outcome):
                return function(*args, **kwargs)

        run.audited = action  # type: ignore[attr-defined]  # a mark on the function
        return run  # type: ignore[return-value]  # same parameters as `function`

    return decorate


def prepare_record(ctx: click.Context, settings: Settings) -> None:
    """Keep the settings for the audit record of this command, if it has one.

    Raises MisconfiguredError if it could not be recorded.
    """
    if is_recording():
        AuditLog(settings).check()
        ctx.find_root().meta[_SETTINGS] = settings


def _get_outcome(error: BaseException) -> Outcome:
    if isinstance(error, click.exceptions.Exit):
        return "failed" if error.exit_code == EXIT_FAILED else "done"
    return "refused" if isinstance(error, click.UsageError) else get_outcome(error)


def _describe(parameters: Mapping[str, Any], names: tuple[str, ...]) -> str:
    words: list[str] = []
    for name in names:
        value = parameters[name]
        if value is True:
            words.append(f"--{name.replace('_', '-')}")
        elif isinstance(value, tuple):
            words += map(str, value)
        elif value not in (None, "", False):
            words.append(str(value))
    return " ".join(words)
