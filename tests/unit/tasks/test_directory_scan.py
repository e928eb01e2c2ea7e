"""The scan of a folder that changes while it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import TransientError
from config.settings import LimitSettings
from tasks.sources import directory
from tests.support.samples.library import write_skill


def test_a_root_that_goes_while_it_is_read_has_lost_no_skill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "crafts"
    for name in ("kiln-firing", "loom-setup"):
        write_skill(root, name)
    add_file = directory._add_file

    def add_and_move(*arguments: object) -> None:
        add_file(*arguments)  # type: ignore[arg-type]
        if root.exists():
            root.rename(tmp_path / "away")

    with monkeypatch.context() as patched:
        patched.setattr(directory, "_add_file", add_and_move)
        with pytest.raises(TransientError, match="moved or replaced"):
            directory.scan(root, "", LimitSettings())
    (tmp_path / "away").rename(root)
    assert sorted(directory.scan(root, "", LimitSettings()).signatures) == [
        "kiln-firing",
        "loom-setup",
    ]
