"""Files that a user names: those that cannot be written are refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import UsageError
from workers.library.user_files import write_atomically


def test_a_file_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="file/out cannot be written: Not a directory"):
        write_atomically(tmp_path / "file" / "out", b"x")
