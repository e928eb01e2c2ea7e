"""`skillbus query`: a task in words, a bundle out."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.settings import OPTIONAL_STAGES
from tests.support.program.program import Skillbus
from tests.support.samples.library import write_skill, write_topics

TASK = "fire stoneware in an electric kiln"


def test_the_forms_of_an_answer(library: Skillbus) -> None:
    data = library("query", TASK, "--format", "json").data
    assert data["status"] == "SKILL_HIT"
    first = data["skills"][0]
    assert first["skill_id"] == "crafts:kiln-firing"
    assert Path(first["path"]).is_file()
    assert first["passages"]
    assert data["tokens"] <= data["budget"]
    text = library("query", TASK).out
    assert "1. kiln-firing  (crafts:kiln-firing)" in text
    markdown = library("query", TASK, "--format", "markdown").out
    assert "crafts:kiln-firing" in markdown
    assert first["passages"][0]["text"].splitlines()[0] in markdown


def test_the_task_from_a_file_or_standard_input(library: Skillbus, tmp_path: Path) -> None:
    file = tmp_path / "task.md"
    file.write_text(TASK, encoding="utf-8")
    expected = library.chosen(TASK)
    from_file = library("query", "--file", str(file), "--format", "json").data
    from_input = library("query", "-", "--format", "json", stdin=TASK).data
    for data in (from_file, from_input):
        assert data["task"] == TASK
        assert [skill["skill_id"] for skill in data["skills"]] == expected


def test_explain_shows_every_candidate(library: Skillbus) -> None:
    explain = library("query", TASK, "--explain", "--format", "json").data["explain"]
    assert explain["candidates"][0]["skill_id"] == "crafts:kiln-firing"
    assert explain["candidates"][0]["verdict"].startswith("in: ")
    assert "stages (ms)" in library("query", TASK, "--explain").out


@pytest.mark.parametrize("stage", OPTIONAL_STAGES)
def test_every_stage_can_be_switched_off(library: Skillbus, stage: str) -> None:
    assert library.chosen(TASK, "--without", stage)[0] == "crafts:kiln-firing"


def test_filters(library: Skillbus) -> None:
    assert library.chosen(TASK, "--filter", "licence=MIT") == ["crafts:kiln-firing"]
    result = library("query", TASK, "--filter", "colour=red", code=2)
    assert "licence" in result.err


def test_a_hit_and_no_hit_differ(library: Skillbus) -> None:
    result = library("query", TASK, "--filter", "source=elsewhere", code=3)
    assert "NO_SKILL_HIT" in result.out
    assert "no skill matches the filters: none has source 'elsewhere'" in result.out
    data = library("query", "zzyzx qwrtp", "--without", "dense", "--format", "json", code=3).data
    assert data["status"] == "NO_SKILL_HIT"
    assert data["skills"] == []


@pytest.mark.parametrize(
    ("filters", "reason"),
    [
        (["language=xx"], "no skill matches the filters: none has language 'xx'"),
        (["licence=WTFPL", "source=crafts"], "no skill matches the filters: none has licence"),
        (["licence=MIT", "language=zh"], "none has language 'zh'"),
        (["licence=MIT", "source=crafts"], "no skill that matches the filters shares anything"),
        (["tool=nosuch"], "no skill matches the filters: none has tool 'nosuch'"),
        (["language=xx", "tool=nosuch"], "none has language 'xx' or tool 'nosuch'"),
    ],
)
def test_filters_that_no_skill_passes_are_the_reason(
    library: Skillbus, filters: list[str], reason: str
) -> None:
    options = [part for one in filters for part in ("--filter", one)]
    asked = library("query", "zzyzx qwrtp", "--without", "dense", *options, code=3)
    assert reason in asked.out


def test_the_reason_stays_short_with_many_filter_values(library: Skillbus) -> None:
    values = [f"tool={number}{'x' * 200}" for number in range(100)]
    options = [part for one in values for part in ("--filter", one)]
    data = library(
        "query", "zzyzx", "--without", "dense", *options, "--format", "json", code=3
    ).data
    assert "none has tool '0xxx" in data["reason"]
    assert data["reason"].endswith(" or 95 others")
    assert data["tokens"] < 300


def test_budget_and_top_are_kept(library: Skillbus) -> None:
    data = library("query", TASK, "--top", "1", "--format", "json").data
    assert len(data["skills"]) == 1
    data = library("query", TASK, "--budget", "300", "--format", "json").data
    assert data["tokens"] <= data["budget"] == 300


def test_a_budget_too_small_for_a_passage_says_so(library: Skillbus) -> None:
    result = library("query", TASK, "--budget", "0", code=2)
    assert "--budget" in result.err
    result = library.start("query", TASK, "--budget", "5", "--format", "json").wait()
    assert "Traceback" not in result.err
    assert "budget" in result.out + result.err
    library("query", TASK, "--budget", "99999999999", code=2)
    library("query", TASK, "--budget", "-4", code=2)


def test_an_empty_task_is_a_usage_error(library: Skillbus) -> None:
    assert "the task is empty" in library("query", "", code=2).err
    assert "the task is empty" in library("query", "-", stdin="   \n\t ", code=2).err


def test_a_task_without_a_word_is_about_no_skill(skillbus: Skillbus, tmp_path: Path) -> None:
    root = write_topics(tmp_path / "crafts")
    write_skill(root, "questions", '"?"', "?\n")
    skillbus("sync", str(root))
    for task in ("?", "!", "... \U0001f4ca →"):
        assert "NO_SKILL_HIT" in skillbus("query", task, code=3).out


def test_an_id_that_is_none_is_named_with_its_option(library: Skillbus) -> None:
    asked = library("query", TASK, "--why", "crafts:kiln-firing", "--why", "nosuch", code=2)
    assert asked.err.startswith("skillbus: --why: 'nosuch' is no skill id")


def test_no_task_or_two(library: Skillbus, tmp_path: Path) -> None:
    library("query", code=2)
    library("query", TASK, "--file", "x", code=2)
    assert "cannot be read" in library("query", "--file", str(tmp_path / "none"), code=2).err
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in library("query", "--file", str(binary), code=2).err


def test_standard_input_that_is_no_text(library: Skillbus) -> None:
    result = library("query", "-", stdin="\udcff\udcfe", code=2)
    assert "UTF-8" in result.err
    assert "Traceback" not in result.err


def test_a_hundred_thousand_words(library: Skillbus) -> None:
    words = "fire stoneware in a kiln " * 20_000
    result = library.start("query", "-", stdin=words).wait()
    assert result.code == 2
    assert "limits.query_characters" in result.err
    long = "the kiln " * 20_000
    assert library("query", "-", "--format", "json", stdin=long).data["skills"]


@pytest.mark.parametrize(
    "task",
    [
        "kiln AND (stoneware OR NOT glaze) name:kiln* ^4 ~2 [a TO z] {x} +kiln -pot !glaze \\",
        'kiln\x00stoneware\x1b[31m" OR "1"="1; DROP TABLE skills; -- `$(rm -rf kiln)`',
        "*",
    ],
)
def test_operators_are_only_words(library: Skillbus, task: str) -> None:
    result = library.start("query", "-", "--format", "json", stdin=task).wait()
    assert result.code in (0, 3), result.err
    if "kiln" in task:
        assert result.data["skills"][0]["skill_id"] == "crafts:kiln-firing"


def test_a_query_without_a_library(skillbus: Skillbus) -> None:
    result = skillbus("query", TASK, code=2)
    assert "skillbus sync" in result.err
