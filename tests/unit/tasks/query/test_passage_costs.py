"""Costs of passages are counted in parts, and are those of the rendered whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skills.bundle.markdown import render_passage
from skills.bundle.model import BundlePassage
from skills.record import Role
from skills.token_count import count_tokens
from tasks.query.filling.filler import _markup_tokens

HEADINGS = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\n\r"), max_size=30
)


@given(st.lists(HEADINGS, max_size=4).map(tuple))
def test_tags_and_heading_are_counted_as_they_are_rendered(path: tuple[str, ...]) -> None:
    widest = max((role.value for role in Role), key=count_tokens)
    rendered = render_passage(
        BundlePassage(
            first_line=10**6 - 1,
            last_line=10**6,
            heading_path=path,
            roles=(widest,),
            text=f"###### {path[-1]}" if path else "",
        )
    )
    assert _markup_tokens(path) == count_tokens(rendered)
