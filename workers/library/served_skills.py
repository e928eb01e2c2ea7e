"""Skills and their files for clients that load them whole and unchanged, under URIs.

Only skills that keep the Agent Skills format and that the policy does not withhold are served. A
withheld skill is answered like an unknown one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import structlog

from config.errors import NotFoundError, TransientError
from config.settings import Settings
from graph.records import CatalogEntry
from search.protocol import StoredRevision
from skills.access import Reader
from skills.parsing.agent_skill import AgentSkill, FormatError, read_agent_skill
from skills.parsing.json_yaml import JsonValue
from skills.skill_uri import (
    SKILL_FILE,
    SkillPlace,
    get_inner_prefix,
    make_file_uri,
    make_skill_uri,
    parse_skill_uri,
)
from workers.library.skill_files import SkillFiles
from workers.library.skill_reader import SkillReader

log = structlog.get_logger()

MAX_FILES = 512
MAX_BYTES = 16 * 1024 * 1024
"""Limits of the Skills extension of MCP for one skill, including skills inside its folder."""

_ESCAPED_BYTE = "\\x"
"""Prefix of bytes that `folder_rules.escape_non_utf8` has replaced in a name that is not UTF-8."""


@dataclass(frozen=True, slots=True)
class ServedFile:
    """A file of a skill. path: relative to the skill's folder. sha256: in hexadecimal."""

    path: str
    uri: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ServedSkill:
    """A skill at its published revision.

    uri: of its folder. frontmatter: every field, as JSON values. files: all of its files, SKILL.md
    first, and those of the skills inside its folder.
    """

    skill_id: str
    seq: int
    uri: str
    name: str
    description: str
    frontmatter: Mapping[str, JsonValue]
    files: tuple[ServedFile, ...]
    safety_level: int = 0

    @property
    def skill_file_uri(self) -> str:
        """URI of its SKILL.md, which identifies the skill."""
        return self.files[0].uri


class LeftOut(NamedTuple):
    """A skill that is not served although the policy allows it, and the reason."""

    skill_id: str
    reason: str


@dataclass(slots=True)
class SkillPage:
    """A page of skills in the order of their ids. next_after: the id after which the next page
    begins, "" on the last page."""

    skills: list[ServedSkill] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    next_after: str = ""


class FileContent(NamedTuple):
    """Content of a file. revision: of the skill whose folder it lies in."""

    name: str
    content: bytes
    revision: StoredRevision


class DirectoryChild(NamedTuple):
    """A file or folder in a folder; folders have no size."""

    name: str
    uri: str
    size: int | None


