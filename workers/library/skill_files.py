"""Files of a skill as published: their digests, and their bytes, verified by the digests.

A revision stores the size and SHA-256 of each file but SKILL.md, and a content hash over these and
the SHA-256 of SKILL.md. Every returned byte is therefore one of the published revision: a file that
has since changed, moved or been replaced by a link in its source does not match, and is refused.
"""

from __future__ import annotations

import codecs
import hashlib
import mimetypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from config.errors import PermanentError, TransientError
from config.settings import Settings
from search.protocol import StoredRevision
from skills.lru_cache import LRUCache
from skills.record import RevisionKey, SiblingFile
from tasks.sources.folder_rules import hash_skill_folder
from tasks.sources.protocol import SKILL_FILE
from tasks.sources.readers import ReadFile, find_source, open_skill_folder
from workers.library.skill_reader import SkillReader

MARKDOWN = "text/markdown"
BYTES = "application/octet-stream"

_MARKDOWN_SUFFIXES = (".md", ".markdown")
_MAX_CACHED = 10_000


def guess_media_type(name: str) -> str:
    """Return the media type of a file by its name, that of arbitrary bytes if it is unknown.

    A compressed file, such as `rows.json.gz`, does not have the type of its content.
    """
    if name.lower().endswith(_MARKDOWN_SUFFIXES):
        return MARKDOWN
    kind, compression = mimetypes.guess_type(name)
    return kind if kind and not compression else BYTES


class SkillFiles:
    """Digests and bytes of the files of published revisions; threads may share it.

    skill_reader: lists the sources that files are read from.
    """

    def __init__(self, settings: Settings, skill_reader: SkillReader) -> None:
        self._settings = settings
        self._skill_reader = skill_reader
        self._skill_files: LRUCache[RevisionKey, SiblingFile] = LRUCache(_MAX_CACHED)

    def list_files(self, revision: StoredRevision) -> list[SiblingFile]:
        """Return all files of a skill: SKILL.md first, the others by path.

        Raises TransientError if the bytes of SKILL.md cannot be restored from the stored form, and
        the source has another SKILL.md by now.
        """
        return [self._find_skill_file(revision), *_list_others(revision)]

    def read_file(self, revision: StoredRevision, name: str) -> bytes:
        """Return the bytes of a file that `list_files` names.

        Raises TransientError if the source no longer has it as it was published.
        """
        (content,) = self.read_files(revision, [name])
        return content

    def read_files(self, revision: StoredRevision, names: Sequence[str]) -> list[bytes]:
        """Return the bytes of several files in their order; the source is
        opened once, or not at all.

        Raises as `read_file` does.
        """
        others = {file.path: file for file in _list_others(revision)}
        found: dict[str, bytes] = {}
        restored = _restore_skill_file(revision) if SKILL_FILE in names else None
        if restored is not None:
            found[SKILL_FILE] = restored
        missing = [name for name in names if name not in found]
        if missing:
            with self._open_folder(revision) as read:
                for name in missing:
                    file = others.get(name)
                    max_bytes = self._settings.limits.skill_bytes if file is None else file.size
                    found[name] = _read_published(
                        revision, name, file, partial(read, name, max_bytes)
                    )
        return [found[name] for name in names]

    def _find_skill_file(self, revision: StoredRevision) -> SiblingFile:
        if known := self._skill_files.get([revision.key]):
            return known[revision.key]
        content = self.read_file(revision, SKILL_FILE)
        found = SiblingFile(SKILL_FILE, len(content), hashlib.sha256(content).hexdigest())
        self._skill_files.put(revision.key, found)
        return found

    @contextmanager
    def _open_folder(self, revision: StoredRevision) -> Iterator[ReadFile]:
        """Open the folder of a skill in its source; raises TransientError if it is not there."""
        source_id, _, path = revision.key.skill_id.partition(":")
        source = find_source(self._skill_reader.list_sources(), source_id)
        if source is None:
            raise _changed(revision, "the folder")
        folder = "" if path == "." else path
        try:
            with open_skill_folder(source, folder, self._settings) as read:
                yield read
        except PermanentError as error:
            raise _changed(revision, "the folder") from error


def _read_published(
    revision: StoredRevision, name: str, file: SiblingFile | None, read: Callable[[], bytes]
) -> bytes:
    """Return the bytes of a file as published; file: None for SKILL.md. Raises TransientError."""
    try:
        content = read()
    except PermanentError as error:
        raise _changed(revision, name) from error
    if file is None:
        is_right = _matches(content, _list_others(revision), revision.content_hash)
    else:
        is_right = hashlib.sha256(content).hexdigest() == file.sha256
    if not is_right:
        raise _changed(revision, name)
    return content


def _restore_skill_file(revision: StoredRevision) -> bytes | None:
    """Return the bytes of SKILL.md from its stored lines, None if they
    cannot be restored exactly."""
    others = _list_others(revision)
    candidates = _encodings(revision.parsed.lines)
    return next((one for one in candidates if _matches(one, others, revision.content_hash)), None)


def _list_others(revision: StoredRevision) -> list[SiblingFile]:
    return sorted(revision.parsed.record.files, key=lambda file: file.path)


def _encodings(lines: Sequence[str]) -> list[bytes]:
    """Return the usual encodings of lines: UTF-8 with either line end, with and without a BOM."""
    plain = [end.join(lines).encode("utf-8", "replace") for end in ("\n", "\r\n")]
    return [*plain, *(codecs.BOM_UTF8 + content for content in plain)]


def _matches(content: bytes, others: Sequence[SiblingFile], content_hash: str) -> bool:
    return hash_skill_folder(hashlib.sha256(content).digest(), others) == content_hash


def _changed(revision: StoredRevision, name: str) -> TransientError:
    return TransientError(
        f"{name} of {revision.key.skill_id} does not match the published revision: it has "
        "changed, and the change is not published yet, or this machine cannot read its source; "
        "try again in a moment"
    )
