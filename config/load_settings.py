"""Reads the settings: defaults, then `skillbus.toml`, then environment variables `SKILLBUS_…`.

This is the only place that reads them. A process calls `load_settings` once at its start and
passes the result on.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError

from config.errors import UsageError
from config.renamed_settings import (
    describe_old_name,
    get_current_name,
    rename_keys,
    rename_variables,
    to_setting,
    to_variable,
)
from config.settings import Settings


def get_config_path(home: Path) -> Path:
    """Return the path of the settings file: `SKILLBUS_CONFIG`, else `skillbus.toml` in the home."""
    named = os.environ.get("SKILLBUS_CONFIG")
    return Path(named) if named else home / "skillbus.toml"


def warn_on_stderr(message: str) -> None:
    """Write a warning as one line to standard error."""
    sys.stderr.write(f"skillbus: {message}\n")


def load_settings(
    home: Path | None = None, warn: Callable[[str], None] = warn_on_stderr
) -> Settings:
    """Read the settings file and the environment.

    `home` overrides `SKILLBUS_HOME`. `warn` is called with one line for each setting that is
    given under an old name or was removed. Raises UsageError that names the invalid setting, the
    problem and where to set it.
    """
    default = Settings.model_fields["home"].get_default(call_default_factory=True)
    base = _resolve_home(Path(home or os.environ.get("SKILLBUS_HOME") or default))
    path = get_config_path(base)
    _reject_unknown_variables()
    content = _read_file(path)
    if "home" in content:
        raise UsageError(f"setting home: {path} cannot set it; use --home or SKILLBUS_HOME")
    for text in _describe_old_names(content, path):
        warn(text)
    try:
        # SKILLBUS_HOME is in the environment too: the `home` argument must override it.
        return Settings(**rename_keys(content)).model_copy(update={"home": base})
    except ValidationError as error:
        raise UsageError(_format_errors(error, path)) from None
    except SettingsError as error:
        raise UsageError(_describe_unreadable_variables() or str(error)) from None


def _resolve_home(home: Path) -> Path:
    """Return the absolute path of the home; raises UsageError for a file or an unusable path."""
    try:
        base = home.expanduser().absolute()
        str(base).encode()  # the index cannot open a path that is not UTF-8
        is_file = base.is_file()
    # RuntimeError: of a user that does not exist
    except (OSError, RuntimeError, UnicodeEncodeError) as error:
        raise UsageError(
            f"the home {home} cannot be used: {getattr(error, 'strerror', None) or error}; name "
            "another folder with SKILLBUS_HOME or --home"
        ) from None
    if is_file:
        raise UsageError(f"{base} is a file; name a folder with SKILLBUS_HOME or --home")
    return base


def read_settings_file(path: Path) -> dict[str, Any]:
    """Return the content of a settings file under current names, empty if the file is missing.

    Raises UsageError for a file that cannot be read.
    """
    return rename_keys(_read_file(path))


def _describe_old_names(content: Mapping[str, Any], path: Path) -> Iterator[str]:
    """Yield what replaces each old name in the settings file and the environment."""
    for group, values in content.items():
        for key in values if isinstance(values, dict) else ():
            if text := describe_old_name(f"{group}.{key}"):
                yield f"{path}: {text}"
    ours = (name for name in sorted(os.environ) if name.upper().startswith("SKILLBUS_"))
    yield from filter(None, (describe_old_name(to_setting(one), to_variable) for one in ours))


def _reject_unknown_variables() -> None:
    """Raise UsageError for a variable `SKILLBUS_…` that names no setting, such as a misspelling."""
    known = {*Settings.model_fields, "config"}
    for name in os.environ:
        first = get_current_name(to_setting(name)).partition(".")[0]
        of_tests = name.startswith(("SKILLBUS_TEST_", "SKILLBUS_CRASH_"))
        if name.startswith("SKILLBUS_") and not of_tests and first not in known:
            raise UsageError(f"{name}: no such setting; `skillbus config show` lists all settings")


def _describe_unreadable_variables() -> str:
    """Return a line for each variable of a list or a table whose value is not JSON."""
    source = EnvSettingsSource(Settings)
    lines = []
    for name, value in os.environ.items():
        source.env_vars = rename_variables({name.lower(): value})
        try:
            source()
        except SettingsError as error:
            lines.append(
                f"{name}: not JSON ({error.__cause__}); lists and tables are written as JSON, such "
                'as ["a", "b"]'
            )
    return "\n".join(lines)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        if os.environ.get("SKILLBUS_CONFIG"):
            raise UsageError(f"{path}: SKILLBUS_CONFIG names a file that does not exist") from None
        return {}
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a readable TOML file: {error}") from error


def _format_errors(error: ValidationError, path: Path) -> str:
    lines = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        reason = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            reason = "no setting of that name; `skillbus config show` lists them"
        # A rule about several groups has no name of its own.
        where = f"setting {name}: {reason} (set in {path} or as {to_variable(name)})"
        lines.append(where if name else f"{reason} (set in {path} or the environment)")
    return "\n".join(lines)
