"""Upload store: a folder with submitted packages, and one installed package per skill.

    packages/upload-<id>/   packages of an accepted event, until the event has ended
    sources/<source>/       one package per skill, replaced by rename only
    staging/                uploads being received or written, deleted after a while

A reader opens one file, so it gets either the old or the new revision as a whole, with any number
of writing processes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, unquote

from config.errors import PermanentError, TransientError, transient_disk_errors
from config.settings import Settings
from search.fsync import fsync_folder
from tasks.sources.protocol import SkillFolder, SkillGoneError, SourceMissingError
from tasks.sources.uploads.package import read_manifest, read_package, read_package_file

UPLOAD_KIND = "upload"
"""Kind of a source whose skills are uploaded."""

_ID_PREFIX = "upload-"
_PACKAGE_SUFFIX = ".zip"
_PACKAGES, _SOURCES, _STAGING = "packages", "sources", "staging"
_MAX_NAME_LENGTH = 200
_ABANDONED_SECONDS = 3_600.0
_IN_TRANSIT_SECONDS = 60.0
"""Maximum seconds between the submission of a package and the record of its event."""
_SHARE = "gateways and workers must share one folder of uploads (uploads.folder)"


def new_package_id(name: str = "") -> str:
    """Return an id for a package and its event.

    name: 32 hex digits that are the same if the upload is sent again; "" for random digits.
    """
    return _ID_PREFIX + (name or uuid.uuid4().hex)


def is_package_id(event_id: str) -> bool:
    """Return whether the event with this id has a package; no other events have such ids."""
    return event_id.startswith(_ID_PREFIX)


def upload_root(source_id: str) -> str:
    """Return the root of an upload source in the catalog: the same on every machine."""
    return f"{UPLOAD_KIND}:{source_id}"


def safe_file_name(text: str) -> str:
    """Return a file name for any text, valid on any file system.

    Its hash distinguishes names that differ only in case.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()
    plain = quote(text, safe=" ")
    return f"{plain}~{digest[:16]}" if len(plain) <= _MAX_NAME_LENGTH else f"~{digest}"


def _disk_errors(place: Path, done: str) -> AbstractContextManager[None]:
    """Return the context that raises disk errors as TransientError. done: `read` or `written`."""
    public_message = f"the folder of uploads cannot be {done}"
    return transient_disk_errors(f"{place} cannot be {done}", public_message)


