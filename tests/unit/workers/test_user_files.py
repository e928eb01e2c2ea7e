"""Files that a user names are read and written as meant, or refused with the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from config.errors import UsageError
from workers.library.user_files import read_text, write_atomically


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"task_id": "1"}', encoding="utf-8-sig")
    assert read_text(tmp_path / "tasks.jsonl") == '{"task_id": "1"}'


def test_a_file_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="file/out cannot be written: Not a directory"):
        write_atomically(tmp_path / "file" / "out", b"x")


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_atomically(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"x"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(tmp_path / "pipe", b"y")
        assert os.read(reader, 9) == b"y"
    finally:
        os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
