"""Check for packages that the light installation leaves out."""

from __future__ import annotations

from importlib.util import find_spec

from config.errors import PermanentError


def check_installed(*packages: str, purpose: str) -> None:
    """Raise PermanentError, which says how to get them, unless all packages are installed.

    purpose: what needs them, as the subject of a sentence. Nothing is imported.
    """
    missing = [package for package in packages if not _is_installed(package)]
    if missing:
        raise PermanentError(
            f"{purpose} needs {' and '.join(missing)}, which the light installation leaves out; "
            "install all dependencies: in a clone of skillbus, `make install` or `pip install .`"
        )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:
        return False
