"""`skillbus usage`: what was asked, sent and reported, as a user of the command line sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.samples.library import write_topics

KILN = "fire stoneware in an electric kiln"
UNKNOWN = ("rotate the zfs snapshots of the warehouse", "rotate zfs snapshots in the warehouse")


@pytest.fixture(scope="module")
def asked(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Skillbus:
    """A library of ten skills that was asked four times, and looked at once."""
    base = tmp_path_factory.mktemp("usage")
    skillbus = Skillbus(fork_server, base / "home")
    skillbus("sync", str(write_topics(base / "crafts")))
    for task in (KILN, KILN, *UNKNOWN):
        skillbus.chosen(task)
    skillbus("query", KILN, "--no-record-use")
    return skillbus


def usage(skillbus: Skillbus, *args: str) -> dict[str, Any]:
    found: dict[str, Any] = skillbus("usage", "--json", *args).data
    return found


def test_what_was_just_asked_is_shown(asked: Skillbus) -> None:
    report = usage(asked)
    assert report["total"]["queries"] == 4
    assert report["total"]["hits"] == 2
    assert report["behind"] == []
    [day] = report["days"]
    assert (day["queries"], day["no_hits"]) == (4, 2)
    first = report["skills"][0]
    assert first["skill_id"] == "crafts:kiln-firing"
    assert (first["chosen"], first["sent"]) == (2, 2)
    assert first["tokens"] > 0
    [owner] = report["owners"]
    assert (owner["owner"], owner["queries"]) == ("", 4)
    text = asked("usage").out
    assert "queries   4: 2 hits, 2 no hits, 2 unanswered" in text
    assert "crafts:kiln-firing" in text


@pytest.mark.parametrize(
    ("selection", "unknown"),
    [
        (("--owner", "stranger"), "stranger"),
        (("--skill", "crafts:nope"), "crafts:nope"),
        (("--source", "nope", "--unused"), "nope"),
        (("--skill", "crafts:tide-tables"), None),
        (("--source", "crafts"), None),
        (("--owner", ""), None),
    ],
)
def test_what_neither_library_nor_usage_knows_is_noted(
    asked: Skillbus, selection: tuple[str, ...], unknown: str | None
) -> None:
    noted = asked("usage", *selection).err
    said = f"no use recorded of '{unknown}' in the last 30 days\n"
    assert noted == (said if unknown else "")


def test_an_outcome_is_counted(asked: Skillbus) -> None:
    bundle = asked("query", KILN, "--format", "json").data
    asked("outcome", bundle["query_id"], "crafts:kiln-firing", "helped")
    wait_for(lambda: usage(asked)["total"]["helped"] == 1)
    row = usage(asked, "--skill", "crafts:kiln-firing")["skills"][0]
    assert (row["sent"], row["helped"], row["rejected"]) == (3, 1, 0)


def test_filters(asked: Skillbus) -> None:
    report = usage(asked, "--skill", "crafts:kiln-firing")
    assert [row["skill_id"] for row in report["skills"]] == ["crafts:kiln-firing"]
    assert "queries" not in report["total"]
    assert usage(asked, "--source", "other")["skills"] == []
    assert usage(asked, "--owner", "ci")["total"]["queries"] == 0
    assert usage(asked, "--owner", "")["total"]["queries"] >= 4
    assert len(usage(asked, "--limit", "1")["skills"]) == 1


def test_skills_that_were_never_chosen(asked: Skillbus) -> None:
    chosen = {row["skill_id"] for row in usage(asked)["skills"]}
    found = usage(asked, "--unused")
    published = set(asked.skills())
    assert {row["skill_id"] for row in found["skills"]} == published - chosen
    assert found["total"] == len(published - chosen)
    assert usage(asked, "--unused", "--source", "other")["skills"] == []
    assert f"(UTC): {found['total']}\n" in asked("usage", "--unused").out


def test_what_the_library_cannot_do(asked: Skillbus) -> None:
    found = usage(asked, "--unanswered")
    assert (found["total"], found["grouped"]) == (2, 2)
    [group] = found["groups"]
    assert (group["queries"], group["no_hits"]) == (2, 2)
    assert {one["task"] for one in group["examples"]} == set(UNKNOWN)
    text = asked("usage", "--unanswered").out
    assert "unanswered queries: 2" in text
    assert "zfs snapshots" in text
    assert usage(asked, "--unanswered", "--owner", "ci")["groups"] == []


def test_what_was_asked_and_answered(asked: Skillbus) -> None:
    found = usage(asked, "--queries")
    answers = [one for group in found["groups"] for one in group["answers"]]
    assert {one["task"] for one in answers} == {KILN, *UNKNOWN}
    assert {one["hit"] for one in answers if one["task"] in UNKNOWN} == {False}
    assert found["more"] is False
    text = asked("usage", "--queries").out
    assert "crafts:kiln-firing" in text
    assert UNKNOWN[0] in text
    assert usage(asked, "--queries", "--limit", "1")["more"] is True
    assert usage(asked, "--queries", "--owner", "ci") == {"groups": [], "more": False}
    assert "no queries" in asked("usage", "--queries", "--owner", "ci").out


def test_copies(asked: Skillbus) -> None:
    assert usage(asked, "--copies") == {"skills": [], "total": 0}
    assert "no skill was always left out" in asked("usage", "--copies").out


@pytest.fixture(scope="module")
def served(asked: Skillbus) -> Iterator[Skillbus]:
    with asked.serving():
        yield asked


def test_serve_shows_the_same(served: Skillbus) -> None:
    with served.client() as client:
        report = client.get("/v1/usage", params={"days": 7}).json()
        assert report["total"] == usage(served, "--days", "7")["total"]
        assert report["skill_count"] == len(report["skills"])
        unused = client.get("/v1/usage/unused", params={"limit": 3}).json()
        rows = unused["skills"]
        while unused["next"]:
            unused = client.get(unused["next"]).json()
            rows += unused["skills"]
        assert rows == usage(served, "--unused", "--limit", "1000")["skills"]
        found = client.get("/v1/usage/unanswered").json()
        assert found["groups"] == usage(served, "--unanswered")["groups"]
        assert client.get("/v1/usage/copies").json() == {"skills": [], "total": 0, "next": None}


def test_a_day_is_shown_as_before_once_it_is_rolled_up_and_can_be_taken_back(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    skillbus = Skillbus(
        fork_server,
        tmp_path / "home",
        SKILLBUS_LEARNING__ROLL_UP_SECONDS="0.1",
        SKILLBUS_WORKERS__RECONCILE_SECONDS="0.1",
        SKILLBUS_LOG_LEVEL="info",
    )
    skillbus("sync", str(write_topics(tmp_path / "crafts")))
    query_id = skillbus("query", KILN, "--format", "json").data["query_id"]
    skillbus("outcome", query_id, "crafts:kiln-firing", "helped")
    wait_for(lambda: usage(skillbus)["total"]["helped"] == 1)
    assert "queries   1: 1 hit, 0 no hits, 0 unanswered\n" in skillbus("usage").out
    before = usage(skillbus)
    with skillbus.serving() as process:
        wait_for(lambda: '"days": 1' in process.text("err"))
        assert usage(skillbus) == before
        status = json.loads(skillbus("status", "--json").out)
    assert status["usage_days_behind"] == 0
    skillbus("outcomes", "forget", "--owner", "")
    after = usage(skillbus)
    assert not any(after["total"].values())
    assert (after["skills"], after["owners"]) == ([], [])
