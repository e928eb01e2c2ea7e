"""Published skills that are read while the library changes, or next to many withheld ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from graph.records import Publication
from search.protocol import StoredRevision
from skills.record import RevisionKey
from tasks.query.process_state.review_cache import ReviewCache
from tests.support.samples.one_skill import SKILL, OneSkill, open_skill
from workers.library.skill_reader import SkillReader


def open_reader(library: OneSkill, index: Any) -> SkillReader:
    services = library.services
    assert services.review_store is not None
    stores = (services.graph, index, None, ReviewCache(services.review_store))
    return SkillReader(services.settings, lambda _: stores)


def test_a_skill_that_is_removed_during_the_read_is_left_out() -> None:
    with open_skill() as library:
        library.edit(1)
        library.ingest(1)
        graph = library.services.graph

        def remove_first(keys: Sequence[RevisionKey]) -> Mapping[RevisionKey, StoredRevision]:
            seq = graph.allocate_sequence(1)[0]
            graph.remove([RevisionKey(SKILL, seq)])
            return library.services.index.get_revisions([])

        reader = open_reader(library, SimpleNamespace(get_revisions=remove_first))
        assert reader.read_allowed([SKILL]) == {}


def test_withheld_skills_are_passed_over_in_few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_skill(policy={"sources": {"other": "withhold"}}) as library:
        library.edit(1)
        library.ingest(1)
        graph = library.services.graph
        keys = [RevisionKey(f"other:{seq}", seq) for seq in range(1_000, 1_500)]
        graph.publish([Publication(key, "other", f"{key.seq}", "hash", "x", "") for key in keys])
        reader = open_reader(library, library.services.index)
        reads, list_entries = [], graph.list_entries

        def count_reads(*arguments: Any) -> Any:
            reads.append(arguments)
            return list_entries(*arguments)

        monkeypatch.setattr(graph, "list_entries", count_reads)
        assert [one.skill_id for one in reader.list_published("", 2)] == [SKILL]
        assert len(reads) < 10
