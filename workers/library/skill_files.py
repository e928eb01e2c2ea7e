"""Files of a skill as they were published: their digests, and bytes that are proven by them.

A revision stores the size and SHA-256 of each file but SKILL.md, and a content hash over these and
the SHA-256 of SKILL.md. So every byte that is returned here is one of the published revision: a
file that the source has changed, replaced by a link or moved since then does not match, and is
refused.
"""

from __future__ import annotations

import codecs
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence

from config.errors import PermanentError, TransientError
from config.settings import Settings
from search.protocol import StoredRevision
from skills.record import RevisionKey, SiblingFile
from tasks.sources.folder_rules import hash_skill_folder
from tasks.sources.protocol import SKILL_FILE
from tasks.sources.readers import find_source, read_skill_file
from workers.library.skill_reader import SkillReader

_MAX_CACHED = 10_000


class SkillFiles:
    """Digests and bytes of the files of published revisions; threads may share it.

    skill_reader: knows the sources that files are read from.
    """

    def __init__(self, settings: Settings, skill_reader: SkillReader) -> None:
        self._settings = settings
        self._skill_reader = skill_reader
        self._skill_files: OrderedDict[RevisionKey, SiblingFile] = OrderedDict()
        self._lock = threading.Lock()

    def list_files(self, revision: StoredRevision) -> list[SiblingFile]:
        """All files of a skill, SKILL.md first, the others by path.

        Raises TransientError if SKILL.md is stored in another form than it was published, and the
        source has another one by now.
        """
        return [self._find_skill_file(revision), *_list_others(revision)]

    def read_file(self, revision: StoredRevision, name: str) -> bytes:
        """The bytes of a file that `list_files` names.

        Raises TransientError if the source does not have it any more as it was published.
        """
        if name == SKILL_FILE:
            return self._read_skill_file(revision)
        file = next(one for one in _list_others(revision) if one.path == name)
        content = self._read_from_source(revision, name, file.size)
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise _changed(revision, name)
        return content

    def _find_skill_file(self, revision: StoredRevision) -> SiblingFile:
        with self._lock:
            known = self._skill_files.get(revision.key)
        if known is not None:
            return known
        content = self._read_skill_file(revision)
        found = SiblingFile(SKILL_FILE, len(content), hashlib.sha256(content).hexdigest())
        with self._lock:
            self._skill_files[revision.key] = found
            if len(self._skill_files) > _MAX_CACHED:
                self._skill_files.popitem(last=False)
        return found

    def _read_skill_file(self, revision: StoredRevision) -> bytes:
        """The bytes of SKILL.md: from the stored lines where they give these, else from the
        source."""
        others = _list_others(revision)
        for content in _encodings(revision.parsed.lines):
            if _matches(content, others, revision.content_hash):
                return content
        content = self._read_from_source(revision, SKILL_FILE, self._settings.limits.skill_bytes)
        if not _matches(content, others, revision.content_hash):
            raise _changed(revision, SKILL_FILE)
        return content

    def _read_from_source(self, revision: StoredRevision, name: str, max_bytes: int) -> bytes:
        source_id, _, path = revision.key.skill_id.partition(":")
        path = "" if path == "." else path
        source = find_source(self._skill_reader.list_sources(), source_id)
        if source is None:
            raise _changed(revision, name)
        try:
            return read_skill_file(source, path, name, max_bytes, self._settings)
        except PermanentError as error:
            raise _changed(revision, name) from error


def _list_others(revision: StoredRevision) -> list[SiblingFile]:
    return sorted(revision.parsed.record.files, key=lambda file: file.path)


def _encodings(lines: Sequence[str]) -> list[bytes]:
    """The bytes that lines are most often decoded from: UTF-8 with either line end."""
    plain = [end.join(lines).encode("utf-8", "replace") for end in ("\n", "\r\n")]
    return [*plain, *(codecs.BOM_UTF8 + content for content in plain)]


def _matches(content: bytes, others: Sequence[SiblingFile], content_hash: str) -> bool:
    return hash_skill_folder(hashlib.sha256(content).digest(), others) == content_hash


def _changed(revision: StoredRevision, name: str) -> TransientError:
    return TransientError(
        f"{name} of {revision.key.skill_id} is not there as it was published: it has changed, and "
        "the next revision is not published yet, or this machine does not see its source; "
        "try again in a moment"
    )
