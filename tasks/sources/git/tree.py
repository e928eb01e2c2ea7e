"""File tree of a commit in a mirror; nothing is checked out."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from config.errors import PermanentError
from tasks.sources.folder_rules import SKIPPED_FOLDERS
from tasks.sources.git.process import output_of, started_git

_LINK = "120000"
_SUBMODULE = "160000"
_FOLDER = "040000"
_CHUNK = 1 << 20
_MAX_PATH_BYTES = 4_096
_PATH_BYTES_PER_FILE = 1_000
"""Bytes of a path up to which it counts as one file; a longer path counts as several."""
_MAX_LINE_BYTES = _MAX_PATH_BYTES + 200
"""Maximum bytes of a path with the mode, type, id and size in front of it."""


class UnreadableFolderError(PermanentError):
    """The commit has no such folder, or the mirror has lost objects of it."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A file of a commit. object_id: of its git object. size: in bytes."""

    object_id: str
    size: int


@dataclass(slots=True)
class CommitTree:
    """Files of a commit, by folder and name.

    subfolders: folder -> folders in it. links, submodules: their paths; they are not read. Names
    are from `os.fsdecode`; paths are relative to the listed folder.
    """

    folders: dict[str, dict[str, Blob]]
    subfolders: dict[str, set[str]]
    links: list[str]
    submodules: list[str]


def list_tree(mirror: Path, commit: str, path: str, max_files: int) -> CommitTree:
    """Return all files of the folder `path` of a commit.

    Raises UnreadableFolderError if git cannot list it, PermanentError if it holds more than
    `max_files` files and folders, since a few bytes of objects can describe any number of them with
    paths of any length.
    """
    tree = CommitTree(defaultdict(dict), defaultdict(set), [], [])
    # With -t folders are listed too: without it, git would walk through any number of folders
    # without files before its next line.
    arguments = ("ls-tree", "-r", "-t", "-z", "-l", f"{commit}:{path}")
    with started_git(mirror, arguments) as process:
        room = max_files
        for line in _split_records(output_of(process)):
            room -= 1 + len(line) // _PATH_BYTES_PER_FILE
            _add_entry(tree, line)
            if room < 0:
                raise PermanentError(
                    f"more than {max_files} files and folders (git.files); name a folder (--path)"
                )
        if process.wait():
            raise UnreadableFolderError(
                f"commit {commit[:12]} has no folder {path or '/'}: if it has moved, name the "
                "new one (--path); the skills stay as they are"
            )
    return tree


def _add_entry(tree: CommitTree, line: bytes) -> None:
    """Add a line of `git ls-tree` to the tree."""
    metadata, _, raw = line.partition(b"\t")
    mode, _, object_id, size = metadata.decode("ascii").split()
    if mode == _FOLDER:  # added with the first file in it
        return
    path = os.fsdecode(raw)
    folder, _, name = path.rpartition("/")
    parts = path.split("/")
    if any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        return  # no such file can be checked out
    if SKIPPED_FOLDERS.intersection(parts[:-1]):
        return
    if mode == _SUBMODULE:
        tree.submodules.append(path)
    elif mode == _LINK:
        tree.links.append(path)
    elif not size.isdigit():
        raise UnreadableFolderError(f"the object {object_id} cannot be read")
    else:
        tree.folders[folder][name] = Blob(object_id, int(size))
    while folder:
        parent = folder.rpartition("/")[0]
        if folder in tree.subfolders[parent]:
            break
        tree.subfolders[parent].add(folder)
        folder = parent


def _split_records(stream: BufferedReader) -> Iterator[bytes]:
    """Yield the parts of a stream that end with NUL."""
    rest = b""
    while chunk := stream.read1(_CHUNK):
        *records, rest = (rest + chunk).split(b"\0")
        if max(map(len, (*records, rest))) > _MAX_LINE_BYTES:
            raise PermanentError(f"a path has more than {_MAX_PATH_BYTES} bytes; shorten it")
        yield from records
