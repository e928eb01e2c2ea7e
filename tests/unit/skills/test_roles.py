"""Roles by rule, and rules and classifier together, on Markdown made up here."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skills.record import Role
from skills.roles import classify_passages
from skills.roles.passage_context import build_passage_contexts
from skills.roles.rules import classify_by_rules
from tests.support.samples.fragments import split_lines


def roles(text: str) -> list[Role]:
    lines = text.split("\n")
    sections, passages = split_lines(lines, 1)
    return [
        role for role, _ in classify_by_rules(build_passage_contexts(lines, sections, passages))
    ]


def last(text: str) -> Role:
    return roles(text)[-1]


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("# T\n\n## Prerequisites\n\nA running database.", Role.PRECONDITION),
        ("# T\n\n## 安装\n\n需要 3.11 以上的版本。", Role.PRECONDITION),
        ("# T\n\n## Installation\n\n```bash\npip install thing\n```", Role.PRECONDITION),
        ("# T\n\n## Troubleshooting\n\nThe port is taken by another process.", Role.ERROR_HANDLING),
        ("# T\n\n## 常见问题\n\n端口被占用。", Role.ERROR_HANDLING),
        ("# T\n\n## Notes\n\n**Problem**: the port is taken.", Role.ERROR_HANDLING),
        ("# T\n\n## Table\n\n| Error | Remedy |\n|---|---|\n| E1 | wait |", Role.ERROR_HANDLING),
        ("# T\n\n## Table\n\n| Name | Unit |\n|---|---|\n| width | mm |", Role.PARAM),
        ("# T\n\n## Table\n\n| Module | Role |\n|---|---|\n| core | base |", Role.CONCEPT),
        ("# T\n\n## Configuration\n\nThe width is given in millimetres.", Role.PARAM),
        ("# T\n\n## 参数\n\n宽度以毫米计。", Role.PARAM),
        ('# T\n\n## Output format\n\n```json\n{"width": 1}\n```', Role.PARAM),
        ("# T\n\n## Fields\n\n- `width`: in millimetres\n- `height`: likewise", Role.PARAM),
        ("# T\n\n## Loading\n\nRun the importer on the folder.", Role.STEP),
        ("# T\n\n## 步骤\n\n1. 打开文件\n2. 保存结果", Role.STEP),
        ("# T\n\n## Step 1: fetch\n\n```bash\nfetch --all\n```", Role.STEP),
        ("# T\n\n## Trimming\n\nRemove the edges:\n\n```python\ntrim(image)\n```", Role.STEP),
        ("# T\n\n## Sample run\n\n```bash\nfetch --all\n```", Role.EXAMPLE),
        ("# T\n\n## 示例\n\n```python\nprint(1)\n```", Role.EXAMPLE),
        ("# T\n\n## Style\n\nName it well:\n\n```python\n# Good\nx = 1\n```", Role.EXAMPLE),
        ("# T\n\n## Style\n\n```python\nx = 1\n```", Role.EXAMPLE),
        ("# T\n\n## Overview\n\nThe tool reads maps.", Role.CONCEPT),
        ("# T\n\n## 概述\n\n该工具读取地图。", Role.CONCEPT),
        ("# T\n\nA tool that reads maps.", Role.CONCEPT),
    ],
)
def test_one_passage_by_its_heading_or_wording(text: str, role: Role) -> None:
    assert last(text) is role


def test_items_of_a_list_agree() -> None:
    text = (
        "# T\n\n## Doing it\n\n- Open the file\n- Sort the rows\n- Rows are kept\n- Save the file"
    )
    assert set(roles(text)) == {Role.STEP}


def test_chunks_of_one_code_block_agree() -> None:
    block = "\n\n".join("\n".join(f"row_{n}_{m} = 1" for m in range(6)) for n in range(4))
    found = roles(f"# T\n\n## Trimming\n\nRemove the edges:\n\n```python\n{block}\n```")
    assert len(found) > 3
    assert set(found[1:]) == {Role.STEP}


def test_an_introduction_takes_the_role_of_what_it_introduces() -> None:
    assert roles("# T\n\n## Sizes\n\nThese are known:\n\n| a | b |\n|---|---|\n| 1 | 2 |") == [
        Role.PARAM,
        Role.PARAM,
    ]


def test_nothing_is_an_answer_to_nothing() -> None:
    assert classify_passages([], [], []) == []


@settings(deadline=None, max_examples=80)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [
                    "",
                    "# A",
                    "## Errors",
                    "### Step 1",
                    "- item",
                    "```",
                    "| a | b |",
                    "|---|---|",
                    "说明：",
                ]
            ),
            st.text(max_size=40).filter(lambda text: "\n" not in text),
        ),
        max_size=30,
    )
)
def test_every_passage_gets_one_role_and_a_confidence(lines: list[str]) -> None:
    sections, passages = split_lines(lines, 1)
    verdicts = classify_passages(lines, sections, passages)
    assert len(verdicts) == len(passages)
    assert all(isinstance(role, Role) and 0 <= sure <= 1 for role, sure in verdicts)
    assert verdicts == classify_passages(lines, sections, passages)


@pytest.mark.parametrize("line", ["= " * 190, "\u2014" * 380])
def test_lines_without_words_take_linear_time(line: str) -> None:
    """Seconds at most of processor time, where quadratic time would take a minute."""
    start = time.thread_time()
    roles("\n\n".join(f"{line}{number}" for number in range(1_000)))
    assert time.thread_time() - start < 10
