"""The cases of the judge stage: harmful texts of the test sets, and real skills that are clean.

The real skills are in the shared collections; the repository only names them.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from skills.parsing.parse_skill import parse_skill
from skills.record import ParsedSkill, SiblingFile

ROOT = Path(__file__).resolve().parents[3]
CASES = ROOT / "tests" / "data" / "judge_cases.jsonl"
SHARED = ROOT.parent / "shared" / "data"
_ARCHIVES = {
    "skillsbench": SHARED / "skillsbench-skills.tar.xz",
    "community": SHARED / "community-12k.tar.xz",
}


@dataclass(frozen=True, slots=True)
class JudgeCase:
    """A skill with what it is known to be."""

    case: str
    skill: str
    harmful: bool
    parsed: ParsedSkill


def are_collections_here() -> bool:
    """Whether the shared collections of real skills are on this machine."""
    return all(archive.exists() for archive in _ARCHIVES.values())


def read_judge_cases(path: Path = CASES) -> list[JudgeCase]:
    """The cases in the order of the file; needs the shared collections."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    parsed: dict[tuple[str, str], ParsedSkill] = {}
    for name in {row["set"] for row in rows}:
        wanted = {row["skill"] for row in rows if row["set"] == name}
        found = _read_archive(name, wanted) if name in _ARCHIVES else _read_set(name, wanted)
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


def _read_archive(name: str, wanted: Collection[str]) -> Iterator[tuple[str, ParsedSkill]]:
    """The skills of a collection, with the names of their files where the collection has them."""
    folders = {skill.partition(":")[2]: skill for skill in wanted}
    contents: dict[str, bytes] = {}
    files: dict[str, list[str]] = {}
    with tarfile.open(_ARCHIVES[name]) as members:
        for member in members:
            path = Path(member.name)
            file = members.extractfile(member)
            if file is None:
                continue
            if path.name == "index.jsonl":
                for row in map(json.loads, file.read().decode().splitlines()):
                    files[row.get("dir") or row["id"].partition(":")[2]] = row.get("siblings", [])
            elif path.name == "SKILL.md" and path.parent.name in folders:
                contents[path.parent.name] = file.read()
    for folder, content in contents.items():
        siblings = [SiblingFile(one, 0, "") for one in files.get(folder, ())]
        yield folders[folder], parse_skill(folder, content, siblings)
