"""`skillbus query`: a task in words, a bundle out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.settings import Settings
from skills.events import QueryAsked, QueryFilters
from tests.support.program.program import Skillbus
from tests.support.samples.library import write_skill, write_topics
from workers.backend.embedded import EmbeddedBackend
from workers.backend.protocol import Backend

TASK = "fire stoneware in an electric kiln"


@pytest.fixture(scope="module")
def backend(library: Skillbus) -> Iterator[Backend]:
    """The library, opened in this process."""
    with EmbeddedBackend(Settings(home=library.home), writable=False) as opened:
        yield opened


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
    assert re.search(r"\n\nquery_id: [0-9a-f]{32}\n\Z", markdown)


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


def test_filters(library: Skillbus) -> None:
    assert library.chosen(TASK, "--filter", "licence=MIT") == ["crafts:kiln-firing"]


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
        (
            {"licence": "WTFPL", "source": "crafts"},
            "no skill matches the filters: none has licence",
        ),
        ({"licence": "MIT", "language": "zh"}, "none has language 'zh'"),
        ({"licence": "MIT", "source": "crafts"}, "that matches the filters is related to the task"),
        ({"tool": "nosuch"}, "no skill matches the filters: none has tool 'nosuch'"),
        ({"language": "xx", "tool": "nosuch"}, "none has language 'xx' or tool 'nosuch'"),
    ],
)
def test_filters_that_no_skill_passes_are_the_reason(
    backend: Backend, filters: dict[str, str], reason: str
) -> None:
    wanted = QueryFilters(**{name: (value,) for name, value in filters.items()})
    asked = QueryAsked(task="zzyzx qwrtp", filters=wanted, without=("dense",))
    assert reason in backend.answer_query(asked, "tests")["reason"]


def test_the_reason_stays_short_with_many_filter_values(backend: Backend) -> None:
    values = tuple(f"{number}{'x' * 200}" for number in range(100))
    asked = QueryAsked(task="zzyzx", filters=QueryFilters(tool=values), without=("dense",))
    data = backend.answer_query(asked, "tests")
    assert "none has tool '0xxx" in data["reason"]
    assert data["reason"].endswith(" or 95 others")
    assert data["tokens"] < 300


def test_budget_and_top_are_kept(library: Skillbus) -> None:
    data = library("query", TASK, "--top", "1", "--budget", "300", "--format", "json").data
    assert len(data["skills"]) == 1
    assert data["tokens"] <= data["budget"] == 300


def test_a_budget_too_small_for_a_passage_says_so(library: Skillbus) -> None:
    assert "budget" in library("query", TASK, "--budget", "5", code=2).err


def test_an_empty_task_is_a_usage_error(library: Skillbus) -> None:
    assert "the task is empty" in library("query", "-", stdin="   \n\t ", code=2).err


def test_a_task_without_a_word_is_about_no_skill(skillbus: Skillbus, tmp_path: Path) -> None:
    root = write_topics(tmp_path / "crafts")
    write_skill(root, "questions", '"?"', "?\n")
    skillbus("sync", str(root))
    for task in ("?", "... \U0001f4ca →"):
        assert "NO_SKILL_HIT" in skillbus("query", task, code=3).out


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
def test_operators_are_only_words(backend: Backend, task: str) -> None:
    asked = QueryAsked(task=task, without=("dense", "floor"))
    found = backend.answer_query(asked, "tests")["skills"]
    assert [one["skill_id"] for one in found[:1]] == ["crafts:kiln-firing"] * ("kiln" in task)
