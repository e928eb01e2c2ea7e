"""The folder of uploads: packages on their way in, and the one package of each skill.

    packages/upload-<id>/   what an accepted event brings, until the event has ended
    sources/<source>/       one package a skill, replaced by a rename alone
    staging/                what is being received or written; swept

A reader opens one file, and so has the old revision whole or the new one whole, however many
processes write and on whatever file system that renames within itself.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote

from config.errors import PermanentError, TransientError
from config.settings import Settings
from tasks.sources.directory import SkillFolder, SkillGoneError, SourceScan
from tasks.sources.uploads.package import read_manifest, read_package

UPLOAD_KIND = "upload"
"""Of a source whose skills come by value."""

_PREFIX = "upload-"
_SUFFIX = ".zip"
_LONGEST_NAME = 200
_ABANDONED_SECONDS = 3_600.0
_IN_TRANSIT_SECONDS = 60.0
"""In which an event is recorded once its package has been handed in."""
_SHARE = "gateways and workers must share one folder of uploads (uploads.folder)"


def new_package_id(name: str = "") -> str:
    """An id for an event that brings a package, and for the package.

    name: 32 hex digits by which to tell that something is sent again; at default it is new.
    """
    return _PREFIX + (name or uuid.uuid4().hex)


def is_package_id(event_id: str) -> bool:
    """Whether an event of this id brings a package; nobody else's events have such ids."""
    return event_id.startswith(_PREFIX)


def upload_root(source_id: str) -> str:
    """What the catalog has as the root of a source of this kind: the same on every machine."""
    return f"{UPLOAD_KIND}:{source_id}"


def safe_file_name(text: str) -> str:
    """A name for a file or folder that stands for any text, on any file system.

    The hash tells apart what a file system without case would take for one.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()
    plain = quote(text, safe=" ")
    return f"{plain}~{digest[:16]}" if len(plain) <= _LONGEST_NAME else f"~{digest}"


def fsync_folder(folder: Path) -> None:
    """Have what was renamed in a folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _transient_disk_errors(what: str) -> Iterator[None]:
    """A full or lost disk passes; whoever sent something sends it again."""
    try:
        yield
    except OSError as error:
        raise TransientError(f"{what}: {error.strerror}") from error


