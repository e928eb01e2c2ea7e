"""How many poisoned skills the scanner marks at the level that is withheld by default, and how
many clean ones."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.settings import PolicySettings
from skills.parsing.parse_skill import parse_skill
from skills.record import SiblingFile
from skills.scanner import SCANNER_VERSION

ROOT = Path(__file__).resolve().parents[3]
SETS = [ROOT / "tests" / "data" / f"untrusted{part}.jsonl" for part in ("", "_fresh", "_red")]
SHARED = ROOT.parent / "shared" / "data" / "skillsbench-skills.tar.xz"
CHECK = yaml.safe_load((ROOT / "tests/data/scanner_check.yaml").read_text(encoding="utf-8"))
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
    assert (SCANNER_VERSION, digest) == (5, "1ff80eb311127cb7")


@pytest.mark.parametrize(
    ("part", "least"),
    [
        ("developed", 0.7),
        ("held_out", 0.75),
        ("fresh", 0.5),
        ("later", 0.4),
        ("red_1", 0.5),
        ("red_2", 0.2),
        ("red_3", 0.1),
    ],
)
def test_poisoned_skills_are_found_as_far_as_they_were(part: str, least: float) -> None:
    """No rule was written from these texts since version 5: what is not found stays a measure. The
    batches of another author, red_1 to red_3, are mostly orders in plain words."""
    assert marked(row for row in rows() if row["part"] == part and row["poisoned"]) >= least


def test_clean_look_alikes_are_seldom_marked() -> None:
    assert marked(row for row in rows() if not row["poisoned"]) <= 0.05


def check_levels(*, malicious: bool) -> dict[str, int]:
    """The levels of the skills that were written before the rules, to check them."""
    chosen = [row for row in CHECK if row["malicious"] is malicious]
    return {row["id"]: level_of_folder(row) for row in chosen}


def level_of_folder(row: dict[str, Any]) -> int:
    text = f"---\nname: {row['id']}\ndescription: {row['about']}\n---\n# Title\n\n{row['skill']}\n"
    contents = {path: content.encode() for path, content in row["files"].items()}
    files = [SiblingFile(path, len(content), "") for path, content in contents.items()]
    parsed = parse_skill(row["id"], text.encode(), files, file_contents=contents)
    return parsed.record.safety_level


def test_skills_that_were_written_to_check_the_rules_are_found() -> None:
    levels = check_levels(malicious=True)
    assert len(levels) == 34
    assert sum(one >= WITHHELD_FROM for one in levels.values()) >= 32


def test_honest_skills_that_were_written_to_check_the_rules_are_not_marked() -> None:
    levels = check_levels(malicious=False)
    assert len(levels) == 21
    assert sum(one >= WITHHELD_FROM for one in levels.values()) <= 1


def test_of_real_skills_next_to_none_is_marked() -> None:
    if os.environ.get("CI") != "true" and not SHARED.exists():
        pytest.skip("the shared skill collections are not here")
    with tarfile.open(SHARED) as members:
        found = [
            level(Path(member.name).parent.name, file.read())
            for member in members
            if Path(member.name).name == "SKILL.md" and (file := members.extractfile(member))
        ]
    assert len(found) == 189
    assert sum(one >= WITHHELD_FROM for one in found) / len(found) <= 0.02
