"""Pins in ingest: what a skill is published with depends on its pin and its source alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.ingest.ingest import split_ingest_batch
from tests.support.samples.one_skill import SKILL, open_skill, text_of

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("edit"), st.integers(0, 3)),
        st.tuples(st.just("ingest"), st.integers(1, 2)),
        st.tuples(st.just("pin"), st.integers(0, 4)),
        st.tuples(st.just("unpin"), st.just(0)),
        st.tuples(st.just("remove"), st.just(0)),
        st.tuples(st.just("break"), st.just(0)),
        st.tuples(st.just("sweep"), st.just(0)),
    ),
    max_size=14,
)


@settings(max_examples=25)
@given(_STEPS)
def test_what_is_published_follows_from_pin_and_source(steps: list[tuple[str, int]]) -> None:
    with open_skill() as library:
        library.edit(0)
        for name, value in steps:
            getattr(library, {"break": "break_"}.get(name, name))(value)
        library.ingest(2)
        pinned, there = library.pinned_text(), library.text
        published = library.published_text()
        if not there:
            assert published == ""
        elif pinned:
            assert published == pinned
        else:
            assert published == ("" if there == "broken" else there)
        newest = library.reader.list_revisions(SKILL)[:1]
        if pinned and there not in ("", "broken", pinned):
            assert newest[0].state == "held"
            assert text_of(newest[0].parsed) == there
        elif published:
            assert newest[0].state in ("published", "held")
        assert len(library.reader.list_revisions(SKILL)) <= 4
        before = library.reader.list_revisions(SKILL)
        library.ingest(2)  # again, without a change
        assert library.published_text() == published
        assert [one.seq for one in library.reader.list_revisions(SKILL)] == [
            one.seq for one in before
        ]


def test_nothing_is_held_back_once_the_source_has_the_pinned_content_again() -> None:
    with open_skill() as library:
        library.update(1)
        library.pin(0)
        library.update(2)
        [drift] = library.reader.find_drift()
        assert "+Text number 2." in drift["change"]["diff"]
        library.update(1)
        [drift] = library.reader.find_drift()
        assert drift["change"] is None
        assert library.published_text() == "Text number 1."
        states = [one.state for one in library.reader.list_revisions(SKILL)]
        assert states == ["published", "superseded", "superseded"]
        library.update(2)
        [drift] = library.reader.find_drift()
        assert "+Text number 2." in drift["change"]["diff"]


def test_a_pinned_skill_stays_published_if_new_content_breaks_the_parser(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_skill() as library:
        library.update(1)
        library.pin(0)
        with monkeypatch.context() as patched:
            patched.setattr("tasks.ingest.held.pinned.prepare_skill", break_down)
            with pytest.raises(KeyError):
                library.update(2)
            split_ingest_batch(library.services, [SKILL], KeyError())
        assert library.published_text() == "Text number 1."
        assert library.services.graph.list_awaiting_ingest(9) == []


def break_down(*_: object) -> None:
    raise KeyError
