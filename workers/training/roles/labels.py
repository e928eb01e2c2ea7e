"""Reads labelled lines and the skills they belong to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath

from config.errors import PermanentError, UsageError
from skills.parsing.parse_skill import parse_skill
from skills.record import ParsedSkill
from skills.roles.classifier import rules_only_classifier
from workers.library.user_files import read_text

Labels = dict[str, list[tuple[int, int, str]]]

_EXPECTED = "expected a JSON object: skill id -> [[first, last, role], …]"


def read_labels(paths: Sequence[Path]) -> Labels:
    """Read the labelled ranges of some files by skill id.

    Raises UsageError for a missing or invalid file, and for a skill that two files label.
    """
    labels: Labels = {}
    for path in paths:
        for skill_id, ranges in _read_file(path).items():
            if skill_id in labels:
                raise UsageError(f"{path}: {skill_id} is already labelled in another file")
            labels[skill_id] = _validate_ranges(path, skill_id, ranges)
    if not labels:
        raise UsageError(f"{', '.join(map(str, paths))}: no labels; {_EXPECTED}")
    return labels


def _read_file(path: Path) -> Mapping[str, object]:
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}: {_EXPECTED}")
    return found


def _validate_ranges(path: Path, skill_id: str, ranges: object) -> list[tuple[int, int, str]]:
    checked = []
    for row in ranges if isinstance(ranges, list) else [None]:
        match row:
            case [int(first), int(last), str(role)]:
                checked.append((first, last, role))
            case _:
                raise UsageError(
                    f"{path}: {skill_id}: {row!r} is not a labelled range; {_EXPECTED}"
                )
    for (_, last, _), (first, _, _) in pairwise(sorted(checked)):
        if first <= last:
            raise UsageError(f"{path}: {skill_id}: line {first} is in two labelled ranges")
    return checked


def read_skills(skill_ids: Sequence[str], folders: Mapping[str, Path]) -> dict[str, ParsedSkill]:
    """Parse the skills with these ids (`source:path`).

    folders: the folder of each source. Raises UsageError for an id whose source has no folder and
    for a file that cannot be parsed.
    """
    return {skill_id: _read_skill(skill_id, folders) for skill_id in skill_ids}


def _read_skill(skill_id: str, folders: Mapping[str, Path]) -> ParsedSkill:
    source, _, path = skill_id.partition(":")
    if source not in folders:
        raise UsageError(
            f"{skill_id} is labelled, but no folder holds source {source!r}: "
            f"name it with --skills {source}=DIR"
        )
    if not path or ".." in PurePosixPath(path).parts or path.startswith("/"):
        raise UsageError(f"{skill_id!r} is not the id of a skill (source:path)")
    file = folders[source] / path / "SKILL.md"
    try:
        return parse_skill(path, file.read_bytes(), classifier=rules_only_classifier())
    except OSError as error:
        raise UsageError(f"{skill_id}: {file} cannot be read: {error.strerror}") from error
    except PermanentError as error:
        raise UsageError(f"{skill_id}: {error}") from error
