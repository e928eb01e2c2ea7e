"""Checks of the names of archive members: clean relative paths, unique on every file system."""

from __future__ import annotations

import re
import unicodedata

from tasks.sources.uploads.limits import ArchiveError, escape_name

_MAX_PART_BYTES = 255
_MAX_PATH_BYTES = 1_024
_DRIVE = re.compile(r"[A-Za-z]:")
_BIDI_CONTROLS = re.compile(r"[\u202a-\u202e\u2066-\u2069]")
"""Characters that reverse the direction of text, so that a name would be displayed as another
name."""


def clean_path(name: str, depth: int) -> str:
    """Return a relative path with `/`, without leading `./` and closing `/`; "" for the top itself.

    depth: maximum number of folders above the last part. Raises ArchiveError for any other name.
    """
    defect = _find_defect(name)
    if defect:
        raise ArchiveError(f"{escape_name(name)}: {defect}")
    parts = name.removesuffix("/").split("/")
    while parts and parts[0] == ".":
        parts.pop(0)
    for part in parts:
        if part in ("", ".", ".."):
            raise ArchiveError(
                f"{escape_name(name)}: the path has an empty part, . or ..; remove it"
            )
        if len(part.encode()) > _MAX_PART_BYTES:
            raise ArchiveError(
                f"{escape_name(name)}: a part of the path is longer than {_MAX_PART_BYTES} bytes"
            )
    path = "/".join(parts)
    if len(path.encode()) > _MAX_PATH_BYTES:
        raise ArchiveError(f"{escape_name(name)}: the path is longer than {_MAX_PATH_BYTES} bytes")
    if len(parts) > depth + 1:
        raise ArchiveError(f"{escape_name(name)}: in more than {depth} folders (uploads.depth)")
    return path


def _find_defect(name: str) -> str:
    """Return why a name is refused, "" if it is accepted."""
    if not name:
        return "a member without a name"
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return "the name is not UTF-8"
    if any(unicodedata.category(one) == "Cc" for one in name) or _BIDI_CONTROLS.search(name):
        return "the name holds control characters"
    if "\\" in name:
        return "the name holds a backslash; write / between folders"
    if name.startswith("/") or _DRIVE.match(name):
        return "the name is absolute; archives hold names relative to their top"
    if not unicodedata.is_normalized("NFC", name):
        return "the name is not in Unicode's composed form (NFC)"
    return ""


class MemberNames:
    """The names in one archive; a name that differs from another only in case is refused."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._seen: dict[str, tuple[str, bool]] = {}
        self._files: set[str] = set()

    def add(self, name: str, *, folder: bool = False) -> str:
        """Add a member; returns its clean path. Raises ArchiveError."""
        path = clean_path(name, self._depth)
        parts = path.split("/")
        for end in range(1, len(parts)):
            self._note("/".join(parts[:end]), True, name)
        if path:
            self._note(path, folder, name)
        elif not folder:
            raise ArchiveError(f"{escape_name(name)}: a member without a name")
        return path

    def _note(self, path: str, folder: bool, name: str) -> None:
        key = unicodedata.normalize("NFC", path.casefold())
        before = self._seen.setdefault(key, (path, folder))
        if before[0] != path:
            raise ArchiveError(
                f"{escape_name(name)}: differs from {escape_name(before[0])} only in case; "
                "rename one"
            )
        if before[1] != folder:
            raise ArchiveError(
                f"{escape_name(name)}: {escape_name(path)} is both a file and a folder"
            )
        if not folder and path in self._files:
            raise ArchiveError(f"{escape_name(name)}: occurs twice")
        if not folder:
            self._files.add(path)
