"""Selects and scans other files of a skill's folder: code, texts for agents, and the licence.

Only scanner findings and the name of the licence are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath

from skills import licences
from skills.parsing import tooling
from skills.parsing.decoding import ParseError, decode_lines
from skills.record import SafetyFinding, SiblingFile
from skills.scanner import MAX_FINDINGS, make_finding, scan_lines, scan_scripts
from skills.scanner.data_files import word_set
from skills.scanner.rules.ordered_scripts import find_ordered_scripts
from skills.scanner.rules.sibling_files import find_unreadable_files

MAX_FILES = 64
MAX_FILE_BYTES = 1 << 16
MAX_BYTES = 1 << 18
"""Limits of one skill; the scanner takes a second for 256 KiB of hostile text."""
MAX_TEXT_BYTES = 1 << 14
"""Limit of the total size of texts, since they take as long to scan as code."""

VIRTUAL_ENVIRONMENT_FILE = "pyvenv.cfg"
"""A folder that holds this file is a virtual environment of Python; sources read no other file of
it."""
_SKIPPED_FOLDERS = ("node_modules/", "__pycache__/", ".git/", ".hg/", ".svn/")
_SKIPPED_SCRIPT = re.compile(
    rf"(?<![\w.-])(?:{'|'.join(map(re.escape, _SKIPPED_FOLDERS))})[\w./@+-]{{0,200}}"
    r"\.(?:py|sh|bash|[cm]?js|ts|rb|pl|ps1|bat|cmd)\b"
)
"""A script in a folder that sources skip."""
_CODE_ENDS = word_set(
    ".bat .cmd .psm1 .vbs .zsh .fish .ksh .lua .php .go .rs .applescript .command .pyw .mts .cts "
    ".jsx .tsx"
)
_TEXT_ENDS = word_set(".md .mdx .txt .rst")
_BUILD_FILES = word_set(
    "package.json pyproject.toml requirements.txt setup.cfg mcp.json "
    ".mcp.json hooks.json settings.json"
)
_LINE_ENDS = ("\r\n", "\r", "\u2028", "\u2029")
"""Ends of lines, and thus of comments, in Python and JavaScript, other than line feeds."""
_TEXT_RANK = 2


def select_files(files: Sequence[SiblingFile]) -> list[SiblingFile]:
    """Return the files to read, within the limits, in order of priority.

    First the licence, then scripts, then other code and build files, then texts; the smallest file
    of each group first.
    """
    scripts = set(tooling.find_entrypoints(files))
    ranked = sorted(
        (rank, file.size, file.path, file)
        for file in files
        if (rank := _rank(file.path, file.path in scripts)) is not None
    )
    terms = [file for file in files if licences.is_licence_file(file.path)][:1]
    chosen: list[SiblingFile] = []
    left, texts_left = MAX_BYTES, MAX_TEXT_BYTES
    ordered = [(0, file) for file in terms]
    ordered += [(rank, file) for rank, _, _, file in ranked if file not in terms]
    for rank, file in ordered:
        limit = min(MAX_FILE_BYTES, left, texts_left if rank == _TEXT_RANK else left)
        if file.size <= limit and len(chosen) < MAX_FILES:
            chosen.append(file)
            left -= file.size
            texts_left -= file.size if rank == _TEXT_RANK else 0
    return chosen


def _rank(path: str, is_script: bool) -> int | None:
    """Return the priority of a file, 0 for the first; None for a file that is not read."""
    name = PurePosixPath(path.lower())
    if is_script:
        return 0
    may_be_script = not name.suffix and name.name != ".ds_store"
    if name.suffix in _CODE_ENDS or name.name in _BUILD_FILES or may_be_script:
        return 1
    return _TEXT_RANK if name.suffix in _TEXT_ENDS else None


def read_selected_files(
    files: Sequence[SiblingFile], read: Callable[[SiblingFile], bytes | None]
) -> dict[str, bytes]:
    """Return path -> content of the selected files; `read` returns None for a missing file."""
    contents = ((file.path, read(file)) for file in select_files(files))
    return {path: content for path, content in contents if content is not None}


def scan_files(
    files: Sequence[SiblingFile],
    contents: Mapping[str, bytes],
    lines: Sequence[str],
    body_line: int,
) -> tuple[SafetyFinding, ...]:
    """Return findings of the scanner in the other files of a skill; `lines` is its SKILL.md.

    Code that was not read is a finding of level 1: files over the limits, files that are not text,
    virtual environments, and scripts in skipped folders that a text names.
    """
    scripts = set(tooling.find_entrypoints(files))
    code = {file.path for file in files if _rank(file.path, file.path in scripts) in (0, 1)}
    texts = {path: _read_text(path, content) for path, content in contents.items()}
    unread = code.difference(path for path, text in texts.items() if text is not None)
    unread.update(file.path for file in files if file.path.endswith(f"/{VIRTUAL_ENVIRONMENT_FILE}"))
    named = "\n".join([*lines, *(text for text in texts.values() if text)])
    if any(folder in named for folder in _SKIPPED_FOLDERS):
        unread.update(_SKIPPED_SCRIPT.findall(named))
    found = [make_finding("unread", path=path) for path in sorted(unread)]
    found += find_unreadable_files(files)
    readings: dict[str, Sequence[str]] = {}
    for path, content in contents.items():
        # A shell ignores NUL, and runs the lines after a line of other bytes.
        plain = content.replace(b"\0", b"").decode("utf-8-sig", "replace")
        text = texts[path] or plain
        readings[path] = _split_lines(text)
        found += scan_lines(readings[path], 1, path)
        if plain != text and (others := _split_lines(plain)) != readings[path]:
            found += scan_lines(others, 1, path)
    found += scan_scripts(readings)
    found = [*dict.fromkeys(found)]
    found += find_ordered_scripts(lines, body_line, found)
    found.sort(key=lambda finding: -finding.level)
    return tuple(found[:MAX_FINDINGS])


def _split_lines(text: str) -> list[str]:
    for end in _LINE_ENDS:
        text = text.replace(end, "\n")
    return text.split("\n")


def _read_text(path: str, content: bytes) -> str | None:
    """Return the text of a file in any common encoding, None for a binary file."""
    try:
        return "\n".join(decode_lines(path, content)[0])
    except ParseError:
        return None


def find_licence_text(contents: Mapping[str, bytes]) -> str:
    """Return the text of the licence file, "" without one."""
    found = (content for path, content in contents.items() if licences.is_licence_file(path))
    return next(found, b"").decode("utf-8", "replace")
