"""Command line and environment of a child process that runs this installation of skillbus.

A child must import nothing from its working directory or from `PYTHONPATH`: a folder with a
`config/__init__.py` would be executed. `-m` puts the working directory first on the
import path, and the console script honours `PYTHONPATH`, so neither is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])
"""The folder that holds the package `workers`: site-packages, or a checkout."""

# Appended, not inserted: site-packages before the standard library would shadow it.
_BOOTSTRAP = (
    "import sys; root = sys.argv.pop(1); root in sys.path or sys.path.append(root); "
    "from {module} import main; main()"
)


def skillbus_command(arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs `skillbus` with `arguments`, from the parent's own code.

    Start it with `child_environment`.
    """
    return module_command("workers.cli", arguments)


def module_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs `main` of a module, as `skillbus_command`."""
    return [sys.executable, "-P", "-c", _BOOTSTRAP.format(module=module), _ROOT, *arguments]


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without `PYTHONPATH`, and with `PYTHONSAFEPATH`.

    The latter protects grandchildren. extra: variables to add.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "PYTHONSAFEPATH": "1", **(extra or {})}
