"""Skills of public sources: an index by name, and each skill as one file or archive.

Formats: Agent Skills Discovery 0.2.0 (cloudflare/agent-skills-discovery-rfc), as the client
`skills` of vercel-labs reads it, and the lists of files of its version 0.1.0.
"""

from __future__ import annotations

import hashlib
import io
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import structlog

from config.errors import NotFoundError, SkillbusError, TransientError
from config.settings import Settings
from skills.access import ANYONE
from workers.library.served_skills import ServedSkill, ServedSkills
from workers.library.skill_reader import SkillReader

log = structlog.get_logger()

SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
MAX_SKILLS = 1_000
"""Maximum of skills in the index: clients read it whole."""

_PAGE_SIZE = 100
_PAUSES = 9
"""Pause between two builds of the index, as a multiple of the last build's duration."""
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)

Fingerprint = tuple[tuple[str, str], ...]


class PublicFile(NamedTuple):
    """Bytes to send. name: of the file. sha256: of the bytes, in hexadecimal."""

    name: str
    content: bytes
    sha256: str


@dataclass(slots=True)
class _Index:
    """Skills by name.

    state: epoch of the catalog, and version of the reviews. digests: of the files and
    archives that the index links to. next_at: time from which it may be rebuilt, 0 before it is
    built. hidden: sources that not everyone may see.
    """

    state: tuple[int, int] = (-1, -1)
    next_at: float = 0.0
    hidden: frozenset[str] = frozenset()
    skills: dict[str, ServedSkill] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)


class PublicSkills:
    """Reads the skills of the sources in `policy.public` that everyone may
    see; threads may share it.

    The index is rebuilt when the catalog has changed. Of skills with the same name, it lists the
    one of the first source in the setting; within a source, the first by id.
    """

    def __init__(self, settings: Settings, skill_reader: SkillReader) -> None:
        self._sources = tuple(dict.fromkeys(settings.policy.public))
        self._settings = settings
        self._all_skills = skill_reader
        self._building = threading.Lock()
        self._index = _Index()
        self._digests: dict[Fingerprint, str] = {}

    @cached_property
    def _skill_reader(self) -> SkillReader:
        """Reader of the skills that a caller without a token may see."""
        return self._all_skills.for_reader(ANYONE)

    @cached_property
    def _served(self) -> ServedSkills:
        return ServedSkills(self._settings, self._skill_reader)

    def describe(self) -> dict[str, Any]:
        """Return the index of version 0.2.0; raises NotFoundError if no source is public."""
        index = self._read_index()
        return {
            "$schema": SCHEMA,
            "skills": [
                {
                    "name": name,
                    "type": "archive" if len(skill.files) > 1 else "skill-md",
                    "description": skill.description,
                    "url": f"{name}.zip" if len(skill.files) > 1 else f"{name}/SKILL.md",
                    "digest": f"sha256:{index.digests[name]}",
                }
                for name, skill in index.skills.items()
            ],
        }

    def describe_files(self) -> dict[str, Any]:
        """Return the index of version 0.1.0, with the files of each skill;
        raises as `describe` does."""
        return {
            "skills": [
                {
                    "name": name,
                    "description": skill.description,
                    "files": [file.path for file in skill.files],
                }
                for name, skill in self._read_index().skills.items()
            ]
        }

    def read_file(self, name: str, path: str) -> PublicFile:
        """Return a file of a skill; raises NotFoundError if the skill lists no file of exactly this
        path, TransientError if the source has changed since the skill was published."""
        for file in self._find(name).files:
            if file.path == path:
                # The file may be of a later revision than the index, which
                # is rebuilt after a pause.
                content = self._served.read(file.uri).content
                return PublicFile(path, content, hashlib.sha256(content).hexdigest())
        raise NotFoundError(f"no file {path!r} of a public skill {name!r}")

    def read_archive(self, name: str) -> PublicFile:
        """Return a skill as a zip; the same files give the same bytes.
        Raises as `read_file` does."""
        content = self._make_archive(self._find(name))
        return PublicFile(f"{name}.zip", content, hashlib.sha256(content).hexdigest())

    def _find(self, name: str) -> ServedSkill:
        skill = self._read_index().skills.get(name)
        if skill is None:
            raise NotFoundError(f"no public skill {name!r}")
        return skill

    def _read_index(self) -> _Index:
        """Return the index; while another thread builds it, the former one.

        Raises TransientError if there is none for the sources that are visible now. Waiting for the
        build would let callers without a token occupy all threads.
        """
        if not self._sources:
            raise NotFoundError("no skills are public here (policy.public)")
        index, hidden = self._index, self._find_hidden()
        if time.monotonic() < index.next_at and hidden == index.hidden:
            return index
        state = (self._skill_reader.get_epoch(), self._skill_reader.get_review_version())
        if index.state == state and hidden == index.hidden:
            return index
        if not self._building.acquire(blocking=False):
            if index.next_at and hidden == index.hidden:
                return index
            raise TransientError("the index of public skills is being built; try again in a moment")
        try:
            if self._index is index or self._index.hidden != hidden:
                started = time.monotonic()
                made = self._make_index(state, hidden)
                ended = time.monotonic()
                # While a library is being filled, most of the time is left for other requests.
                made.next_at = ended + _PAUSES * (ended - started)
                self._index = made
            return self._index
        finally:
            self._building.release()

    def _find_hidden(self) -> frozenset[str]:
        """Return the sources of the setting that not everyone may see."""
        visible = self._skill_reader.select_visible(self._sources)
        return frozenset(self._sources).difference(visible)

    def _make_index(self, state: tuple[int, int], hidden: frozenset[str]) -> _Index:
        made = _Index(state, hidden=hidden)
        for source in sorted(hidden):
            log.warning("a public source is left out: it is not visible to everyone", source=source)
        kept: dict[Fingerprint, str] = {}
        for skill in self._iterate():
            if skill.name in made.skills:
                log.info("a public skill has the name of another one", skill_id=skill.skill_id)
                continue
            if len(made.skills) == MAX_SKILLS:
                log.warning("too many public skills; the others are not listed", limit=MAX_SKILLS)
                break
            fingerprint = tuple((file.path, file.sha256) for file in skill.files)
            try:
                digest = self._digests.get(fingerprint) or self._compute_digest(skill)
            except SkillbusError as error:  # it is listed again with its next revision
                log.warning("public skill not read", skill_id=skill.skill_id, reason=str(error))
                continue
            kept[fingerprint] = made.digests[skill.name] = digest
            made.skills[skill.name] = skill
        self._digests = kept
        return made

    def _iterate(self) -> Iterator[ServedSkill]:
        for source in self._sources:
            after = f"{source}:"
            while after:
                page = self._served.list_page(after, _PAGE_SIZE)
                inside = [one for one in page.skills if one.skill_id.startswith(f"{source}:")]
                yield from inside
                is_over = len(inside) < len(page.skills)
                after = "" if is_over else page.next_after
                after = after if after.startswith(f"{source}:") else ""

    def _compute_digest(self, skill: ServedSkill) -> str:
        if len(skill.files) == 1:
            return skill.files[0].sha256
        return hashlib.sha256(self._make_archive(skill)).hexdigest()

    def _make_archive(self, skill: ServedSkill) -> bytes:
        """Return a zip with the skill's folder as its root. It is not compressed, since other
        versions of the compressor give other bytes."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            contents = self._served.read_all(skill)
            for file, content in zip(skill.files, contents, strict=True):
                archive.writestr(zipfile.ZipInfo(file.path, _FIXED_TIME), content)
        return buffer.getvalue()
