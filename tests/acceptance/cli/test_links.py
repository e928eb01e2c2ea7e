"""Links from use and `skillbus links`: learned from outcomes, dismissed, restored, taken back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.program.program import Skillbus, wait_for

TASK = "fire stoneware in an electric kiln"
KILN = "crafts:kiln-firing"


@pytest.fixture(scope="module")
def skillbus(crafts_library: Skillbus) -> Skillbus:
    """A library of this file."""
    return crafts_library


@pytest.fixture(scope="module")
def other(skillbus: Skillbus) -> str:
    """A skill that the kiln has no link with."""
    listed: list[str] = [row["skill_id"] for row in skillbus("skills", "list", "--json").data]
    known = {end for link in links(skillbus) for end in (link["source"], link["target"])}
    return next(one for one in listed if one not in {KILN, *known})


def links(skillbus: Skillbus, skill_id: str = KILN) -> list[dict[str, Any]]:
    return list(skillbus("skills", "show", skill_id, "--json").data["links"])


def used_together(skillbus: Skillbus) -> list[dict[str, Any]]:
    return [link for link in links(skillbus) if link["type"] == "used_together"]


def report(skillbus: Skillbus, *words: str) -> None:
    query_id = skillbus("query", TASK, "--format", "json").data["query_id"]
    for skill_id in words:
        skillbus("outcome", query_id, skill_id, "helped")


def link_again(skillbus: Skillbus) -> None:
    """Have a process that writes the library link what changed; `serve` does so by itself."""
    skillbus("sync", str(skillbus.home.parent / "crafts"))


def test_from_use_to_a_dismissal_and_back(skillbus: Skillbus, other: str) -> None:
    before = links(skillbus)
    report(skillbus, KILN, other)
    link_again(skillbus)
    wait_for(lambda: used_together(skillbus))
    [forward, backward] = used_together(skillbus)
    assert {forward["source"], backward["source"]} == {KILN, other}
    assert forward["evidence"] == "outcomes: helped together in 1 task of 1 owner"
    shown = skillbus("skills", "show", KILN).out
    assert "outcomes: helped together in 1 task of 1 owner" in shown

    # Dismissed, it stays out when skills are linked again.
    place = (KILN, other, "used_together")
    said = skillbus("links", "dismiss", *place, "--reason", "never together", "--json").data
    assert (said["reason"], said["type"]) == ("never together", "used_together")
    assert used_together(skillbus) == []
    assert "dismissed link: used_together" in skillbus("skills", "show", other).out
    [row] = skillbus("links", "dismissed", "--json").data
    assert {row["source"], row["target"]} == {KILN, other}
    report(skillbus, KILN, other)
    link_again(skillbus)
    assert used_together(skillbus) == []

    # Restored, it returns with what was reported meanwhile.
    skillbus("links", "restore", other, KILN, "used_together")
    wait_for(lambda: used_together(skillbus))
    assert skillbus("links", "dismissed").out == "no dismissed links\n"
    wait_for(lambda: "in 2 tasks" in used_together(skillbus)[0]["evidence"])

    # Without the outcomes, the links are what they were.
    skillbus("outcomes", "forget", "--owner", "")
    wait_for(lambda: links(skillbus) == before)


def test_what_is_not_there_is_refused(skillbus: Skillbus) -> None:
    for words, message in (
        (("crafts:none", KILN, "semantic"), "no skill 'crafts:none'"),
        (("nocolon", KILN, "semantic"), "skill"),
        ((KILN, KILN, "workflow"), "no workflow link"),
    ):
        assert message in skillbus("links", "dismiss", *words, "--reason", "x", code=2).err
    restore = ("links", "restore", KILN, "crafts:none", "conflict")
    assert "is not dismissed" in skillbus(*restore, code=2).err
