"""Packages: one zip file per skill, written from an upload and read as the skill's folder.

A package holds the skill's files below `files/` and a manifest with their sizes and hashes. A
reader that opens this one file gets one revision as a whole.
"""

from __future__ import annotations

import errno
import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from config.errors import PermanentError, TransientError
from config.settings import Settings
from skills.parsing import sibling_files
from skills.parsing.sibling_files import VIRTUAL_ENVIRONMENT_FILE
from skills.record import SiblingFile
from tasks.sources.folder_rules import SKIPPED_FOLDERS, check_skill_file, hash_skill_folder
from tasks.sources.protocol import SKILL_FILE, SkillFolder
from tasks.sources.uploads.archive import ZIP_ERRORS, ArchiveMember
from tasks.sources.uploads.limits import ArchiveError, UploadTooLargeError, escape_name, iter_chunks
from tasks.sources.uploads.member_names import MemberNames, clean_path

_VERSION = 1
_MANIFEST = "manifest.json"
_FILES = "files/"
IGNORED_NAMES = SKIPPED_FOLDERS | {"__MACOSX", ".DS_Store"}
"""Names of files and folders that belong to no skill."""
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class UploadContents:
    """Files of an upload by skill.

    skills: skill path in the source -> path in the skill -> member of the target zip. left_out:
    number of files that belong to no skill or are in skipped folders.
    """

    skills: Mapping[str, Mapping[str, str]]
    left_out: int


def collect_skills(
    members: Iterable[ArchiveMember], target: IO[bytes], settings: Settings, path: str
) -> UploadContents:
    """Write the content of all members to `target`, a zip, and group them by skill.

    path: the folder of the source that the upload belongs to, "" for its root; it replaces the top
    folder of an archive with only one. Raises ArchiveError.
    """
    names = MemberNames(settings.uploads.depth)
    stored: dict[str, str] = {}
    left_out = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as gathered:
        for member in members:
            name = names.add(member.name, folder=member.content is None)
            if member.content is None:
                continue
            if IGNORED_NAMES.intersection(name.split("/")):
                left_out += 1
                continue
            stored[name] = str(len(stored))
            with gathered.open(_zip_info(stored[name]), "w", force_zip64=True) as stream:
                for chunk in _check_skill_file_size(member, name, settings.limits.skill_bytes):
                    stream.write(chunk)
    skills, unowned = _group_by_skill(_apply_source_path(stored, path, settings.uploads.depth))
    _check_skills(skills, settings)
    return UploadContents(skills, left_out + unowned)


def _check_skill_file_size(
    member: ArchiveMember, name: str, max_skill_bytes: int
) -> Iterator[bytes]:
    """Yield a member's content; raises UploadTooLargeError for a SKILL.md above the parser's
    limit."""
    size = 0
    for chunk in member.content or ():
        size += len(chunk)
        if size > max_skill_bytes and PurePosixPath(name).name == SKILL_FILE:
            raise UploadTooLargeError(
                f"{escape_name(name)}: more than {max_skill_bytes} bytes (limits.skill_bytes)"
            )
        yield chunk


def _apply_source_path(stored: Mapping[str, str], path: str, depth: int) -> dict[str, str]:
    """Return the names of members as paths in the source."""
    if not path:
        return dict(stored)
    tops = {name.partition("/")[0] for name in stored}
    nested = len(tops) == 1 and all("/" in name for name in stored)
    cut = len(next(iter(tops))) + 1 if nested else 0
    return {clean_path(f"{path}/{name[cut:]}", depth + 64): entry for name, entry in stored.items()}


def _group_by_skill(stored: Mapping[str, str]) -> tuple[dict[str, dict[str, str]], int]:
    """Return the files of each skill, and the number of files that belong to none."""
    folders = {
        str(PurePosixPath(name).parent) for name in stored if PurePosixPath(name).name == SKILL_FILE
    }
    environments = {
        str(PurePosixPath(name).parent)
        for name in stored
        if PurePosixPath(name).name == VIRTUAL_ENVIRONMENT_FILE
    }
    skills: dict[str, dict[str, str]] = {folder: {} for folder in folders - environments}
    unowned = 0
    for name, entry in stored.items():
        above = [str(folder) for folder in PurePosixPath(name).parents]
        owner = next((folder for folder in above if folder in skills), None)
        if PurePosixPath(name).name == VIRTUAL_ENVIRONMENT_FILE:
            above = above[1:]
        if owner is None or environments.intersection(above):
            unowned += 1
            continue
        skills[owner][name if owner == "." else name[len(owner) + 1 :]] = entry
    return {path: files for path, files in skills.items() if files}, unowned


