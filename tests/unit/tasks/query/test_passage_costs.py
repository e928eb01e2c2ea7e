"""The tokens around a passage that its cost counts suffice for the rendered passage."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skills.bundle.markdown import render_passage
from skills.bundle.model import BundlePassage
from skills.token_count import count_tokens
from tasks.query.filling.bundle_skill import count_markup

HEADINGS = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\n\r"), max_size=30
)


@given(st.lists(HEADINGS, max_size=4).map(tuple))
def test_tags_are_counted_with_a_heading_in_the_text_and_without(path: tuple[str, ...]) -> None:
    texts = ["", *(f"{mark} {path[-1]}" for mark in ("##", "######") if path)]
    for text in texts:
        rendered = render_passage(
            BundlePassage(first_line=7, last_line=9, heading_path=path, roles=("step",), text=text)
        )
        assert count_tokens(rendered) <= count_markup(path)
