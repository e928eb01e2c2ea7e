"""The distributed deployment, end to end, ends where the embedded one does."""

from __future__ import annotations

from pathlib import Path

from tests.support.distributed import Distributed, deployments, distributed
from tests.support.library import Folder
from tests.support.program import Skillbus
from tests.support.snapshot import snapshot

__all__ = ["deployments", "distributed"]


def test_a_library_is_the_same_as_an_embedded_one(
    distributed: Distributed, skillbus: Skillbus, tmp_path: Path
) -> None:
    folder = Folder(tmp_path / "lib", seed=5, size=30)
    for _ in range(2):
        one = skillbus.start("sync", str(folder.root)).wait()
        other = distributed.skillbus.start("sync", str(folder.root)).wait()
        assert other.code == one.code, other.err
        distributed.wait_done()
        assert snapshot(distributed.settings) == snapshot(skillbus.home)
        folder.change(8)
