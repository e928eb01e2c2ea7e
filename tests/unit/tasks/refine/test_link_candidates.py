"""Candidates of links by the language model: which texts are read for them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from search.protocol import StoredRevision
from skills.record import RevisionKey
from tasks.ingest.ingest import ingest
from tasks.policies import Deadline
from tasks.refine.linking import candidates
from tasks.refine.linking.candidates import read_skill_text
from tests.support.samples.library import write_skill
from tests.support.samples.one_skill import OneSkill, open_skill


def find(library: OneSkill, skill_id: str) -> list[str]:
    [entry] = library.services.graph.get_entries([skill_id])
    [revision] = library.services.index.get_revisions([entry.key]).values()
    skill = read_skill_text(revision)
    return candidates._find_compatible(library.services, skill)


def test_what_a_revision_exchanges_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_skill() as library:
        names = ("finder", "fitting", "painter")
        for name in names:
            write_skill(library.root, name, body=f"Works on hulls.json as {name}.\n")
        library.sync()
        ingest(library.services, Deadline(60), [f"lib:{name}" for name in names])
        assert find(library, "lib:finder") == ["lib:fitting", "lib:painter"]
        read: list[int] = []
        get_revisions = library.services.index.get_revisions

        def count(keys: Sequence[RevisionKey]) -> dict[RevisionKey, StoredRevision]:
            read.append(len(keys))
            return get_revisions(keys)

        monkeypatch.setattr(library.services.index, "get_revisions", count)
        assert find(library, "lib:fitting") == ["lib:finder", "lib:painter"]
        assert read == [1, 1], "the skill itself, and the one that was not a candidate before"
        write_skill(library.root, "painter", body="Works on other.json as painter.\n")
        library.sync()
        ingest(library.services, Deadline(60), ["lib:painter"])
        assert find(library, "lib:fitting") == ["lib:finder"]