class ServedSkills:
    """Lists skills and reads their files; threads may share it."""

    def __init__(
        self, settings: Settings, skill_reader: SkillReader, files: SkillFiles | None = None
    ) -> None:
        self._settings = settings
        self._skill_reader = skill_reader
        self._files = files or SkillFiles(settings, skill_reader)

    def for_reader(self, reader: Reader) -> ServedSkills:
        """Return an instance for the skills that a reader may see; it shares the
        cached digests of files."""
        if reader.sees_everything:
            return self
        # Files are only read for revisions that the reader may see, so `SkillFiles` needs none.
        return ServedSkills(self._settings, self._skill_reader.for_reader(reader), self._files)

    def list_page(self, after: str, limit: int) -> SkillPage:
        """Return at most `limit` skills whose id sorts after `after`; left-out skills count too."""
        window = self._skill_reader.list_published(after, limit + 1)
        shown = window[:limit]
        ends = len(window) <= limit
        nested = {one.skill_id: self._find_nested(one.skill_id, window, ends) for one in shown}
        ids = [one.skill_id for one in shown]
        revisions = self._skill_reader.read_allowed([*ids, *chain.from_iterable(nested.values())])
        page = SkillPage(next_after="" if ends else shown[-1].skill_id)
        for skill_id in ids:
            if skill_id not in revisions:
                continue
            inner = [revisions[one] for one in nested[skill_id] if one in revisions]
            try:
                page.skills.append(self._build(revisions[skill_id], inner))
            except (FormatError, TransientError) as error:
                page.left_out.append(LeftOut(skill_id, str(error)))
        return page

    def get(self, uri: str) -> ServedSkill:
        """Return the skill whose SKILL.md has this URI.

        Raises NotFoundError if none is served there, TransientError if its
        files cannot be listed now.
        """
        place = next((one for one in parse_skill_uri(uri) if one.rest == (SKILL_FILE,)), None)
        revision = self._read_one(place)
        if place is None or revision is None:
            raise NotFoundError(f"no skill is served at {uri}")
        return self._build_at(place, revision)

    def read(self, uri: str) -> FileContent:
        """Return the bytes of the file with this URI, as published.

        Raises NotFoundError if no served skill lists it, TransientError if it has changed since.
        """
        places = parse_skill_uri(uri)
        revisions = self._skill_reader.read_allowed(
            [one for place in places for one in _folders(place)]
        )
        for place in places:
            outer = revisions.get(place.skill_id)
            if outer is None or not place.rest or not _is_served_at(outer, place):
                continue
            folders = _folders(place)
            depth = max(at for at, one in enumerate(folders) if one in revisions)
            owner, name = revisions[folders[depth]], "/".join(place.rest[depth:])
            listed = self._files.list_files(owner)
            known = next((one for one in listed if one.path == name), None)
            if known is not None and known.size <= MAX_BYTES:
                return FileContent(name, self._files.read_file(owner, name), owner)
        raise NotFoundError(f"no file of a skill is served at {uri}")

    def read_all(self, skill: ServedSkill) -> list[bytes]:
        """Return the bytes of all files of a skill, in their order; each source is opened once.

        Raises TransientError if the skill has changed since it was listed.
        """
        owners = [skill.skill_id, *self._find_nested(skill.skill_id, (), False)]
        found: dict[str, bytes] = {}
        for owner, revision in self._skill_reader.read_allowed(owners).items():
            inner = _get_inner_path(skill.skill_id, owner)
            names = [file.path for file in self._files.list_files(revision)]
            contents = self._files.read_files(revision, names)
            found |= {inner + name: content for name, content in zip(names, contents, strict=True)}
        contents = [found.get(file.path, b"") for file in skill.files]
        for file, content in zip(skill.files, contents, strict=True):
            if hashlib.sha256(content).hexdigest() != file.sha256:
                raise TransientError(f"{skill.skill_id} is being replaced; try again")
        return contents

    def list_directory(self, uri: str) -> list[DirectoryChild]:
        """Return the content of a folder of a skill, by name; the root is the
        URI of the skill's folder.

        Raises NotFoundError if there is no such folder, or it is a file.
        """
        for place in parse_skill_uri(uri):
            revision = self._read_one(place)
            if revision is None or not _is_served_at(revision, place):
                continue
            skill = self._build_at(place, revision)
            prefix = "".join(f"{part}/" for part in place.rest)
            inside = [file for file in skill.files if file.path.startswith(prefix)]
            if inside:
                return _list_children(uri, inside, prefix)
        raise NotFoundError(f"no folder of a skill is served at {uri}")

    def find_uris(self, skill_ids: Sequence[str]) -> dict[str, str]:
        """Return the URI of the SKILL.md of each given skill that is served, by id."""
        found = {}
        for skill_id, revision in self._skill_reader.read_allowed(skill_ids).items():
            try:
                agent_skill = _read_format(revision)
            except FormatError:
                continue
            folder = make_skill_uri(skill_id, agent_skill.name)
            found[skill_id] = make_file_uri(folder, SKILL_FILE)
        return found

    def _read_one(self, place: SkillPlace | None) -> StoredRevision | None:
        if place is None:
            return None
        return self._skill_reader.read_allowed([place.skill_id]).get(place.skill_id)

    def _build_at(self, place: SkillPlace, revision: StoredRevision) -> ServedSkill:
        """Return the skill; raises NotFoundError with the reason if it is not
        served at this place."""
        nested = self._skill_reader.read_allowed(self._find_nested(place.skill_id, (), False))
        try:
            skill = self._build(revision, list(nested.values()))
        except FormatError as error:
            raise NotFoundError(f"{place.skill_id} is not served: {error}") from error
        if skill.name != place.name:
            raise NotFoundError(f"{place.skill_id} is served at {skill.skill_file_uri}")
        return skill

    def _find_nested(
        self, skill_id: str, window: Sequence[CatalogEntry], is_last: bool
    ) -> list[str]:
        """Return published skills inside a skill's folder; at most MAX_FILES
        + 1, which are too many.

        window: consecutive entries, which are used if they reach far enough, so that most skills
        need no read of the catalog. is_last: whether no entry follows the window.
        """
        prefix = get_inner_prefix(skill_id)
        inside = [one.skill_id for one in window if one.skill_id.startswith(prefix)]
        last = window[-1].skill_id if window else ""
        if not is_last and (last < prefix or last.startswith(prefix)):
            found = self._skill_reader.list_published(prefix, MAX_FILES + 1, prefix)
            inside = [one.skill_id for one in found]
        return [one for one in inside if one != skill_id]

    def _build(self, revision: StoredRevision, nested: Sequence[StoredRevision]) -> ServedSkill:
        """Return the skill with its files; raises FormatError if it breaks
        the format or a limit."""
        agent_skill = _read_format(revision)
        skill_id = revision.key.skill_id
        folder = make_skill_uri(skill_id, agent_skill.name)
        files: list[ServedFile] = []
        for owner in (revision, *nested):
            inner = _get_inner_path(skill_id, owner.key.skill_id)
            if len(files) + len(owner.parsed.record.files) >= MAX_FILES:
                raise FormatError(f"it has more than {MAX_FILES} files")
            for file in self._files.list_files(owner):
                path = inner + file.path
                files.append(ServedFile(path, make_file_uri(folder, path), file.size, file.sha256))
        total = sum(file.size for file in files)
        if total > MAX_BYTES:
            raise FormatError(f"its files have {total} bytes; {MAX_BYTES} are allowed")
        files[1:] = sorted(files[1:], key=lambda file: file.path)
        return ServedSkill(
            skill_id,
            revision.key.seq,
            folder,
            agent_skill.name,
            agent_skill.description,
            agent_skill.frontmatter,
            tuple(files),
            revision.parsed.record.safety_level,
        )


