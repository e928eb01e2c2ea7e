"""What a commit holds, read from the objects of a mirror; nothing is ever checked out."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from config.errors import PermanentError, TransientError
from tasks.sources.directory import SKIPPED_FOLDERS
from tasks.sources.git.process import command, environment

_LINK = "120000"
_SUBMODULE = "160000"
_CHUNK = 1 << 20
_LONGEST_PATH = 4_096
_USUAL_PATH = 1_000
_LONGEST_LINE = _LONGEST_PATH + 200
"""What is told of a file, and its path."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A file of a commit: its object, and its bytes."""

    object_id: str
    size: int


@dataclass(slots=True)
class CommitTree:
    """Files by folder and name, and the paths of links and submodules, which are not read.

    Names are as `os.fsdecode` gives them, paths are relative to the folder that was asked for.
    """

    folders: dict[str, dict[str, Blob]]
    subfolders: dict[str, set[str]]
    links: list[str]
    submodules: list[str]


def list_tree(mirror: Path, commit: str, path: str, most: int) -> CommitTree:
    """All files of the folder `path` of a commit.

    Raises PermanentError where the commit has no such folder or it holds more than `most` files and
    folders: a few bytes of objects can stand for any number of them, and for paths of any length.
    """
    tree = CommitTree(defaultdict(dict), defaultdict(set), [], [])
    arguments = ("ls-tree", "-r", "-z", "-l", f"{commit}:{path}")
    with _started(mirror, arguments) as process:
        room = most
        for line in _records(_out(process)):
            room -= 1 + len(line) // _USUAL_PATH + _add_file(tree, line)
            if room < 0:
                raise PermanentError(
                    f"more than {most} files and folders (git.files); name a folder (--path)"
                )
        if process.wait():
            raise PermanentError(
                f"commit {commit[:12]} has no folder {path or '/'}: where it has moved, name the "
                "new one (--path); the skills stay as they are"
            )
    return tree


def _add_file(tree: CommitTree, line: bytes) -> int:
    """Note a file; returns how many folders came with it."""
    about, _, raw = line.partition(b"\t")
    mode, _, object_id, size = about.decode("ascii").split()
    path = os.fsdecode(raw)
    folder, _, name = path.rpartition("/")
    parts = path.split("/")
    if any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        return 0  # no file system could hold it
    if SKIPPED_FOLDERS.intersection(parts[:-1]):
        return 0
    if mode == _SUBMODULE:
        tree.submodules.append(path)
    elif mode == _LINK:
        tree.links.append(path)
    else:
        tree.folders[folder][name] = Blob(object_id, int(size))
    new = 0
    while folder:
        parent = folder.rpartition("/")[0]
        if folder in tree.subfolders[parent]:
            break
        tree.subfolders[parent].add(folder)
        folder, new = parent, new + 1
    return new


class ObjectReader:
    """Reads objects of a mirror through one git process; close it after use.

    lost: called when an object is not there or cannot be read.
    """

    def __init__(self, mirror: Path, on_missing: Callable[[], None] = lambda: None) -> None:
        self._on_missing = on_missing
        self._process = _start(mirror, ("cat-file", "--batch"), subprocess.PIPE)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()

    def read(self, blob: Blob) -> bytes:
        """The bytes of a file; raises TransientError when the mirror has lost it."""
        return b"".join(self._read_chunks(blob))

    def sha256(self, blob: Blob) -> str:
        """The SHA-256 of a file's bytes, in hexadecimal."""
        digest = hashlib.sha256()
        for part in self._read_chunks(blob):
            digest.update(part)
        return digest.hexdigest()

    def _read_chunks(self, blob: Blob) -> Iterator[bytes]:
        stdin, answers = self._process.stdin, _out(self._process)
        try:
            if stdin is not None:
                stdin.write(f"{blob.object_id}\n".encode("ascii"))
                stdin.flush()
        except OSError as error:
            raise self._failed(f"git cat-file ended: {error.strerror}") from None
        header = answers.readline().split()
        if len(header) != 3 or header[1] != b"blob" or int(header[2]) != blob.size:
            raise self._failed(f"the mirror has lost the object {blob.object_id}")
        left = blob.size
        while left:
            part = answers.read(min(left, _CHUNK))
            if not part:
                raise self._failed("git cat-file ended too early")
            left -= len(part)
            yield part
        answers.read(1)

    def _failed(self, what: str) -> TransientError:
        self._on_missing()
        return TransientError(f"{what}; it is fetched anew")


def _start(mirror: Path, arguments: Sequence[str], stdin: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - no shell, and what comes from outside is checked
        command(mirror, arguments),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )


@contextmanager
def _started(mirror: Path, arguments: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A git process whose output is read, ended at the end of the block."""
    process = _start(mirror, arguments, subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        _out(process).close()
        process.wait()


def _out(process: subprocess.Popen[bytes]) -> BufferedReader:
    if not isinstance(process.stdout, BufferedReader):
        raise AssertionError("started with a pipe")
    return process.stdout


def _records(stream: BufferedReader) -> Iterator[bytes]:
    """Parts of a stream that end with NUL."""
    rest = b""
    while chunk := stream.read1(_CHUNK):
        *whole, rest = (rest + chunk).split(b"\0")
        if max(map(len, (*whole, rest))) > _LONGEST_LINE:
            raise PermanentError(f"a path has more than {_LONGEST_PATH} bytes; shorten it")
        yield from whole
