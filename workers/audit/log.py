"""The audit log of a home: one JSON object per line, append-only, in files of bounded size.

A record is on disk when `append` returns. Processes take turns with a lock on a file next to the
log, so that lines are whole and each file is rotated once.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal

import structlog

from config.errors import MisconfiguredError, PermanentError
from config.settings import Settings
from search.fsync import fsync_folder

log = structlog.get_logger()

Outcome = Literal["done", "refused", "failed"]

_MAX_OBJECT_CHARACTERS = 300
_LOGIN = re.compile(r"://[^/\s]*@")
# It matches every address: one that it does not match would be searched from each `://` in it.
_PARAMETERS = re.compile(r"(://[^?#\s]*)(?:[?#]\S*)?")


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One changing request or command.

    time: RFC 3339, UTC. principal: name of the token, `oidc:` and the subject, `local:` and the
    user, or `webhook:` and the host. object: ids or addresses of the changed objects. request_id:
    of an HTTP request, as in its log lines.
    """

    time: str
    principal: str
    action: str
    object: str
    outcome: str
    request_id: str = ""


def get_local_principal() -> str:
    """Return the principal of the user that runs this process."""
    try:
        return f"local:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"local:{os.getuid()}"


def clean_object(text: str) -> str:
    """Return the name of an object, shortened and without logins and parameters in URLs."""
    text = _PARAMETERS.sub(r"\1", _LOGIN.sub("://", text))
    text = text.encode("utf-8", "replace").decode()
    if len(text) > _MAX_OBJECT_CHARACTERS:
        return text[: _MAX_OBJECT_CHARACTERS - 1] + "…"
    return text


class AuditLog:
    """The audit log at the path of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.audit
        self._home = settings.home
        self.path = settings.audit.file or settings.home / "audit" / "audit.jsonl"

    def check(self) -> None:
        """Raise MisconfiguredError if a record could not be written; called before a change."""
        if not self._settings.enabled:
            return
        if not self._can_write():
            raise MisconfiguredError(
                f"the audit log {self.path} cannot be written: nothing was changed; make it "
                "writable, or set audit.file"
            )

    def _can_write(self) -> bool:
        try:
            folder = next(one for one in self.path.parents if one.exists())
            files = [one for one in (self.path, self._get_file(".lock")) if one.exists()]
            return (
                folder.is_dir()
                and all(one.is_file() for one in files)
                and all(os.access(one, os.W_OK) for one in (folder, *files))
            )
        except OSError:  # a folder above it may not be searched
            return False

    def append(
        self,
        principal: str,
        action: str,
        name: str,
        outcome: Outcome,
        request_id: str = "",
        *,
        is_locked: bool = False,
    ) -> None:
        """Write a record; raises PermanentError if that fails, as on a full disk.

        name: of the object. is_locked: whether the caller holds the lock. A refused attempt creates
        no home for its record.
        """
        if not self._settings.enabled:
            return
        if outcome == "refused" and self._settings.file is None and not self._home.exists():
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        record = AuditRecord(now, principal, action, clean_object(name), outcome, request_id)
        line = json.dumps(asdict(record), ensure_ascii=False).encode() + b"\n"
        try:
            with nullcontext() if is_locked else self.lock():
                self._rotate(len(line))
                self._write(line)
        except OSError as error:
            log.error("not recorded in the audit log", action=action, reason=str(error))
            done = f"{action}: {outcome}, but not recorded: the audit log"
            raise PermanentError(
                f"{done} {self.path} could not be written: {error.strerror}",
                public_message=f"{done} could not be written",
            ) from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock against other processes and threads; creates the folder of the log."""
        if self._settings.file is None:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._get_file(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _get_file(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def _rotate(self, needed: int) -> None:
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return
        if size == 0 or size + needed <= self._settings.megabytes * 1_000_000:
            return
        last = self._settings.files - 1
        if last == 0:
            self.path.unlink()
            return
        for number in range(last - 1, 0, -1):
            older = self._get_file(f".{number}")
            if older.exists():
                older.replace(self._get_file(f".{number + 1}"))
        self.path.replace(self._get_file(".1"))

    def _write(self, line: bytes) -> None:
        is_new = not self.path.exists()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = os.open(self.path, flags, 0o600)
        try:
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":
                line = b"\n" + line  # a crash or a full disk has cut the last record off
            view = memoryview(line)
            while view:
                view = view[os.write(file, view) :]
            os.fsync(file)
        finally:
            os.close(file)
        if is_new:
            fsync_folder(self.path.parent)

    def read(self) -> Iterator[AuditRecord]:
        """Yield the records, oldest first, without lines that are cut off or are not records."""
        with ExitStack() as stack:
            for file in reversed(self._open_files(stack)):
                for line in file:
                    record = parse_record(line)
                    if record is not None:
                        yield record

    def _open_files(self, stack: ExitStack) -> list[BinaryIO]:
        """Open the files, newest first: one that is renamed meanwhile is found under its next name.

        A file that was opened under its former name too is returned once.
        """
        found: dict[tuple[int, int], BinaryIO] = {}
        files = (self._get_file(f".{number}") for number in range(1, self._settings.files + 1))
        for path in (self.path, *files):
            try:
                file = stack.enter_context(path.open("rb"))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise MisconfiguredError(f"{path}: {error.strerror}") from None
            status = os.fstat(file.fileno())
            found.setdefault((status.st_dev, status.st_ino), file)
        return list(found.values())


def parse_record(line: bytes) -> AuditRecord | None:
    """Return a line as a record, None if it is not a record."""
    try:
        data = json.loads(line)
        record = AuditRecord(**data)
    except (ValueError, TypeError, RecursionError):
        return None
    return record if all(isinstance(one, str) for one in asdict(record).values()) else None
