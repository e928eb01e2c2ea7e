"""Reindex between two indices that need no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from config.errors import TransientError
from search.local.index import LocalSearchIndex
from skills.passages import section_texts
from tasks.ingest.upgrade import reindex as task
from tests.support.samples.documents import ENCODER, tiny_document
from tests.support.samples.tiny import DIMENSION, TinyEncoder

NAMES = ("loom", "kiln", "anvil")


class OtherEncoder(TinyEncoder):
    model = "other:1"


class Steps:
    """Notes in which order the old index was frozen, thawed and replaced."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def block_writes(self) -> None:
        self.taken.append("freeze")

    def allow_writes(self) -> None:
        self.taken.append("thaw")

    def switch(self) -> None:
        self.taken.append("switch")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "QUIET_SECONDS", 0.05)


@pytest.fixture
def old(tmp_path: Path) -> Iterator[LocalSearchIndex]:
    index = LocalSearchIndex(tmp_path / "old", TinyEncoder.model, DIMENSION, writable=True)
    documents = [tiny_document(name) for name in NAMES]
    index.add(documents)
    for one in documents[:2]:
        vectors = ENCODER.encode_texts(section_texts(one.parsed))
        index.save_section_vectors(one.key, one.section_hashes, vectors)
    yield index
    index.close()


@pytest.fixture
def new(tmp_path: Path) -> Iterator[LocalSearchIndex]:
    index = LocalSearchIndex(tmp_path / "new", OtherEncoder.model, DIMENSION, writable=True)
    yield index
    index.close()


def test_all_that_is_published_is_there_before_the_switch(
    old: LocalSearchIndex, new: LocalSearchIndex
) -> None:
    steps, seen = Steps(), []
    late = tiny_document("late", seq=9)
    pointers = {f"home:{name}": 1 for name in NAMES[:2]} | {"home:removed": 0}

    def published() -> dict[str, int]:
        if steps.taken:  # a task that had written before the freeze publishes after it
            old.add([late])
            pointers["home:late"] = 9
        return pointers

    copier = task.IndexCopier(old, new, OtherEncoder.model, OtherEncoder())
    copied = task.reindex(steps, copier, published, lambda done, total: seen.append((done, total)))
    assert steps.taken == ["freeze", "switch"]
    assert copied == 3
    assert seen == [(2, 2)]
    assert {key.skill_id for key in new.list_keys()} == {"home:loom", "home:kiln", "home:late"}
    loom = tiny_document("loom")
    assert new.get_revisions([loom.key])[loom.key].filters == loom.filters
    assert set(new.get_section_vectors([loom.key, late.key])) >= {loom.key}
    assert copier.copy_revisions(old.list_keys()) == 1
    assert copier.copy_revisions(old.list_keys()) == 0


def test_the_old_index_goes_on_when_something_fails(
    old: LocalSearchIndex, new: LocalSearchIndex
) -> None:
    steps = Steps()
    copier = task.IndexCopier(old, new, OtherEncoder.model, OtherEncoder())

    def published() -> dict[str, int]:
        if steps.taken:
            raise TransientError("the catalog is away")
        return {"home:loom": 1}

    with pytest.raises(TransientError, match="away"):
        task.reindex(steps, copier, published)
    assert steps.taken == ["freeze", "thaw"]
    assert len(new.list_keys()) == 1