class UploadStore:
    """Writes and reads the folder of uploads; any number of processes may have one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._packages = folder / "packages"
        self._sources = folder / "sources"
        self._staging = folder / "staging"

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A folder for what is being received, gone afterwards.

        Raises TransientError when it cannot be made.
        """
        with _transient_disk_errors(f"{self._staging} cannot be written"):
            for folder in (self._packages, self._sources, self._staging):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            place = Path(tempfile.mkdtemp(dir=self._staging))
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def submit_package(self, package_id: str, source_id: str, skills: Path) -> None:
        """Move a staged folder of packages, each synced, to where its event will find it.

        On disk for good when this returns. Raises TransientError, also while another with this id
        may be on its way; what a kill left of one gives way.
        """
        place = self._packages / package_id
        with _transient_disk_errors(f"{self._packages} cannot be written"):
            self._source(source_id).mkdir(mode=0o700, exist_ok=True)
            fsync_folder(self._sources)
            fsync_folder(skills)
            if place.exists():
                if not _is_older(place, time.time() - _IN_TRANSIT_SECONDS):
                    raise TransientError("this upload is being taken in; send it again in a while")
                place.rename(skills.with_name("left"))
            skills.rename(place)
            fsync_folder(self._packages)

    def install_package(self, source_id: str, package_id: str) -> None:
        """Put the skills of a package in place, each at once; done again, it goes on.

        Raises TransientError where the folder is not the one that the package was handed in to,
        PermanentError where the package is gone.
        """
        package, place = self._packages / package_id, self._existing_folder(source_id)
        try:
            names = sorted(one.name for one in package.iterdir())
        except FileNotFoundError:
            raise PermanentError(f"{package} is gone; upload the skills again") from None
        except OSError as error:
            raise TransientError(f"{package} cannot be read: {error.strerror}") from error
        with _transient_disk_errors(f"{place} cannot be written"):
            for name in names:
                (package / name).replace(place / name)
            fsync_folder(place)

    def create_source(self, source_id: str) -> None:
        """Have a source's folder there."""
        with _transient_disk_errors(f"{self._sources} cannot be written"):
            self._source(source_id).mkdir(mode=0o700, parents=True, exist_ok=True)

    def install_skill(self, source_id: str, path: str, package: Path) -> None:
        """Put one skill's package in place, synced, from a staged file."""
        with _transient_disk_errors(f"{self._sources} cannot be written"):
            package.replace(self._file(source_id, path))
            fsync_folder(self._source(source_id))

    def remove(self, source_id: str, paths: Iterable[str]) -> None:
        """Delete skills; those that are gone already are well."""
        with _transient_disk_errors(f"{self._sources} cannot be written"):
            for path in paths:
                self._file(source_id, path).unlink(missing_ok=True)

    def paths(self, source_id: str) -> list[str]:
        """Paths of a source's skills, sorted. Raises TransientError where it cannot be seen."""
        place = self._existing_folder(source_id)
        with _transient_disk_errors(f"{place} cannot be read"):
            files = [one for one in place.iterdir() if one.name.endswith(_SUFFIX)]
        return sorted(filter(None, map(self._path, files)))

    def _path(self, file: Path) -> str:
        """The path that a file's name stands for; a long one is in the package."""
        plain = file.name.removesuffix(_SUFFIX).rpartition("~")[0]
        if plain:
            return unquote(plain)
        try:
            return read_manifest(file).skill_id.partition(":")[2]
        except FileNotFoundError:
            return ""

    def has(self, source_id: str, path: str) -> bool:
        """Whether there is a skill of this path."""
        return self._file(source_id, path).is_file()

    def signature(self, source_id: str, path: str) -> tuple[str, int] | None:
        """Hash of all that a skill consists of and bytes of its SKILL.md, None without it."""
        try:
            manifest = read_manifest(self._file(source_id, path))
        except FileNotFoundError:
            return None
        return manifest.content_hash, manifest.skill_file.size

    def read(self, source_id: str, path: str, most: int) -> SkillFolder:
        """One skill; most: bytes of its SKILL.md.

        Raises SkillGoneError, PermanentError for a damaged package, TransientError where the
        source cannot be seen.
        """
        self._existing_folder(source_id)
        try:
            return read_package(self._file(source_id, path), most)
        except FileNotFoundError:
            raise SkillGoneError(f"{source_id}:{path} is gone") from None

    def delete_expired(self, find_ended: Callable[[Sequence[str]], Mapping[str, bool]]) -> int:
        """Delete what nobody needs any more; how many.

        ended: for ids of packages, whether their events have ended for good; absent for an event
        that nobody knows. Such a package, and what lies in staging, goes when it is old enough
        for its process to have died.
        """
        old = time.time() - _ABANDONED_SECONDS
        names = [one.name for one in _listed(self._packages)]
        known = find_ended(names) if names else {}
        due = [
            one
            for one in _listed(self._packages)
            if known.get(one.name, _is_older(one, old)) and one.name in names
        ]
        due += [one for one in _listed(self._staging) if _is_older(one, old)]
        for one in due:
            shutil.rmtree(one, ignore_errors=True)
        return len(due)

    def _existing_folder(self, source_id: str) -> Path:
        place = self._source(source_id)
        if not place.is_dir():
            raise TransientError(f"source {source_id}: no {place} on this machine; {_SHARE}")
        return place

    def _source(self, source_id: str) -> Path:
        return self._sources / safe_file_name(source_id)

    def _file(self, source_id: str, path: str) -> Path:
        return self._source(source_id) / package_file_name(path)


def package_file_name(path: str) -> str:
    """The name of a skill's package."""
    return safe_file_name(path) + _SUFFIX


def _listed(folder: Path) -> list[Path]:
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
    """The store that the settings name."""
    return UploadStore(settings.uploads.folder or settings.home / "uploads")


class UploadReader:
    """The skills of an upload source, as `tasks.sources.readers` wants them read.

    Which skills there are is looked up once; what each holds, at each call.
    """

    def __init__(self, source_id: str, settings: Settings) -> None:
        self._source_id = source_id
        self._store = open_upload_store(settings)
        self._most = settings.limits.skill_bytes
        self._paths: list[str] | None = None

    def scan(self, start: str) -> SourceScan:
        """Every skill at or below `start`; signatures are hashes of their content."""
        if self._paths is None:
            self._paths = self._store.paths(self._source_id)
        found = SourceScan()
        for path in self._paths:
            if start and path != start and not path.startswith(start + "/"):
                continue
            try:
                signed = self._store.signature(self._source_id, path)
            except PermanentError as error:
                found.refused[path] = str(error)
                continue
            if signed is not None:
                found.signatures[path], found.sizes[path] = signed
        return found

    def read(self, path: str) -> SkillFolder:
        """One skill; errors as `UploadStore.read` raises them."""
        return self._store.read(self._source_id, path, self._most)

    def find_owning_skill(self, path: str) -> str | None:
        """The nearest folder at or above `path` that is a skill, None without one."""
        parts = path.split("/") if path else []
        for end in range(len(parts), 0, -1):
            name = "/".join(parts[:end])
            if self._store.has(self._source_id, name):
                return name
        return None

    def check_relative_path(self, path: str) -> None:
        """Nothing to check: no path of an upload becomes one of this machine."""
