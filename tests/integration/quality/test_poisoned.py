"""How many poisoned skills the scanner marks at the level that is withheld by default, and how
many clean ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.bundle_settings import PolicySettings
from skills.parsing.parse_skill import parse_skill
from skills.record import SiblingFile
from skills.scanner import SCANNER_VERSION
from tests.support.samples.real_skills import Collections, needs_collections

ROOT = Path(__file__).resolve().parents[3]
SETS = [ROOT / "tests" / "data" / f"untrusted{part}.jsonl" for part in ("", "_fresh", "_red")]
WITHHELD_FROM = PolicySettings().highest_level + 1


@cache
def rows() -> list[dict[str, Any]]:
    return [
        json.loads(line) for one in SETS for line in one.read_text(encoding="utf-8").splitlines()
    ]


def level(skill_id: str, content: bytes) -> int:
    return parse_skill(skill_id, content).record.safety_level


def marked(chosen: Iterable[dict[str, Any]]) -> float:
    """The share that is marked at the level withheld by default, or above."""
    levels = [level(row["id"], row["text"].encode()) for row in chosen]
    assert levels
    return sum(one >= WITHHELD_FROM for one in levels) / len(levels)


def test_the_set_is_what_it_says() -> None:
    poisoned = [row for row in rows() if row["poisoned"]]
    assert len(poisoned) >= 40
    assert len({row["kind"] for row in poisoned}) >= 8
    assert len(rows()) - len(poisoned) >= 60
    for part in ("developed", "held_out", "fresh"):
        assert {row["language"] for row in poisoned if row["part"] == part} >= {"en", "zh"}


def test_a_scanner_that_says_something_else_has_another_version() -> None:
    """Else libraries keep the old marks: raise `SCANNER_VERSION`, and write both here."""
    said = [
        (row["id"], mark.kind, mark.level, mark.line)
        for row in rows()
        for mark in parse_skill(row["id"], row["text"].encode()).record.safety
    ]
    digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]
    assert (SCANNER_VERSION, digest) == (16, "978b310e68a4e760")


@pytest.mark.parametrize(
    ("part", "least"),
    [
        ("developed", 0.85),
        ("held_out", 0.75),
        ("fresh", 0.6),
        ("later", 0.6),
        ("red_1", 0.6),
        ("red_2", 0.35),
        ("red_3", 0.1),
    ],
)
def test_poisoned_skills_are_found_as_far_as_they_were(part: str, least: float) -> None:
    """Version 6 was adjusted with all of these in sight but red_3, from which no rule was written.
    The batches of another author, red_1 to red_3, are mostly orders in plain words."""
    assert marked(row for row in rows() if row["part"] == part and row["poisoned"]) >= least


def test_clean_look_alikes_are_seldom_marked() -> None:
    assert marked(row for row in rows() if not row["poisoned"]) <= 0.05


def folder_levels(part: str, *, malicious: bool) -> list[int]:
    """The levels of the skills with files in `tests/data/scanner_PART.yaml`."""
    text = (ROOT / f"tests/data/scanner_{part}.yaml").read_text(encoding="utf-8")
    return [level_of_folder(row) for row in yaml.safe_load(text) if row["malicious"] is malicious]


def level_of_folder(row: dict[str, Any]) -> int:
    text = f"---\nname: {row['id']}\ndescription: {row['about']}\n---\n# Title\n\n{row['skill']}\n"
    contents = {path: content.encode() for path, content in row["files"].items()}
    files = [SiblingFile(path, len(content), "") for path, content in contents.items()]
    parsed = parse_skill(row["id"], text.encode(), files, file_contents=contents)
    return parsed.record.safety_level


@pytest.mark.parametrize(
    ("part", "count", "least"), [("check", 34, 0.9), ("build", 38, 0.9), ("final", 38, 0.7)]
)
def test_skills_that_were_written_before_the_rules_are_found(
    part: str, count: int, least: float
) -> None:
    """`final` was opened after the last rule."""
    levels = folder_levels(part, malicious=True)
    assert len(levels) == count
    assert sum(one >= WITHHELD_FROM for one in levels) / count >= least


@pytest.mark.parametrize(("part", "count"), [("check", 21), ("build", 33), ("final", 33)])
def test_honest_look_alikes_of_these_are_seldom_marked(part: str, count: int) -> None:
    levels = folder_levels(part, malicious=False)
    assert len(levels) == count
    assert sum(one >= WITHHELD_FROM for one in levels) / count <= 0.07


@needs_collections
def test_of_real_skills_next_to_none_is_marked(real_skills: Collections) -> None:
    files = sorted(real_skills("gt").glob("*/SKILL.md"))
    found = [level(path.parent.name, path.read_bytes()) for path in files]
    assert len(found) == 189
    assert sum(one >= WITHHELD_FROM for one in found) / len(found) <= 0.02
