"""Finds unreadable files of a skill (compiled code, programs, archives), and known malware."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from skills.record import SafetyFinding, SiblingFile
from skills.scanner.data_files import word_set
from skills.scanner.indicators import find_campaign
from skills.scanner.scan import make_finding

_COMPILED = frozenset({".pyc", ".pyo", ".pyd", ".class"})
_PROGRAMS = word_set(
    ".exe .dll .so .dylib .scr .msi .com .dmg .pkg .app .deb .rpm .appimage .apk .jar .elf"
)
_ARCHIVES = word_set(".zip .rar .7z .tar .tgz .gz .bz2 .xz .zst .cab .iso .whl .egg")


def find_unreadable_files(files: Sequence[SiblingFile]) -> Iterator[SafetyFinding]:
    """Yield findings about files by name or hash.

    Compiled code with its source in the folder counts as an archive, since Python itself makes such
    copies.
    """
    sources = {
        PurePosixPath(file.path).stem for file in files if file.path.endswith((".py", ".java"))
    }
    for file in files:
        campaign = find_campaign(file.sha256)
        if campaign:
            yield make_finding("campaign-indicator", path=file.path, quote=campaign)
        name = PurePosixPath(file.path.lower())
        if name.suffix in _COMPILED:
            has_source = PurePosixPath(file.path).name.partition(".")[0] in sources
            rule = "bundled-archive" if has_source else "compiled-code"
            yield make_finding(rule, path=file.path)
        elif name.suffix in _PROGRAMS:
            yield make_finding("bundled-program", path=file.path)
        elif name.suffix in _ARCHIVES:
            yield make_finding("bundled-archive", path=file.path)
