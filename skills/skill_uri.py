"""URIs of skills and their files: `skill://<source>/<path>/<file>`.

The skill path is the source's id and the skill's path in the source, each segment percent-encoded.
Its last segment is the skill's name, as the Skills extension of MCP requires. If folder and skill
have different names, the folder's segment begins with `@` and the name follows:
`skill://team/tools/@pdf/pdf-processing/SKILL.md` is the skill `team:tools/pdf` with the name
`pdf-processing`. A folder's own `@` is percent-encoded, so the two forms cannot be confused.

A URI is data: it is compared with the entries of the catalog and of a published revision, and no
part of it becomes a path on this machine.
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
"""Path in the id of a skill that is the root of its source."""
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_NAME_LENGTH = 64


class UriError(NotFoundError):
    """A URI that no skill can have, since its form differs from that of this module."""


class SkillPlace(NamedTuple):
    """A skill that a URI may belong to.

    name: the name that the skill must have. rest: segments below the skill's folder, decoded.
    """

    skill_id: str
    name: str
    rest: tuple[str, ...]


def is_skill_name(name: str) -> bool:
    """Return whether a name is valid by the Agent Skills specification.

    Valid names have 1 to 64 of `a-z0-9-`, without hyphens at the ends or in a row.
    """
    return len(name) <= _MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


def make_skill_uri(skill_id: str, name: str) -> str:
    """Return the URI of a skill's folder, without a slash at the end. name: a valid skill name."""
    source, _, path = skill_id.partition(":")
    folder, _, last = ("" if path == _ROOT else path).rpartition("/")
    parts = [source, *(folder.split("/") if folder else ())]
    encoded = [_encode(part) for part in parts]
    encoded += [name] if last == name else [_RENAMED + _encode(last), name]
    return SCHEME + "/".join(encoded)


def get_inner_prefix(skill_id: str) -> str:
    """Return the prefix of the ids of skills inside a skill's folder."""
    return skill_id[:-1] if skill_id.endswith(f":{_ROOT}") else f"{skill_id}/"


def list_outer_ids(skill_id: str) -> list[str]:
    """Return the ids of the skills in whose folders a skill may lie, the innermost first."""
    source, _, path = skill_id.partition(":")
    parts = [] if path == _ROOT else path.split("/")
    return [_join_id(source, parts[:end]) for end in reversed(range(len(parts)))]


def make_file_uri(folder_uri: str, file: str) -> str:
    """Return the URI of a file in a skill's folder. file: its path in the folder."""
    return "/".join([folder_uri, *map(_encode, file.split("/"))])


def parse_skill_uri(uri: str) -> tuple[SkillPlace, ...]:
    """Return the skills to which a URI may belong, the innermost first.

    A file in nested folders may belong to a skill in any of them. Raises UriError unless
    `make_skill_uri` and `make_file_uri` can write exactly this URI.
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
    """Return the encoded segments of a URI, the source first."""
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
    """Return whether a segment is encoded as by `_encode`, and is a valid name in a folder.

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
