"""What differs between two answers."""

from __future__ import annotations

from skills.bundle.model import Bundle, BundlePassage, BundleSkill, Revision
from workers.console.compare_bundles import compare_bundles


def bundle(query_id: str, **lines: tuple[int, int]) -> Bundle:
    """A bundle of skills with one passage each."""
    skills = tuple(
        BundleSkill(
            skill_id=name,
            name=name,
            description="",
            source="a",
            path="",
            revision=Revision(seq=1, content_hash=""),
            licence="",
            language="en",
            score=1.0,
            why=(),
            passages=(
                BundlePassage(first_line=first, last_line=last, heading_path=(), roles=(), text=""),
            ),
        )
        for name, (first, last) in lines.items()
    )
    return Bundle(query_id=query_id, status="SKILL_HIT", task="", budget=1, skills=skills)


def test_the_same_answer_has_no_change() -> None:
    change = compare_bundles(bundle("1", a=(1, 5)), bundle("2", a=(1, 5)))
    assert change.is_empty
    assert change.before == "1"


def test_skills_and_lines_that_differ_are_named() -> None:
    before = bundle("1", a=(1, 5), b=(1, 2), c=(1, 9))
    after = bundle("2", c=(1, 9), a=(4, 8), d=(1, 1))
    change = compare_bundles(before, after)
    assert change.added == ("d",)
    assert change.removed == ("b",)
    assert change.moved == {"c": (3, 1), "a": (1, 2)}
    assert change.lines == {"a": (3, 3)}
    assert not change.is_empty
