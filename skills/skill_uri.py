"""URIs of skills and their files: `skill://<source>/<path>/<file>`.

The skill path is the source's id and the skill's path in the source, each segment percent-encoded.
Its last segment is the skill's name, as the Skills extension of MCP requires. Where the folder has
another name than the skill, the folder's segment begins with `@` and the name follows:
`skill://team/tools/@pdf/pdf-processing/SKILL.md` is the skill `team:tools/pdf` of the name
`pdf-processing`. A folder's own `@` is percent-encoded, so the two forms never meet.

A URI is data: it is compared with what the catalog and a published revision list, and no part of
it becomes a path on this machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from config.errors import NotFoundError

SCHEME = "skill://"
SKILL_FILE = "SKILL.md"
MAX_URI_LENGTH = 8_000
MAX_SEGMENTS = 100
_RENAMED = "@"
_ROOT = "."
"""The path in the id of a skill that is a source's root."""
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_NAME_LENGTH = 64


class UriError(NotFoundError):
    """A URI that no skill can have: of another form than this module writes."""


class SkillPlace(NamedTuple):
    """A skill that a URI may belong to.

    name: the name that the skill must have. rest: segments below the skill's folder, decoded.
    """

    skill_id: str
    name: str
    rest: tuple[str, ...]


def is_skill_name(name: str) -> bool:
    """Whether a name is valid by the Agent Skills specification: 1 to 64 of `a-z0-9-`, no hyphen
    at either end, no two in a row."""
    return len(name) <= _MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


def make_skill_uri(skill_id: str, name: str) -> str:
    """The URI of a skill's folder, without a slash at the end. name: a valid skill name."""
    source, _, path = skill_id.partition(":")
    folder, _, last = ("" if path == _ROOT else path).rpartition("/")
    parts = [source, *(folder.split("/") if folder else ())]
    encoded = [_encode(part) for part in parts]
    encoded += [name] if last == name else [_RENAMED + _encode(last), name]
    return SCHEME + "/".join(encoded)


def get_inner_prefix(skill_id: str) -> str:
    """What the ids of skills inside a skill's folder begin with."""
    return skill_id[:-1] if skill_id.endswith(f":{_ROOT}") else f"{skill_id}/"


def make_file_uri(folder_uri: str, file: str) -> str:
    """The URI of a file in a skill's folder; file: its path there."""
    return "/".join([folder_uri, *map(_encode, file.split("/"))])


def parse_skill_uri(uri: str) -> tuple[SkillPlace, ...]:
    """The skills that a URI may belong to, the innermost first.

    A file below nested folders belongs to the nearest folder that is a skill, or to an outer one.
    Raises UriError unless `make_skill_uri` and `make_file_uri` write exactly this URI for one.
    """
    raw = _split(uri)
    source, *segments = map(_decode, raw)
    marked = next((at for at, one in enumerate(raw) if at and one.startswith(_RENAMED)), None)
    if marked is None:
        return tuple(
            SkillPlace(_join_id(source, segments[:end]), segments[end - 1], tuple(segments[end:]))
            for end in range(len(segments), 0, -1)
        )
    folder = [*segments[: marked - 1], segments[marked - 1]]
    path = [one for one in folder if one]
    if len(segments) <= marked or (len(path) < len(folder) and path):
        raise UriError(_NO_SUCH_FORM)
    place = SkillPlace(_join_id(source, path), segments[marked], tuple(segments[marked + 1 :]))
    if path and path[-1] == place.name:
        raise UriError(_NO_SUCH_FORM)
    return (place,)


_NO_SUCH_FORM = "not the URI of a skill or of a file in one; use one that this server has sent"


def _split(uri: str) -> list[str]:
    """The encoded segments of a URI, the source first."""
    if len(uri) > MAX_URI_LENGTH or not (uri.isascii() and uri.startswith(SCHEME)):
        raise UriError(_NO_SUCH_FORM)
    raw = uri.removeprefix(SCHEME).split("/")
    if not 1 < len(raw) <= MAX_SEGMENTS or raw[0].startswith(_RENAMED):
        raise UriError(_NO_SUCH_FORM)
    marked = [at for at, one in enumerate(raw) if one.startswith(_RENAMED)]
    if len(marked) > 1:
        raise UriError(_NO_SUCH_FORM)
    for at, one in enumerate(raw):
        plain = one.removeprefix(_RENAMED) if at in marked else one
        if not (_is_canonical(plain, is_source=at == 0) or (not plain and at in marked)):
            raise UriError(_NO_SUCH_FORM)
    return raw


def _is_canonical(segment: str, *, is_source: bool) -> bool:
    """Whether a segment is written as `_encode` writes it, and names something in a folder.

    The id of a source may have slashes, which are percent-encoded.
    """
    try:
        plain = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        return False
    parts = plain.split("/") if is_source else [plain]
    is_clean = not any(part in ("", ".", "..") or "/" in part or "\0" in part for part in parts)
    return is_clean and _encode(plain) == segment


def _decode(segment: str) -> str:
    return unquote_to_bytes(segment.removeprefix(_RENAMED)).decode()


def _encode(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _join_id(source: str, path: Sequence[str]) -> str:
    return f"{source}:{'/'.join(path) or _ROOT}"
