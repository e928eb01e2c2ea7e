"""Sessions on the command line: with `serve`, and by processes that share only the home."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.program.program import ForkServer, Skillbus
from tests.support.samples.library import write_skill, write_topics

TASK = "fire stoneware in an electric kiln"
KILN = "crafts:kiln-firing"
OBSTACLE = "the kiln controller shows a thermocouple fault E47"

BODY = """\
1. Load the stoneware with a finger of air between the pots.
2. Fire to cone 6 at 80 °C an hour.

## Cooling

Open the kiln below 100 °C.

## Troubleshooting

If the controller shows error E47, the thermocouple is broken: switch off, replace it and start
again.
""" + "".join(
    f"\n## Glaze {number}\n\nGlaze number {number} is mixed with {number} parts of feldspar, "
    "sieved twice, left overnight, stirred again, and brushed on in three thin coats.\n"
    for number in range(1, 13)
)
"""More than is sent whole."""


@pytest.fixture(scope="module")
def pottery(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Skillbus:
    """Ten crafts; that of firing says what to do about a fault."""
    base = tmp_path_factory.mktemp("sessions")
    root = write_topics(base / "crafts")
    write_skill(root, "kiln-firing", "Fire stoneware in an electric kiln", BODY)
    skillbus = Skillbus(fork_server, base / "home")
    skillbus("sync", str(root))
    return skillbus


@pytest.fixture(scope="module", params=["processes", "serve"])
def library(request: pytest.FixtureRequest, pottery: Skillbus) -> Iterator[Skillbus]:
    if request.param == "processes":
        yield pottery
        return
    with pottery.serving():
        yield pottery


def ask(library: Skillbus, *args: str, code: int = 0) -> dict[str, Any]:
    data: dict[str, Any] = library("query", *args, "--format", "json", code=code).data
    return data


def sent_lines(data: dict[str, Any]) -> set[tuple[str, int, int]]:
    return {
        (skill["skill_id"], skill["revision"]["seq"], number)
        for skill in data["skills"]
        for passage in skill["passages"]
        for number in range(passage["first_line"], passage["last_line"] + 1)
    }


def test_what_was_sent_is_named_and_not_sent_again(
    library: Skillbus, request: pytest.FixtureRequest
) -> None:
    session = f"again {request.node.name}"
    first = ask(library, TASK, "--session", session)
    assert not first["already_sent"]
    assert KILN in [skill["skill_id"] for skill in first["skills"]]
    second = ask(library, TASK, "--session", session)
    assert second["status"] == "SKILL_HIT"
    assert second["earlier"] == 1
    assert not sent_lines(first) & sent_lines(second)
    assert KILN in [one["skill_id"] for one in second["already_sent"]]
    assert second["tokens"] < first["tokens"]
    again = ask(library, TASK, "--session", session, "--resend")
    assert sent_lines(again) == sent_lines(first)
    assert not again["already_sent"]
    other = ask(library, TASK, "--session", f"{session}, another")
    assert sent_lines(other) == sent_lines(first)


def test_after_lost_context_only_what_came_since_counts(
    library: Skillbus, request: pytest.FixtureRequest
) -> None:
    session = f"lost {request.node.name}"
    ask(library, TASK, "--session", session)
    ask(library, "tune a violin", "--session", session, "--resend")
    third = ask(library, TASK, "--session", session)
    assert any(one == KILN for one, _, _ in sent_lines(third))


def test_an_obstacle_is_answered_in_the_light_of_the_session(
    library: Skillbus, request: pytest.FixtureRequest
) -> None:
    session = f"obstacle {request.node.name}"
    first = ask(library, TASK, "--session", session, "--brief", "--budget", "300")
    assert "E47" not in json.dumps(first["skills"])
    answer = ask(library, "--session", session, "--obstacle", OBSTACLE)
    assert answer["task"] == TASK
    assert answer["obstacle"] == OBSTACLE
    best = answer["skills"][0]
    assert best["skill_id"] == KILN
    assert best["detail"] == "continued"
    assert "error_handling" in [role for one in best["passages"] for role in one["roles"]]
    assert "E47" in json.dumps(best["passages"])
    assert not sent_lines(first) & sent_lines(answer)


def test_a_blank_obstacle_is_none(library: Skillbus, request: pytest.FixtureRequest) -> None:
    session = f"blank {request.node.name}"
    answer = ask(library, TASK, "--session", session, "--obstacle", " \t")
    assert [one["skill_id"] for one in answer["skills"]] == library.chosen(TASK)


def test_what_was_rejected_stays_out_of_the_session(
    library: Skillbus, request: pytest.FixtureRequest
) -> None:
    session = f"rejected {request.node.name}"
    first = ask(library, TASK, "--session", session)
    library("outcome", first["query_id"], KILN, "rejected", "--reason", "wrong_tool")
    second = ask(library, TASK, "--session", session, "--without", "floor")
    assert KILN not in [skill["skill_id"] for skill in second["skills"]]
    reasons = {one["skill_id"]: one["reason"] for one in second["left_out"]}
    assert reasons[KILN] == "it was rejected in this session (wrong_tool)"
    elsewhere = ask(library, TASK, "--session", f"{session}, another")
    assert KILN in [skill["skill_id"] for skill in elsewhere["skills"]]


def test_a_revision_that_changed_is_sent_anew(fork_server: ForkServer, tmp_path: Path) -> None:
    root = tmp_path / "crafts"
    write_skill(root, "kiln-firing", "Fire stoneware in an electric kiln", BODY)
    skillbus = Skillbus(fork_server, tmp_path / "home")
    skillbus("sync", str(root))
    first = ask(skillbus, TASK, "--session", "s")
    write_skill(
        root, "kiln-firing", "Fire stoneware in an electric kiln", BODY.replace("cone 6", "cone 7")
    )
    skillbus("sync", str(root))
    second = ask(skillbus, TASK, "--session", "s")
    assert not second["already_sent"]
    (before,), (after,) = first["skills"], second["skills"]
    assert after["revision"]["seq"] > before["revision"]["seq"]
    assert "cone 7" in json.dumps(after["passages"])


def test_a_new_session_has_no_task(pottery: Skillbus) -> None:
    result = pottery("query", "--session", "new", "--obstacle", "it failed", code=2)
    assert "has no earlier query; give the task as well" in result.err


def test_the_summary_and_the_markdown_say_what_was_sent(pottery: Skillbus) -> None:
    pottery("query", TASK, "--session", "text")
    text = pottery("query", TASK, "--session", "text").out
    assert f"sent earlier: {KILN}, revision" in text
    markdown = pottery("query", TASK, "--session", "text", "--format", "markdown").out
    assert "## Sent earlier in this session" in markdown
    assert re.search(r"^- kiln-firing: lines \d", markdown, re.MULTILINE)


def test_eval_sessions(pottery: Skillbus, tmp_path: Path) -> None:
    task = {
        "task_id": "vase",
        "instruction": f"{TASK}.\n\nThen bake sourdough bread in a Dutch oven.\n\nWrite it down.",
        "gt_skill_ids": [KILN, "crafts:bread-baking"],
    }
    tasks, plot, out = (tmp_path / name for name in ("tasks.jsonl", "plot.svg", "out.json"))
    tasks.write_text(json.dumps(task), encoding="utf-8")
    report = pottery(
        "eval", "sessions", str(tasks), "--budget", "2000",
        "--plot", str(plot), "--out", str(out), "--json",
    ).data  # fmt: skip
    metrics = report["budgets"]["2000"]["metrics"]
    assert metrics["paragraphs"]["queries"] == 3
    assert metrics["one_shot"]["queries"] == 1
    assert metrics["one_shot"]["against_one_shot"] == 1.0
    for arm in metrics.values():
        assert arm["lines_sent_again"] == 0
        assert arm["needed_skills"] <= 2
    assert metrics["paragraphs"]["tokens"] <= 2000
    assert metrics["following"]["complete"] >= metrics["one_shot"]["complete"]
    assert ET.fromstring(plot.read_text(encoding="utf-8")).tag.endswith("svg")
    given = json.loads(out.read_text(encoding="utf-8"))["vase"]["2000"]
    assert given["paragraphs"]["tokens"] == metrics["paragraphs"]["tokens"]
    assert "paragraphs" in pottery("eval", "sessions", str(tasks), "--budget", "2000").out


def test_eval_sessions_wants_something_to_find(pottery: Skillbus, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    row = {"task_id": "x", "instruction": "anything", "gt_skill_ids": []}
    tasks.write_text(json.dumps(row), encoding="utf-8")
    assert "no task has `gt_skill_ids`" in pottery("eval", "sessions", str(tasks), code=2).err
    tasks.write_text(json.dumps(row | {"gt_skill_ids": ["shop:kiln"]}), encoding="utf-8")
    error = pottery("eval", "sessions", str(tasks), code=2).err
    assert all(part in error for part in (str(tasks), "shop:kiln", "crafts:"))
    tasks.write_text(json.dumps(row | {"gt_skill_ids": ["shop:kiln", KILN]}), encoding="utf-8")
    ran = pottery("eval", "sessions", str(tasks), "--budget", "2000")
    assert "1 of 2 needed skills are not in the library" in ran.err
