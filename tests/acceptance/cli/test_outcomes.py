"""`skillbus outcome` and `skillbus outcomes`: what came of skills, reported and taken back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.program.program import Skillbus

TASK = "fire stoneware in an electric kiln"
KILN = "crafts:kiln-firing"


@pytest.fixture(scope="module")
def skillbus(crafts_library: Skillbus) -> Skillbus:
    """A library of this file."""
    return crafts_library


@pytest.fixture
def forgotten(skillbus: Skillbus) -> Iterator[None]:
    """Nothing of the test is left for the next."""
    yield
    skillbus("outcomes", "forget", "--owner", "")


def ask(skillbus: Skillbus, task: str = TASK) -> str:
    return str(skillbus("query", task, "--format", "json").data["query_id"])


def exported(skillbus: Skillbus) -> list[dict[str, object]]:
    return [json.loads(line) for line in skillbus("outcomes", "export").out.splitlines()]


def test_an_outcome_is_reported_exported_and_forgotten(skillbus: Skillbus, tmp_path: Path) -> None:
    query_id = ask(skillbus)
    assert skillbus("outcome", query_id, KILN, "helped").out == f"recorded: {KILN} helped\n"
    printed = skillbus("outcome", query_id, "missing", "--task-result", "failed", "--json").data
    assert (printed["query_id"], printed["outcomes"][0]["outcome"]) == (query_id, "missing")
    skillbus(
        "outcome", query_id, KILN, "rejected", "--reason", "wrong_step", "--by", "verifier"
    )  # fmt: skip
    rows = exported(skillbus)
    assert [(row["skill_id"], row["outcome"], row["by"], row["reason"]) for row in rows] == [
        (KILN, "helped", "person", ""),
        ("", "missing", "person", ""),
        (KILN, "rejected", "verifier", "wrong_step"),
    ]
    assert {row["query_id"] for row in rows} == {query_id}
    assert rows[0]["place"] == 1
    assert rows[1]["task_result"] == "failed"
    assert skillbus("outcomes", "owners", "--json").data == [{"owner": "", "outcomes": 3}]
    file = tmp_path / "outcomes.jsonl"
    assert "3 outcomes" in skillbus("outcomes", "export", "--out", str(file)).out
    assert [json.loads(line) for line in file.read_text().splitlines()] == rows
    assert skillbus("outcomes", "forget", "--owner", "", "--json").data == {"forgotten": 3}
    assert exported(skillbus) == []
    assert skillbus("outcomes", "owners").out == "no outcomes\n"


def test_a_report_changes_the_answer_and_is_taken_back(skillbus: Skillbus) -> None:
    def render() -> str:
        text, _, query_id = skillbus("query", TASK, "--format", "markdown").out.rpartition(": ")
        assert len(query_id) == 33
        return text

    before = render()
    query_id = ask(skillbus)
    skillbus("outcome", query_id, KILN, "rejected", "--reason", "wrong_domain")
    assert render() != before
    assert "rejected for 1 similar task" in skillbus("query", TASK, "--explain").out
    assert skillbus("outcomes", "forget", "--query", query_id).out == "1 outcome forgotten\n"
    assert render() == before
    refused = skillbus("outcomes", "forget", "--query", "0" * 32, code=2).err
    assert "0" * 32 in refused


@pytest.mark.usefixtures("forgotten")
def test_the_summary_of_a_query_gives_its_id(skillbus: Skillbus) -> None:
    line = skillbus("query", TASK).out.splitlines()[-1]
    assert line.startswith("query ")
    query_id = line.removeprefix("query ").partition(";")[0]
    skillbus("outcome", query_id, KILN, "used")
    assert [row["outcome"] for row in exported(skillbus)] == ["used"]


@pytest.mark.usefixtures("forgotten")
def test_a_skill_that_was_not_in_the_bundle(skillbus: Skillbus) -> None:
    query_id = ask(skillbus)
    other = next(
        skill_id for skill_id in sorted(skillbus.skills()) if skill_id not in skillbus.chosen(TASK)
    )
    skillbus("outcome", query_id, other, "helped")
    skillbus("outcome", query_id, KILN, "superseded", "--other", other)
    assert [(row["skill_id"], row["place"], row["other"]) for row in exported(skillbus)] == [
        (other, 0, ""),
        (KILN, 1, other),
    ]


def test_wrong_reports_are_refused_and_nothing_is_stored(skillbus: Skillbus) -> None:
    query_id = ask(skillbus)
    for args, text in (
        (["unknown", KILN, "helped"], "no answered query 'unknown'"),
        ([query_id, "crafts:none", "helped"], "no skill 'crafts:none'"),
        ([query_id, KILN, "superseded", "--other", "crafts:none"], "no skill 'crafts:none'"),
    ):
        assert text in skillbus("outcome", *args, code=2).err
    assert exported(skillbus) == []


def test_an_export_to_no_folder_is_refused(skillbus: Skillbus, tmp_path: Path) -> None:
    target = tmp_path / "no" / "folder.jsonl"
    assert str(target) in skillbus("outcomes", "export", "--out", str(target), code=2).err


def test_an_owner_without_anything_is_not_found(skillbus: Skillbus) -> None:
    ask(skillbus)
    refused = skillbus("outcomes", "forget", "--owner", "nosuch", code=2)
    assert refused.err.startswith("skillbus: nothing is stored for owner 'nosuch'")
    assert not refused.out


def test_old_queries_are_forgotten(skillbus: Skillbus) -> None:
    query_id = ask(skillbus)
    skillbus("outcome", query_id, KILN, "helped")
    assert skillbus("outcomes", "forget", "--older-than", "1", "--json").data == {"forgotten": 0}
    assert skillbus("outcomes", "forget", "--older-than", "0", "--json").data == {"forgotten": 1}
    assert "no answered query" in skillbus("outcome", query_id, KILN, "helped", code=2).err
