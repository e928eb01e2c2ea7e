"""From an upload that was received to packages and the event that brings them."""

from __future__ import annotations

import errno
import os
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from config.errors import TransientError, UsageError
from config.settings import Settings
from graph.protocol import Source
from skills.events import Event, SourceChanged, describe_validation_error, new_event
from tasks.sources.directory import SKILL_FILE
from tasks.sources.uploads.archive import HEADER_BYTES, ArchiveMember, detect_archive_kind
from tasks.sources.uploads.limits import (
    MEGABYTE,
    ArchiveError,
    UploadMeter,
    UploadTooLargeError,
    escape_name,
    iter_chunks,
)
from tasks.sources.uploads.member_names import clean_path
from tasks.sources.uploads.package import UploadContents, collect_skills, write_package
from tasks.sources.uploads.store import (
    UPLOAD_KIND,
    UploadStore,
    new_package_id,
    package_file_name,
    upload_root,
)
from tasks.sources.uploads.tars import iter_tar_members
from tasks.sources.uploads.zips import iter_zip_members

ORIGIN = "skillbus/upload"


@dataclass(frozen=True, slots=True)
class StagedUpload:
    """An upload whose packages are on disk, and the event that is to bring them.

    skill_ids: sorted. left_out: files that belong to no skill.
    """

    event: Event
    skill_ids: tuple[str, ...]
    left_out: int


def check_source_id(source_id: str) -> None:
    """Raise UsageError for what cannot be a source's id."""
    try:
        SourceChanged(source_id=source_id, root=upload_root(source_id))
    except ValidationError as error:
        raise UsageError(
            f"source {escape_name(source_id)}: {describe_validation_error(error)}"
        ) from None


def check_source_kind(sources: Iterable[Source], source_id: str) -> None:
    """Raise UsageError when a source of another kind has the id."""
    for source in sources:
        if source.source_id == source_id and source.kind != UPLOAD_KIND:
            raise UsageError(
                f"source {source_id} is a {source.kind}: change it there, or choose another id"
            )


def stage_upload(
    settings: Settings,
    store: UploadStore,
    place: Path,
    body: Path,
    source_id: str,
    path: str = "",
    wanted: tuple[str, ...] = (),
    package_id: str = "",
) -> StagedUpload:
    """Unpack an upload within the bounds of `[uploads]`, and hand its packages in.

    place: a folder from `store.staging`. body: the file as it was received, or a folder. path:
    where in the source it belongs, "" for as it is named. wanted: kinds (`kind_of`) that it was
    said to be, empty for any. package_id: from `new_package_id`, "" for a new one. Raises
    ArchiveError, TransientError.
    """
    package_id = package_id or new_package_id()
    check_source_id(source_id)
    if path:
        path = clean_path(path, settings.uploads.depth)
    if body.is_dir():
        # A folder without a name of its own in the source is there under its own.
        members = iter_folder_members(body, UploadMeter(settings.uploads, _WITHOUT_RATIO))
        path = path or body.resolve().name if (body / SKILL_FILE).exists() else path
        return _hand_in(settings, store, place, source_id, path, members, package_id)
    with body.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > settings.uploads.megabytes * MEGABYTE:
            raise upload_too_large(settings)
        kind = detect_archive_kind(file.read(HEADER_BYTES))
        file.seek(0)
        if wanted and kind not in wanted:
            raise ArchiveError(f"said to be {' or '.join(wanted)}, but it is {kind}")
        meter = UploadMeter(settings.uploads, size)
        if kind == "zip":
            members = iter_zip_members(file, settings.uploads, meter)
        elif kind == "text":
            members = iter([ArchiveMember(SKILL_FILE, iter_chunks(file))])
        else:
            members = iter_tar_members(file, kind.removeprefix("tar").removeprefix("."), meter)
        return _hand_in(settings, store, place, source_id, path, members, package_id)


_WITHOUT_RATIO = 1 << 60


def upload_too_large(settings: Settings) -> UploadTooLargeError:
    """The error of an upload with more bytes than may be sent."""
    return UploadTooLargeError(f"more than {settings.uploads.megabytes:g} MB (uploads.megabytes)")


def _hand_in(
    settings: Settings,
    store: UploadStore,
    place: Path,
    source_id: str,
    path: str,
    members: Iterable[ArchiveMember],
    package_id: str,
) -> StagedUpload:
    skills = place / "skills"
    contents = write_packages(settings, place, skills, source_id, path, members)
    content = SourceChanged(
        source_id=source_id, root=upload_root(source_id), paths=tuple(sorted(contents.skills))
    )
    event = new_event(content, ORIGIN).model_copy(update={"id": package_id})
    store.submit_package(event.id, source_id, skills)
    ids = tuple(f"{source_id}:{one}" for one in content.paths)
    return StagedUpload(event, ids, contents.left_out)


def write_packages(
    settings: Settings,
    place: Path,
    skills: Path,
    source_id: str,
    path: str,
    members: Iterable[ArchiveMember],
) -> UploadContents:
    """Write one package a skill into the new folder `skills`, each synced to disk."""
    try:
        with (place / "gathered").open("w+b") as file:
            contents = collect_skills(members, file, settings, path)
            skills.mkdir(mode=0o700)
            with zipfile.ZipFile(file) as gathered:
                for skill, files in contents.skills.items():
                    with (skills / package_file_name(skill)).open("xb") as package:
                        write_package(package, f"{source_id}:{skill}", files, gathered)
                        package.flush()
                        os.fsync(package.fileno())
    except OSError as error:
        raise TransientError(f"{place} cannot be written: {error.strerror}") from error
    return contents


def iter_text_members(files: Mapping[str, str]) -> Iterator[ArchiveMember]:
    """Members of a skill that came as path -> text."""
    for name, text in files.items():
        yield ArchiveMember(name, iter([text.encode()]))


def iter_folder_members(folder: Path, meter: UploadMeter) -> Iterator[ArchiveMember]:
    """Members of a folder; links and special files in it are refused, also those that take a file's
    place meanwhile."""
    top = folder.resolve()
    for current, folders, files, place in os.fwalk(top, onerror=_unreadable):
        folders.sort()
        for name in sorted(folders + files):
            relative = Path(current, name).relative_to(top).as_posix()
            meter.count_member(relative)
            if stat.S_ISDIR(os.lstat(name, dir_fd=place).st_mode):
                continue
            with _plain_file(name, place, relative) as stream:
                yield ArchiveMember(relative, _counted(iter_chunks(stream), relative, meter))


def _plain_file(name: str, folder: int, relative: str) -> BinaryIO:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise UsageError(f"{escape_name(relative)} cannot be read: {error.strerror}") from error
    else:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
    raise ArchiveError(f"{escape_name(relative)}: a link or special; only plain files")


def _counted(chunks: Iterable[bytes], name: str, meter: UploadMeter) -> Iterator[bytes]:
    for chunk in chunks:
        meter.count_bytes(len(chunk), name)
        yield chunk


def _unreadable(error: OSError) -> None:
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error
