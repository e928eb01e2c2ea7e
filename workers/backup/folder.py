"""The folder of a backup: its files, and the manifest that lists them and is written last.

A folder without a manifest is either no backup or an interrupted one.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from config.errors import UsageError, transient_disk_errors
from search.models.identity import EncoderIdentity
from workers.library.user_files import read_bytes, write_atomically

FORMAT = 1
"""Format of backups; incremented when this version cannot read the backups of earlier ones."""

INDEX, CATALOG, KEYS, UPLOADS = "index", "catalog.jsonl.gz", "redis.jsonl.gz", "uploads"
HISTORY = "history.db"
_MANIFEST = "manifest.json"

Kind = Literal["home", "servers"]


class Manifest(BaseModel):
    """Description of a backup.

    kind: whether the library is in a home or on servers. skillbus: version that made the backup.
    created: in UTC, ISO 8601. model, dimension: of the encoder of the vectors. skills: number of
    published skills. missing: number of skills whose revision was superseded and deleted during the
    copy; they are ingested again after the restoration. files: SHA-256 by path.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int
    kind: Kind
    skillbus: str
    created: str
    model: str
    dimension: int
    skills: int
    missing: int
    files: dict[str, str]


def create_folder(folder: Path) -> None:
    """Create the folder of a new backup; raises UsageError unless it is missing or empty.

    Only its owner may read it, as it holds skills and the tasks of queries.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        used = next(folder.iterdir(), None) is not None
    except OSError as error:
        raise UsageError(f"{folder} cannot be used for a backup: {error.strerror}") from error
    if used:
        raise UsageError(f"{folder} is not empty: name a new folder for the backup")


def require_no_uploads(folder: Path) -> None:
    """Raise UsageError if the folder of uploads to restore to has a file."""
    if any(path.is_file() for path in folder.rglob("*")):
        raise UsageError(f"{folder} is not empty: restore with an empty uploads.folder")


@contextmanager
def private_files() -> Iterator[None]:
    """Let only their owner read the files that this process writes in the `with` block.

    They hold tasks and skills, and the folder of a backup, or a home, may have been created by
    others, with other permissions.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def write_manifest(
    folder: Path, kind: Kind, identity: EncoderIdentity, skills: int, missing: int
) -> Manifest:
    """Complete a backup: write the manifest with its files."""
    manifest = Manifest(
        format=FORMAT,
        kind=kind,
        skillbus=version("skillbus"),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=identity.model,
        dimension=identity.dimension,
        skills=skills,
        missing=missing,
        files={name: _hash(folder / name) for name in _list_files(folder)},
    )
    write_atomically(folder / _MANIFEST, manifest.model_dump_json(indent=2).encode(), 0o600)
    return manifest


def read_manifest(folder: Path, kind: Kind) -> Manifest:
    """Check a backup: its format, its kind and every file.

    Raises UsageError for a folder that is no backup, an incomplete or damaged one, one of another
    kind or of a newer version.
    """
    if not _is_file(folder / _MANIFEST):
        raise UsageError(
            f"{folder} holds no complete backup: it has no {_MANIFEST}, which `skillbus backup` "
            "writes last"
        )
    try:
        text = json.loads(read_bytes(folder / _MANIFEST))
        if isinstance(text, dict) and text.get("format") != FORMAT:
            raise UsageError(
                f"the backup in {folder} has format {text.get('format')}, this version of "
                f"skillbus reads {FORMAT}: restore it with the version that made it"
            )
        manifest = Manifest.model_validate(text)
    except ValueError as error:
        raise UsageError(f"the backup in {folder} is damaged: {_MANIFEST}: {error}") from None
    if manifest.kind != kind:
        raise UsageError(
            f"the backup in {folder} is of a library {_WHERE[manifest.kind]}, and the settings "
            f"name one {_WHERE[kind]}: restore it there, or sync the sources"
        )
    _check_files(folder, manifest)
    return manifest


_WHERE = {"home": "in a home", "servers": "on servers"}


def _check_files(folder: Path, manifest: Manifest) -> None:
    for name, expected in manifest.files.items():
        path = folder / name
        if not _is_file(path):
            raise UsageError(f"the backup in {folder} is incomplete: {name} is missing")
        if _hash(path) != expected:
            raise UsageError(f"the backup in {folder} is damaged: {name} has changed")


def _is_file(path: Path) -> bool:
    """Return whether this is a file; raises UsageError without the permission to look."""
    try:
        return path.is_file()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _list_files(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def copy_folder(source: Path, target: Path) -> None:
    """Copy the files of a folder; the copies get the permissions of new files, since a backup may
    be read-only."""
    for name in _list_files(source):
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, place)


def _hash(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """Write rows as compressed JSON lines; bytes in them as base64.

    Raises TransientError if the file cannot be written, as on a full disk. Errors of `rows`, such
    as a lost connection, are not translated.
    """
    what = f"{path} cannot be written"
    with transient_disk_errors(what):
        file = gzip.open(path, "wt", encoding="utf-8", compresslevel=1)  # noqa: SIM115 - closed below
    try:
        for row in rows:
            line = json.dumps(row, ensure_ascii=False, default=_encode_bytes) + "\n"
            with transient_disk_errors(what):
                file.write(line)
    finally:
        with transient_disk_errors(what):
            file.close()


def read_lines(path: Path) -> Iterator[Any]:
    """Yield the rows that `write_lines` wrote."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line, object_hook=_decode_bytes)


def _encode_bytes(value: Any) -> dict[str, str]:
    if not isinstance(value, bytes | bytearray):
        raise TypeError(f"{type(value).__name__} cannot be written to a backup")
    return {"base64": base64.b64encode(value).decode()}


def _decode_bytes(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["base64"]) if value.keys() == {"base64"} else value
