"""Functions that unpack an upload into packages and create the event that installs them."""

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
from graph.records import Source
from skills.events import Event, SourceChanged, describe_validation_error, new_event
from skills.parsing.sibling_files import VIRTUAL_ENVIRONMENT_FILE
from tasks.sources.protocol import SKILL_FILE
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
from tasks.sources.uploads.package import (
    IGNORED_NAMES,
    UploadContents,
    collect_skills,
    write_package,
)
from tasks.sources.uploads.store import (
    UPLOAD_KIND,
    UploadStore,
    new_package_id,
    package_file_name,
    upload_root,
)
from tasks.sources.uploads.tar_archive import iter_tar_members
from tasks.sources.uploads.zip_archive import iter_zip_members

ORIGIN = "skillbus/upload"


@dataclass(frozen=True, slots=True)
class StagedUpload:
    """An upload whose packages are on disk, with the event that installs them.

    skill_ids: sorted. left_out: number of files that belong to no skill.
    """

    event: Event
    skill_ids: tuple[str, ...]
    left_out: int


def check_source_id(source_id: str) -> None:
    """Raise UsageError for an invalid source id."""
    try:
        SourceChanged(source_id=source_id, root=upload_root(source_id))
    except ValidationError as error:
        raise UsageError(describe_validation_error(error)) from None


def check_source_kind(sources: Iterable[Source], source_id: str) -> None:
    """Raise UsageError if a source of another kind has the id."""
    for source in sources:
        if source.source_id == source_id and source.kind != UPLOAD_KIND:
            raise UsageError(
                f"source {source_id} is a {source.kind}: change it there or choose another id"
            )


def stage_upload(
    settings: Settings,
    store: UploadStore,
    place: Path,
    body: Path,
    source_id: str,
    path: str = "",
    expected_kinds: tuple[str, ...] = (),
    package_id: str = "",
) -> StagedUpload:
    """Unpack an upload within the limits of `[uploads]`, and submit its packages to the store.

    place: a folder from `store.staging`. body: the received file, or a folder. path: folder of the
    source that the upload belongs to, "" for its root. expected_kinds: kinds of archive that the
    sender declared, empty for any. package_id: from `new_package_id`, "" for a new one. Raises
    ArchiveError, TransientError.
    """
    package_id = package_id or new_package_id()
    check_source_id(source_id)
    if path:
        path = clean_path(path, settings.uploads.depth)
    if body.is_dir():
        # A skill without a path in the source gets the name of its folder.
        members = iter_folder_members(body, UploadMeter(settings.uploads, _UNLIMITED_BYTES))
        path = path or body.resolve().name if (body / SKILL_FILE).exists() else path
        return _submit(settings, store, place, source_id, path, members, package_id)
    with body.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > settings.uploads.megabytes * MEGABYTE:
            raise upload_too_large(settings)
        kind = detect_archive_kind(file.read(HEADER_BYTES))
        file.seek(0)
        if expected_kinds and kind not in expected_kinds:
            raise ArchiveError(f"declared as {' or '.join(expected_kinds)}, but it is {kind}")
        meter = UploadMeter(settings.uploads, size)
        if kind == "zip":
            members = iter_zip_members(file, settings.uploads, meter)
        elif kind == "text":
            members = iter([ArchiveMember(SKILL_FILE, iter_chunks(file))])
        else:
            members = iter_tar_members(file, kind.removeprefix("tar").removeprefix("."), meter)
        return _submit(settings, store, place, source_id, path, members, package_id)


_UNLIMITED_BYTES = 1 << 60


def upload_too_large(settings: Settings) -> UploadTooLargeError:
    """Return the error for an upload of more than `uploads.megabytes`."""
    return UploadTooLargeError(f"more than {settings.uploads.megabytes:g} MB (uploads.megabytes)")


def _submit(
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
    """Write one package per skill into the new folder `skills`, each synced to disk.

    place: folder for temporary files. Raises ArchiveError, TransientError.
    """
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
        raise TransientError(
            f"{place} cannot be written: {error.strerror}",
            public_message="the folder of uploads cannot be written",
        ) from error
    return contents


def iter_text_members(files: Mapping[str, str]) -> Iterator[ArchiveMember]:
    """Yield the members of a skill given as path -> text."""
    for name, text in files.items():
        yield ArchiveMember(name, iter([text.encode()]))


def iter_folder_members(folder: Path, meter: UploadMeter) -> Iterator[ArchiveMember]:
    """Yield the members of a folder; refuses links and special files, even if they replace a file
    during the read.

    Folders of tools are skipped; of a virtual environment, only its configuration is a member.
    """
    top = folder.resolve()
    for current, folders, files, place in os.fwalk(top, onerror=_raise_unreadable):
        is_environment = VIRTUAL_ENVIRONMENT_FILE in files and current != str(top)
        folders[:] = [] if is_environment else sorted(set(folders) - IGNORED_NAMES)
        for name in [VIRTUAL_ENVIRONMENT_FILE] if is_environment else sorted(folders + files):
            relative = Path(current, name).relative_to(top).as_posix()
            meter.count_member(relative)
            stream = _open_plain_file(name, place, relative)
            if stream is None:
                continue
            with stream:
                yield ArchiveMember(relative, _count_chunks(iter_chunks(stream), relative, meter))


def _open_plain_file(name: str, folder: int, relative: str) -> BinaryIO | None:
    """Open a file without following links; return None for a folder."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise UsageError(f"{escape_name(relative)} cannot be read: {error.strerror}") from error
    else:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            return None
    raise ArchiveError(f"{escape_name(relative)}: a link or special file; send only regular files")


def _count_chunks(chunks: Iterable[bytes], name: str, meter: UploadMeter) -> Iterator[bytes]:
    for chunk in chunks:
        meter.count_bytes(len(chunk), name)
        yield chunk


def _raise_unreadable(error: OSError) -> None:
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error