class UploadStore:
    """Writes and reads the folder of uploads, which any number of processes may share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._packages = folder / _PACKAGES
        self._sources = folder / _SOURCES
        self._staging = folder / _STAGING

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Yield a temporary folder for an upload, deleted afterwards.

        Raises TransientError if it cannot be created.
        """
        with _disk_errors(self._staging, "written"):
            for folder in (self._packages, self._sources, self._staging):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            place = Path(tempfile.mkdtemp(dir=self._staging))
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def submit_package(self, package_id: str, source_id: str, skills: Path) -> None:
        """Move a staged folder of packages, each synced, to the place where `install_package` finds
        it.

        It is durable when this returns. Raises TransientError, also if the same package was
        submitted within `_IN_TRANSIT_SECONDS`; an older package is replaced.
        """
        place = self._packages / package_id
        with _disk_errors(self._packages, "written"):
            self._source(source_id).mkdir(mode=0o700, exist_ok=True)
            fsync_folder(self._sources)
            fsync_folder(skills)
            if place.exists() and _is_older(place, time.time() - _IN_TRANSIT_SECONDS):
                place.rename(skills.with_name("left"))
            try:
                skills.rename(place)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                message = "this upload is being processed; send it again later"
                raise TransientError(message) from None
            fsync_folder(self._packages)

    def install_package(self, source_id: str, package_id: str) -> None:
        """Install the skills of a package, each atomically; a repeated call continues.

        Raises TransientError if this machine has another folder of uploads, PermanentError if the
        package is gone.
        """
        package, place = self._packages / package_id, self._existing_folder(source_id)
        try:
            names = sorted(one.name for one in package.iterdir())
        except FileNotFoundError:
            raise PermanentError(f"{package} is gone; upload the skills again") from None
        except OSError as error:
            raise TransientError(f"{package} cannot be read: {error.strerror}") from error
        with _disk_errors(place, "written"):
            for name in names:
                (package / name).replace(place / name)
            fsync_folder(place)

    def create_source(self, source_id: str) -> None:
        """Create the folder of a source, if it does not exist."""
        with _disk_errors(self._sources, "written"):
            self._source(source_id).mkdir(mode=0o700, parents=True, exist_ok=True)

    def install_skill(self, source_id: str, path: str, package: Path) -> None:
        """Install one skill's package from a staged and synced file."""
        with _disk_errors(self._sources, "written"):
            package.replace(self._file(source_id, path))
            fsync_folder(self._source(source_id))

    def remove_skills(self, source_id: str, paths: Iterable[str]) -> None:
        """Delete skills; missing skills are ignored."""
        with _disk_errors(self._sources, "written"):
            for path in paths:
                self._file(source_id, path).unlink(missing_ok=True)

    def list_paths(self, source_id: str) -> tuple[list[str], list[PermanentError]]:
        """Return the paths of a source's skills, sorted, and the errors of packages whose path
        cannot be read; raises TransientError if they cannot be listed."""
        place = self._existing_folder(source_id)
        with _disk_errors(place, "read"):
            files = [one for one in place.iterdir() if one.name.endswith(_PACKAGE_SUFFIX)]
        paths, errors = list[str](), list[PermanentError]()
        for file in files:
            try:
                paths.append(self._path(file))
            except PermanentError as error:
                errors.append(error)
        return sorted(filter(None, paths)), errors

    def _path(self, file: Path) -> str:
        """Return the skill path of a package. A long path is not in the file name but in the
        manifest."""
        plain = file.name.removesuffix(_PACKAGE_SUFFIX).rpartition("~")[0]
        if plain:
            return unquote(plain)
        try:
            return read_manifest(file).skill_id.partition(":")[2]
        except FileNotFoundError:
            return ""

    def has_skill(self, source_id: str, path: str) -> bool:
        """Return whether a skill is installed at this path."""
        return self._file(source_id, path).is_file()

    def get_signature(self, source_id: str, path: str) -> tuple[str, int] | None:
        """Return content hash and bytes of SKILL.md of a skill, None without one."""
        try:
            manifest = read_manifest(self._file(source_id, path))
        except FileNotFoundError:
            return None
        return manifest.content_hash, manifest.skill_file.size

    def read(self, source_id: str, path: str, max_skill_bytes: int) -> SkillFolder:
        """Read one skill.

        Raises SkillGoneError, PermanentError for a damaged package or a SKILL.md of more than
        `max_skill_bytes`, TransientError if this machine has no folder of the source.
        """
        self._existing_folder(source_id)
        try:
            return read_package(self._file(source_id, path), max_skill_bytes)
        except FileNotFoundError:
            raise SkillGoneError(f"{source_id}:{path} is gone") from None

    def read_file(self, source_id: str, path: str, name: str, max_bytes: int) -> bytes:
        """Return one file of a skill; raises as `read` does, PermanentError above `max_bytes`."""
        self._existing_folder(source_id)
        try:
            return read_package_file(self._file(source_id, path), name, max_bytes)
        except FileNotFoundError:
            raise SkillGoneError(f"{source_id}:{path}/{name} is gone") from None

    def delete_expired(self, find_ended: Callable[[Sequence[str]], Mapping[str, bool]]) -> int:
        """Delete packages that are no longer needed, and old staged uploads; returns how many.

        find_ended: package ids -> whether their events have ended; unknown events are left
        out. A package of an unknown event, and a staged upload, are deleted when their age shows
        that their process has died.
        """
        old = time.time() - _ABANDONED_SECONDS
        packages = _list_folder(self._packages)
        known = find_ended([one.name for one in packages]) if packages else {}
        due = [one for one in packages if known.get(one.name, _is_older(one, old))]
        due += [one for one in _list_folder(self._staging) if _is_older(one, old)]
        for one in due:
            shutil.rmtree(one, ignore_errors=True)
        return len(due)

    def _existing_folder(self, source_id: str) -> Path:
        place = self._source(source_id)
        if not place.is_dir():
            raise SourceMissingError(
                f"source {source_id}: no {place} on this machine; {_SHARE}",
                public_message=f"source {source_id}: its uploads are not on this machine; {_SHARE}",
            )
        return place

    def _source(self, source_id: str) -> Path:
        return self._sources / safe_file_name(source_id)

    def _file(self, source_id: str, path: str) -> Path:
        return self._source(source_id) / package_file_name(path)


def package_file_name(path: str) -> str:
    """Return the file name of a skill's package."""
    return safe_file_name(path) + _PACKAGE_SUFFIX


def _list_folder(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _is_older(one: Path, moment: float) -> bool:
    try:
        return one.stat().st_mtime < moment
    except OSError:
        return False


def open_upload_store(settings: Settings) -> UploadStore:
    """Return the store in the folder from the settings."""
    return UploadStore(uploads_folder(settings))


def uploads_folder(settings: Settings) -> Path:
    """Return the folder of the store in the settings."""
    return settings.uploads.folder or settings.home / "uploads"


def copy_uploads(source: Path, target: Path) -> None:
    """Copy the folder of a store, if it exists, to an empty folder, while processes may use it.

    Raises TransientError if it cannot be copied.
    """
    if not source.is_dir():
        return
    try:
        # The files of a package move to `sources`: in this order, none of them is missed.
        for name in (_PACKAGES, _SOURCES):
            _copy_folder(source / name, target / name)
    except OSError as error:
        raise TransientError(f"{source} cannot be copied to {target} now: {error}") from error


def _copy_folder(source: Path, target: Path) -> None:
    """Copy a folder without what is moved or deleted meanwhile."""
    for folder, _, names in os.walk(source, onerror=_raise_unless_gone):
        place = target / Path(folder).relative_to(source)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in names:
            with suppress(FileNotFoundError):
                shutil.copyfile(Path(folder) / name, place / name)


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
