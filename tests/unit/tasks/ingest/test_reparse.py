"""Skills of an older parser are parsed again, from what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from graph.records import CatalogEntry
from skills.parsing.parse_skill import PARSER_VERSION, parse_skill
from skills.record import ParsedSkill, RevisionKey
from tasks.ingest import ingest as ingest_module
from tasks.ingest.embed_sections import embed_sections
from tasks.ingest.embed_skills import embed_skills
from tasks.ingest.preparation import prepare
from tasks.ingest.upgrade import reparse as module
from tasks.ingest.upgrade.reparse import reparse_outdated
from tasks.policies import Deadline
from tests.support.samples.library import write_skill
from tests.support.samples.one_skill import SKILL, OneSkill, open_skill

BODY = "# Kiln\n\n## Inputs\n\n- pots: dry\n\n## Steps\n\n1. Load the kiln.\n"


@contextmanager
def older_parser(**fields: Any) -> Iterator[None]:
    """A version of the parser that made these fields of records otherwise."""

    def parse(*args: Any) -> ParsedSkill:
        parsed = parse_skill(*args)
        return replace(parsed, record=replace(parsed.record, **fields))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "parse_skill", parse)
        patch.setattr(ingest_module, "PARSER_VERSION", PARSER_VERSION - 1)
        yield


@pytest.fixture
def library() -> Iterator[OneSkill]:
    with open_skill() as library:
        write_skill(library.root, "kiln", body=BODY)
        yield library


def get_entry(library: OneSkill) -> CatalogEntry:
    [entry] = library.services.graph.get_entries([SKILL])
    return entry


def read(library: OneSkill) -> ParsedSkill:
    key = get_entry(library).key
    return library.services.index.get_revisions([key])[key].parsed


def reparse(library: OneSkill) -> int:
    return reparse_outdated(library.services, Deadline(60))


def test_the_same_result_keeps_its_revision(library: OneSkill) -> None:
    with older_parser():
        library.ingest(1)
    before = get_entry(library)
    assert library.services.graph.count_parsed_before(PARSER_VERSION) == 1
    library.root.rename(library.root.with_name("away"))
    assert reparse(library) == 1
    assert get_entry(library) == replace(before, parser_version=PARSER_VERSION)
    assert library.services.graph.count_parsed_before(PARSER_VERSION) == 0
    assert reparse(library) == 0


def test_another_result_is_published_with_its_vectors(library: OneSkill) -> None:
    """Its source is not read, and no content is superseded."""
    with older_parser(inputs=("lids",)):
        library.ingest(1)
    for task in (embed_skills, embed_sections):
        task(library.services, Deadline(60), [SKILL])
    before = get_entry(library)
    assert (before.has_vectors, before.embedded) == (True, True)
    assert read(library).record.inputs == ("lids",)
    library.root.rename(library.root.with_name("away"))
    assert reparse(library) == 1
    assert read(library).record.inputs == ("pots",)
    after = get_entry(library)
    kept: dict[str, Any] = {"seq": after.seq, "requested_seq": after.seq, "updated": after.updated}
    assert after == replace(before, **kept, parser_version=PARSER_VERSION)
    assert after.seq > before.seq
    assert library.services.index.get_section_vectors([after.key])
    assert library.history.list_revisions(SKILL) == []
    library.sweep(0)
    assert [one.seq for one in library.reader.list_revisions(SKILL)] == [after.seq]


def test_held_content_stays_held(library: OneSkill) -> None:
    with older_parser(inputs=("lids",)):
        library.update(1)
        library.pin(0)
        library.update(2)
    assert [one.state for one in library.reader.list_revisions(SKILL)] == ["held", "published"]
    assert reparse(library) == 1
    library.run_ingest()
    listed = library.reader.list_revisions(SKILL)
    assert [one.state for one in listed][:2] == ["held", "published"]
    assert "Text number 2." in listed[0].parsed.lines
    assert library.published_text() == library.pinned_text() == "Text number 1."
    assert read(library).record.inputs == ()
    assert reparse(library) == 0


def test_a_pin_to_an_older_revision_is_parsed_again(library: OneSkill) -> None:
    with older_parser(inputs=("lids",)):
        library.update(1)
        library.update(2)
    library.pin(1)
    library.ingest(1)
    assert library.published_text() == "Text number 1."
    assert read(library).record.inputs == ()


def test_an_ingest_of_unchanged_content_parses_it_again(library: OneSkill) -> None:
    with older_parser(inputs=("lids",)):
        library.ingest(1)
    library.ingest(1)
    assert read(library).record.inputs == ("pots",)
    seq = get_entry(library).seq
    library.ingest(1)
    assert get_entry(library).seq == seq


def test_a_requested_ingest_goes_first(library: OneSkill, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have read newer content, under a lower seq."""
    graph = library.services.graph
    with older_parser(inputs=("lids",)):
        library.ingest(1)
    before = get_entry(library)

    def request(*args: Any) -> range:
        graph.request_ingest([before.place], before.seq + 1)
        return allocate(*args)

    allocate = graph.allocate_sequence
    monkeypatch.setattr(graph, "allocate_sequence", request)
    reparse(library)
    monkeypatch.undo()
    assert get_entry(library).seq == before.seq
    assert reparse(library) == 0, "it is left to the ingest"
    assert graph.count_parsed_before(PARSER_VERSION) == 1
    library.run_ingest()
    assert graph.count_parsed_before(PARSER_VERSION) == 0


def test_a_few_at_a_time(library: OneSkill, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("loom", "anvil"):
        write_skill(library.root, name)
    with older_parser(inputs=("lids",)):
        library.sync()
        ids = ["lib:anvil", SKILL, "lib:loom"]
        ingest_module.ingest(library.services, Deadline(60), ids)
    monkeypatch.setattr(module, "MAX_REPARSED", 2)
    assert [reparse(library) for _ in range(3)] == [2, 1, 0]
    keys = [RevisionKey(one.skill_id, one.seq) for one in library.services.graph.get_entries()]
    inputs = [
        one.parsed.record.inputs for one in library.services.index.get_revisions(keys).values()
    ]
    assert sorted(inputs) == [(), (), ("pots",)]
