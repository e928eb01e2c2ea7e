"""The cases of the judge stage: harmful texts of the test sets, and real skills that are clean.

The real skills are in the shared collections; the repository only names them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from skills.parsing.parse_skill import parse_skill
from skills.record import ParsedSkill, SiblingFile
from tests.support.samples.real_skills import ROOT, Collections

CASES = ROOT / "tests" / "data" / "judge_cases.jsonl"
_COLLECTIONS = {"skillsbench": "gt", "community": "community"}
"""Collections by the name that the file of cases has for them."""


@dataclass(frozen=True, slots=True)
class JudgeCase:
    """A skill with what it is known to be."""

    case: str
    skill: str
    harmful: bool
    parsed: ParsedSkill


def read_judge_cases(real_skills: Collections) -> list[JudgeCase]:
    """The cases in the order of the file."""
    rows = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    parsed: dict[tuple[str, str], ParsedSkill] = {}
    for name in {row["set"] for row in rows}:
        wanted = {row["skill"] for row in rows if row["set"] == name}
        if name in _COLLECTIONS:
            found = _read_collection(real_skills(_COLLECTIONS[name]), wanted)
        else:
            found = _read_set(name, wanted)
        parsed |= {(name, skill): one for skill, one in found}
    return [
        JudgeCase(row["case"], row["skill"], row["harmful"], parsed[row["set"], row["skill"]])
        for row in rows
    ]


def _read_set(name: str, wanted: Collection[str]) -> Iterator[tuple[str, ParsedSkill]]:
    lines = (ROOT / "tests" / "data" / name).read_text(encoding="utf-8").splitlines()
    for row in map(json.loads, lines):
        if row["id"] in wanted:
            # The id may tell what the text is.
            yield row["id"], parse_skill("skill", row["text"].encode())


def _read_collection(folder: Path, wanted: Collection[str]) -> Iterator[tuple[str, ParsedSkill]]:
    """The skills of a collection, with the names of their files where the collection has them."""
    files: dict[str, list[str]] = {}
    for row in map(json.loads, (folder / "index.jsonl").read_text(encoding="utf-8").splitlines()):
        files[row.get("dir") or row["id"].partition(":")[2]] = row.get("siblings", [])
    for skill in sorted(wanted):
        path = skill.partition(":")[2]
        siblings = [SiblingFile(one, 0, "") for one in files.get(path, ())]
        yield skill, parse_skill(path, (folder / path / "SKILL.md").read_bytes(), siblings)
