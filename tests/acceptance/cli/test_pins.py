"""`skillbus pins`: a skill stays at a revision while its source goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.samples.library import write_skill, write_topics

KILN = "crafts:kiln-firing"


@pytest.fixture(params=["alone", "served"])
def skillbus(
    request: pytest.FixtureRequest, fork_server: ForkServer, tmp_path: Path
) -> Iterator[Skillbus]:
    made = Skillbus(fork_server, tmp_path / "home")
    write_topics(tmp_path / "crafts")
    with made.serving() if request.param == "served" else nullcontext():
        write_text(made, "first")
        yield made


def write_text(made: Skillbus, word: str, **fields: str) -> None:
    root = made.home.parent / "crafts"
    write_skill(root, "kiln-firing", body=f"# Kiln\n\nThe {word} text.\n", **fields)
    made("sync", str(root), "--until", "words")


def revisions(made: Skillbus) -> list[dict[str, Any]]:
    return list(made("skills", "history", KILN, "--json").data)


def published_text(made: Skillbus) -> str:
    [seq] = [one["seq"] for one in revisions(made) if one["state"] == "published"]
    return str(made("skills", "show", f"{KILN}@{seq}", "--json").data["text"])


def becomes(made: Skillbus, word: str) -> Callable[[], bool]:
    return lambda: f"The {word} text." in published_text(made)


def test_a_pinned_skill_stays_until_it_is_unpinned(skillbus: Skillbus) -> None:
    added = skillbus("pins", "add", KILN, "--reason", "not reviewed", "--json").data
    assert [one["skill_id"] for one in added] == [KILN]
    assert "nothing is held back" in skillbus("pins", "drift").out
    write_text(skillbus, "second", license="MIT")
    write_text(skillbus, "third", license="MIT")
    assert "The first text." in published_text(skillbus)
    assert [one["state"] for one in revisions(skillbus)] == ["held", "held", "published"]
    [row] = skillbus("pins", "drift", "--json").data
    assert (row["reason"], row["seq"]) == ("not reviewed", added[0]["seq"])
    assert "+The third text." in row["change"]["diff"]
    assert {"field": "licence", "before": "", "after": "MIT"} in row["change"]["fields"]
    assert "licence changed" in skillbus("pins", "drift").out
    assert "+The third text." in skillbus("pins", "drift", KILN).out
    assert KILN in skillbus("pins", "list").out
    skillbus("pins", "remove", KILN)
    wait_for(becomes(skillbus, "third"))
    assert skillbus("pins", "list", "--json").data == []
    assert revisions(skillbus)[0]["state"] == "published"


def test_a_skill_is_pinned_to_an_earlier_revision(skillbus: Skillbus) -> None:
    write_text(skillbus, "second")
    first = revisions(skillbus)[-1]["seq"]
    skillbus("pins", "add", f"{KILN}@{first}", "--reason", "better")
    wait_for(becomes(skillbus, "first"))
    [row] = skillbus("pins", "drift", "--json").data
    assert "+The second text." in row["change"]["diff"]
    write_text(skillbus, "third")
    assert "The first text." in published_text(skillbus)
    skillbus("pins", "remove", KILN)
    wait_for(becomes(skillbus, "third"))


def test_a_source_is_pinned_as_it_is(skillbus: Skillbus) -> None:
    added = skillbus("pins", "add", "--source", "crafts", "--reason", "freeze", "--json").data
    assert len(added) == 10
    write_text(skillbus, "second")
    assert "The first text." in published_text(skillbus)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("add", "crafts:none", "--reason", "x"), "no skill 'crafts:none'"),
        (("add", f"{KILN}@999999", "--reason", "x"), "is not kept"),
        (("add", KILN, "--reason", " "), "needs a reason"),
        (("add", "--reason", "x"), "name a skill, or a source"),
        (("add", "--source", "none", "--reason", "x"), "no source 'none'"),
        (("remove", KILN), "is not pinned"),
        (("drift", KILN), "is not pinned"),
    ],
)
def test_what_cannot_be_pinned_is_refused(
    library: Skillbus, words: tuple[str, ...], reason: str
) -> None:
    assert reason in library("pins", *words, code=2).err


def test_without_a_history_nothing_is_pinned(library: Skillbus) -> None:
    off = library.with_environment(SKILLBUS_HISTORY__REVISIONS="0")
    assert "history.revisions is 0" in off("pins", "add", KILN, "--reason", "x", code=2).err
