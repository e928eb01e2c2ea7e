"""Protocol of source readers, and their results: scans of a source and folders of skills.

A folder with a SKILL.md is a skill. A SKILL.md deeper inside it makes another skill, whose files do
not count for the outer one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from config.errors import PermanentError, TransientError
from skills.record import SiblingFile

SKILL_FILE = "SKILL.md"


class SkillGoneError(PermanentError):
    """The skill's folder or its SKILL.md no longer exists."""


class SourceMissingError(TransientError):
    """The source cannot be reached now.

    The task is not retried at once, as the tasks of other sources would wait meanwhile: the
    reconciler sends its work again.
    """


@dataclass(slots=True)
class SourceScan:
    """Skills found in a source.

    signatures: skill path -> hash that changes with the skill's files; empty while a file is so new
    that another write could leave its time unchanged. sizes: skill path -> bytes of SKILL.md.
    refused: path -> reason why it was not read. unreadable: folders whose content is unknown.
    """

    signatures: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    def covers(self, path: str) -> bool:
        """Return whether a skill at `path` that is not in the scan is gone, not only unreadable."""
        return not any(
            not top or path == top or path.startswith(top + "/") for top in self.unreadable
        )


@dataclass(frozen=True, slots=True)
class SkillFolder:
    """One skill's folder as read.

    content: bytes of SKILL.md. files: all other files. content_hash: over all files.
    sibling_files: path -> bytes of the other files whose text is read too
    (`skills.parsing.sibling_files`).
    """

    content: bytes
    files: tuple[SiblingFile, ...]
    content_hash: str
    sibling_files: Mapping[str, bytes] = field(default_factory=dict)


class SourceReader(Protocol):
    """Reads the skills of one source. Paths are relative to the source, with `/`."""

    def scan(self, start: str) -> SourceScan:
        """Return every skill at or below `start`; "" for all of the source."""
        ...

    def read(self, path: str) -> SkillFolder:
        """Read and hash one skill's folder.

        Raises SkillGoneError if there is no skill any more, PermanentError if it may not or
        cannot be read, TransientError if reading may succeed later.
        """
        ...

    def read_file(self, path: str, name: str, max_bytes: int) -> bytes:
        """Return the bytes of one file of a skill's folder, as they are now.

        name: the file's path in the folder, as `SkillFolder.files` lists it, or `SKILL.md`.
        Raises SkillGoneError if there is no such file, PermanentError if it may not or cannot be
        read or is larger than `max_bytes`, TransientError if reading may succeed later.
        """
        ...

    def find_owning_skill(self, path: str) -> str | None:
        """Return the path of the nearest skill at or above `path`, None without one."""
        ...