def _check_skills(skills: Mapping[str, Mapping[str, str]], settings: Settings) -> None:
    if not skills:
        raise ArchiveError(f"the upload has no {SKILL_FILE}; a skill is a folder that contains one")
    if "." in skills:
        raise ArchiveError(
            f"the upload has {SKILL_FILE} at its top level (a text file is read as {SKILL_FILE}): "
            "give the path of the skill's folder as `path` (`--path`)"
        )
    if len(skills) > settings.uploads.skills:
        raise UploadTooLargeError(f"more than {settings.uploads.skills} skills (uploads.skills)")
    for path, files in skills.items():
        if len(files) - 1 > settings.limits.folder_files:
            raise UploadTooLargeError(
                f"{escape_name(path)}: more than {settings.limits.folder_files} files in one skill "
                "(limits.folder_files)"
            )


def write_package(
    target: IO[bytes], skill_id: str, files: Mapping[str, str], gathered: zipfile.ZipFile
) -> None:
    """Write one skill's package. files, gathered: from `collect_skills`."""
    listed: list[SiblingFile] = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as package:
        for name in sorted(files):
            size, digest = 0, hashlib.sha256()
            with (
                gathered.open(files[name]) as source,
                package.open(_zip_info(_FILES + name), "w", force_zip64=True) as stream,
            ):
                for chunk in iter_chunks(source):
                    size += len(chunk)
                    digest.update(chunk)
                    stream.write(chunk)
            listed.append(SiblingFile(name, size, digest.hexdigest()))
        package.writestr(_zip_info(_MANIFEST), _manifest(skill_id, listed))


def _manifest(skill_id: str, files: Iterable[SiblingFile]) -> str:
    rows = [[file.path, file.size, file.sha256] for file in files]
    return json.dumps({"version": _VERSION, "skill_id": skill_id, "files": rows})


def _zip_info(name: str) -> zipfile.ZipInfo:
    """Return an entry with a fixed time, so that the same content makes the same package."""
    entry = zipfile.ZipInfo(name, _FIXED_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


@dataclass(frozen=True, slots=True)
class PackageManifest:
    """The manifest of a package. files: all files except SKILL.md, sorted by path."""

    skill_id: str
    skill_file: SiblingFile
    files: tuple[SiblingFile, ...]

    @property
    def content_hash(self) -> str:
        """The skill's content hash, the same as for a directory with these files."""
        return hash_skill_folder(bytes.fromhex(self.skill_file.sha256), self.files)


def read_manifest(file: Path) -> PackageManifest:
    """Read a package's manifest; raises FileNotFoundError, PermanentError if it is damaged."""
    with _open_package(file) as package:
        return _parse_manifest(package, file)


def read_package(file: Path, max_skill_bytes: int) -> SkillFolder:
    """Read a package as a skill's folder.

    Raises FileNotFoundError, PermanentError for a damaged package or a SKILL.md of more than
    `max_skill_bytes`.
    """
    with _open_package(file) as package:
        manifest = _parse_manifest(package, file)
        if manifest.skill_file.size > max_skill_bytes:
            raise PermanentError(
                f"{manifest.skill_id}: {manifest.skill_file.size} bytes; the limit is "
                f"{max_skill_bytes} (limits.skill_bytes)"
            )
        content = package.read(_FILES + SKILL_FILE)
        check_skill_file(f"{manifest.skill_id}/{SKILL_FILE}", content)
        texts = sibling_files.read_selected_files(
            manifest.files, lambda one: package.read(_FILES + one.path)
        )
        return SkillFolder(content, manifest.files, manifest.content_hash, texts)


def read_package_file(file: Path, name: str, max_bytes: int) -> bytes:
    """Return one file of a package by its path in the skill's folder.

    Raises FileNotFoundError, also if the package has no such file, PermanentError for a damaged
    package or a file of more than `max_bytes`.
    """
    with _open_package(file) as package:
        manifest = _parse_manifest(package, file)
        found = {one.path: one for one in (manifest.skill_file, *manifest.files)}.get(name)
        if found is None:
            raise FileNotFoundError(name)
        if found.size > max_bytes:
            raise PermanentError(
                f"{manifest.skill_id}/{name}: {found.size} bytes; the limit is {max_bytes}"
            )
        with package.open(_FILES + name) as stream:
            return stream.read(max_bytes + 1)


def _parse_manifest(package: zipfile.ZipFile, file: Path) -> PackageManifest:
    read: dict[str, Any] = json.loads(package.read(_MANIFEST))
    if read["version"] != _VERSION:
        raise PermanentError(f"{file}: written by another version of skillbus; upload it again")
    files = {row[0]: SiblingFile(*row) for row in read["files"]}
    skill_file = files.pop(SKILL_FILE)
    ordered = tuple(sorted(files.values(), key=lambda one: one.path))
    return PackageManifest(read["skill_id"], skill_file, ordered)


@contextmanager
def _open_package(file: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file) as package:
            yield package
    except FileNotFoundError:
        raise
    except (*ZIP_ERRORS, TypeError, OSError) as error:  # TypeError: a manifest of another form
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # a wrong offset
            message = f"{file} cannot be read: {error.strerror}"
            public_message = "an uploaded skill cannot be read"
            raise TransientError(message, public_message=public_message) from error
        raise PermanentError(f"{file}: damaged ({error}); upload the skill again") from error
