"""Temporary files of a run in memory, where there is room: a plugin of pytest.

Stores force what they write to the disk, in some tests thousands of times, and so wait for all that
the disk does. Tests end processes and servers, never the machine: what they check is the same. The
folder of a run that passed is deleted, that of one that failed is kept as pytest keeps it. With
TMPDIR set, or `--basetemp`, files are put there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_MEMORY = Path("/dev/shm")
_BYTES = 6 << 30
"""Several times what a run of all tests keeps at its end."""


def pytest_configure() -> None:
    """Choose the folder, also for the processes that this one starts."""
    if "TMPDIR" not in os.environ and _has_room():
        os.environ["TMPDIR"] = str(_MEMORY)
        tempfile.tempdir = None  # it is read again


def _has_room() -> bool:
    return os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _BYTES


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Delete what a run that passed has left, after all that look through it."""
    yield
    if session.exitstatus == pytest.ExitCode.OK and session.config.option.basetemp is None:
        factory: Any = session.config._tmp_path_factory  # type: ignore[attr-defined]  # no other way
        folder: Path = factory.getbasetemp()
        if folder.is_relative_to(_MEMORY):
            shutil.rmtree(folder)
