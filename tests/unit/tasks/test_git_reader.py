"""What a hostile commit costs the reader of a git source."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, cast

import pytest

from config.settings import LimitSettings
from tasks.sources.git import reader
from tasks.sources.git.reader import GitReader
from tasks.sources.git.tree import CommitTree


def test_no_skill_is_looked_for_above_submodules_that_are_too_deep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A path may have thousands of folders, and each would be looked at for each submodule."""
    folders = ["/".join(["d"] * depth) for depth in range(1, 31)]
    subfolders = defaultdict(set, {one.rpartition("/")[0]: {one} for one in folders})
    submodules = [f"{folders[-1]}/{number}" for number in range(3)]
    tree = CommitTree(defaultdict(dict), subfolders, [], submodules)
    looked: list[str] = []
    monkeypatch.setattr(reader, "_find_outer_skill", lambda path, found: looked.append(path))
    found = GitReader(tree, cast(Any, None), LimitSettings()).scan("")
    assert list(found.refused) == ["/".join(["d"] * (LimitSettings().depth + 1))]
    assert looked == []
