"""Selects and scans other files of a skill's folder: scripts an agent may run, and the licence.

Only scanner findings and the name of the licence are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from skills import licences
from skills.parsing import tooling
from skills.record import SafetyFinding, SiblingFile
from skills.scanner import MAX_FINDINGS, scan_lines

MAX_FILES = 64
MAX_FILE_BYTES = 1 << 16
MAX_BYTES = 1 << 18
"""Limits per skill; the scanner takes a second for 256 KiB of hostile text."""
_UNREAD = "not scanned: too large, or one of too many"


def select_files(files: Sequence[SiblingFile]) -> list[SiblingFile]:
    """The files to read, within the limits: the licence, then scripts, the smallest first."""
    terms = [file for file in files if licences.is_licence_file(file.path)][:1]
    scripts = set(tooling.find_entrypoints(files))
    chosen: list[SiblingFile] = []
    left = MAX_BYTES
    for file in [
        *terms,
        *sorted((file for file in files if file.path in scripts), key=lambda file: file.size),
    ]:
        if file.size <= min(MAX_FILE_BYTES, left) and len(chosen) < MAX_FILES:
            chosen.append(file)
            left -= file.size
    return chosen


def read_selected_files(
    files: Sequence[SiblingFile], read: Callable[[SiblingFile], bytes | None]
) -> dict[str, bytes]:
    """Path -> content of the selected files; `read` returns None for a missing file."""
    contents = ((file.path, read(file)) for file in select_files(files))
    return {path: content for path, content in contents if content is not None}


def scan_scripts(
    files: Sequence[SiblingFile], contents: Mapping[str, bytes]
) -> tuple[SafetyFinding, ...]:
    """Findings of the scanner in scripts; a script that was not read is a finding of level 1."""
    found = []
    for path in tooling.find_entrypoints(files):
        if path not in contents:
            found.append(SafetyFinding("unread", 1, 1, _UNREAD, path))
            continue
        lines = contents[path].decode("utf-8", "replace").splitlines()
        found += [replace(finding, file=path) for finding in scan_lines(lines, 1)]
    found.sort(key=lambda finding: -finding.level)
    return tuple(found[:MAX_FINDINGS])


def find_licence_text(contents: Mapping[str, bytes]) -> str:
    """The text of the licence file, "" without one."""
    found = (content for path, content in contents.items() if licences.is_licence_file(path))
    return next(found, b"").decode("utf-8", "replace")
