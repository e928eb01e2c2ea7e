"""Ids of sources, skills and sessions, and paths of files, as requests name them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

SESSION_ID = re.compile(r"([\x21-\x7e]([\x20-\x7e]{0,198}[\x21-\x7e])?)?")
"""Regular expression of ids of sessions; "" means no session."""

MAX_PATH_CHARACTERS = 4_096
_MAX_ID_BYTES = 4_096
_MAX_NAME_BYTES = 255
_MAX_SHOWN_CHARACTERS = 80

_CHARACTER = r"[^:@\s/\\\x00-\x1f\x7f-\x9f]"
_NO_DOT = r"[^:@\s/\\.\x00-\x1f\x7f-\x9f]"
# Neither `.` nor `..`, without a lookahead, which not every reader of a JSON schema knows.
_PART = rf"(?:\.{{0,2}}{_NO_DOT}{_CHARACTER}*|\.{{3}}{_CHARACTER}*)"
_SOURCE_ID = rf"{_PART}(?:/{_PART})*"
_SKILL_ID = rf"{_SOURCE_ID}:[^\x00]+"


def check_source_id(source_id: str) -> str:
    """Return `source_id`; raises ValueError if it contains path parts like `..`."""
    if any(part in ("", ".", "..") for part in source_id.split("/")):
        raise ValueError("parts between slashes must be names, and not '.' or '..'")
    return source_id


def check_id_bytes(skill_id: str) -> str:
    """Return `skill_id`; raises ValueError if it is longer than a catalog can index."""
    if len(skill_id.encode()) > _MAX_ID_BYTES:
        raise ValueError(f"a skill id has at most {_MAX_ID_BYTES} bytes")
    return skill_id


def check_skill_id(skill_id: str) -> str:
    """Return `skill_id`; raises ValueError if it is too long or its path leaves the source."""
    check_id_bytes(skill_id)
    source_id, _, path = skill_id.partition(":")
    check_source_id(source_id)
    if path != ".":
        _check_path(path)
    return skill_id


def check_file_path(path: str) -> str:
    """Return `path`; raises ValueError unless it is a relative path inside a skill's folder."""
    _check_path(path)
    if "\\" in path or not path.isprintable():
        raise ValueError("a file's path must be printable and have '/' between its parts")
    if any(len(part.encode()) > _MAX_NAME_BYTES for part in path.split("/")):
        raise ValueError(f"a part of a file's path has more than {_MAX_NAME_BYTES} bytes")
    return path


def _check_path(path: str) -> None:
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError("a path must be relative, with no part that is empty, '.' or '..'")


def _require_skill_id_form(value: object) -> object:
    """Reject a malformed skill id with a readable message; pydantic would show only the pattern."""
    if isinstance(value, str) and not re.fullmatch(_SKILL_ID, value):
        shown = _shorten(value)
        raise ValueError(f"{shown!r} is not a skill id: write SOURCE:PATH, as a bundle names it")
    return value


def _require_source_id_form(value: object) -> object:
    """Reject a malformed source id as `_require_skill_id_form` does."""
    if isinstance(value, str) and not re.fullmatch(f"(?=.{{1,200}}$){_SOURCE_ID}", value):
        raise ValueError(
            f"{_shorten(value)!r} cannot be a source id: at most 200 characters, no spaces, "
            "colons, @ or backslashes, and between slashes names, not '', '.' or '..'"
        )
    return value


def _shorten(value: str) -> str:
    return value[:_MAX_SHOWN_CHARACTERS] + "…" * (len(value) > _MAX_SHOWN_CHARACTERS)


SourceId = Annotated[
    str,
    Field(min_length=1, max_length=200, pattern=f"^{_SOURCE_ID}$"),
    BeforeValidator(_require_source_id_form),
]
SkillId = Annotated[
    str,
    Field(
        min_length=3,
        max_length=MAX_PATH_CHARACTERS,
        pattern=f"^{_SKILL_ID}$",
        description="source id, colon, the folder's path in the source (`.` for the root itself)",
    ),
    AfterValidator(check_skill_id),
    BeforeValidator(_require_skill_id_form),
]
SessionId = Annotated[
    str,
    Field(
        max_length=200,
        pattern=f"^({SESSION_ID.pattern})$",
        description="any id of the caller's: printable ASCII, no space at its ends",
    ),
]
RelativePath = Annotated[str, Field(max_length=MAX_PATH_CHARACTERS, pattern=r"^[^\x00]*$")]
FilePath = Annotated[
    str, Field(min_length=1, max_length=MAX_PATH_CHARACTERS), AfterValidator(check_file_path)
]
