"""Pins in ingest: what a skill is published with depends on its pin and its source alone."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

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
