"""Several revisions read at once are those that are read one by one."""

from __future__ import annotations

from skills.record import RevisionKey
from tests.support.samples.one_skill import SKILL, open_skill


def test_revisions_read_together_are_those_read_one_by_one() -> None:
    with open_skill() as library:
        for number in range(3):
            library.edit(number)
            library.ingest(1)
        kept = library.reader.list_revisions(SKILL)
        assert {one.state for one in kept} == {"published", "superseded"}
        keys = [one.kept.key for one in kept]
        absent = [RevisionKey(SKILL, 10_000), RevisionKey("lib:gone", 1)]
        found = library.reader.read_revisions([*absent, *keys])
    assert found == dict(zip(keys, kept, strict=True))


def test_no_revisions_are_read_for_an_empty_bundle() -> None:
    with open_skill() as library:
        assert library.reader.read_revisions([]) == {}