def _read_format(revision: StoredRevision) -> AgentSkill:
    for file in revision.parsed.record.files:
        if _ESCAPED_BYTE in file.path:
            raise FormatError("the name of one of its files is not UTF-8")
    return read_agent_skill(revision.parsed.lines)


def _is_served_at(revision: StoredRevision, place: SkillPlace) -> bool:
    """Return whether the skill keeps the format and has the name that the URI gives it."""
    try:
        return _read_format(revision).name == place.name
    except FormatError:
        return False


def _get_inner_path(skill_id: str, owner: str) -> str:
    """Return the path of a skill inside another skill's folder, relative to that; "" for itself."""
    return "" if owner == skill_id else f"{owner}/".removeprefix(get_inner_prefix(skill_id))


def _folders(place: SkillPlace) -> list[str]:
    """Return the possible ids of a skill at this place and of skills inside it, outermost first."""
    ids = [place.skill_id]
    for part in place.rest[:-1]:
        ids.append(get_inner_prefix(ids[-1]) + part)
    return ids


def _list_children(uri: str, files: Sequence[ServedFile], prefix: str) -> list[DirectoryChild]:
    children: dict[str, DirectoryChild] = {}
    for file in files:
        name, _, below = file.path.removeprefix(prefix).partition("/")
        child = make_file_uri(uri, name)
        children[name] = DirectoryChild(name, child, None if below else file.size)
    return [children[name] for name in sorted(children)]
