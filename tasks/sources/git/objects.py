"""Reader of file contents from the objects of a mirror, through one `git cat-file` process."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from config.errors import TransientError
from tasks.sources.git.process import output_of, start_git
from tasks.sources.git.tree import Blob

_CHUNK = 1 << 20


class ObjectReader:
    """Reads blobs of a mirror; close it after use.

    on_missing: called when an object is missing or cannot be read.
    """

    def __init__(self, mirror: Path, on_missing: Callable[[], None] = lambda: None) -> None:
        self._on_missing = on_missing
        self._process = start_git(mirror, ("cat-file", "--batch"), subprocess.PIPE)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                # A request that was written after the end of the process is still in the buffer.
                with suppress(BrokenPipeError):
                    stream.close()
        self._process.wait()

    def read(self, blob: Blob) -> bytes:
        """Return the bytes of a file; raises TransientError if the mirror has lost them."""
        return b"".join(self._read_chunks(blob))

    def sha256(self, blob: Blob) -> str:
        """Return the SHA-256 of a file's bytes, in hexadecimal."""
        digest = hashlib.sha256()
        for part in self._read_chunks(blob):
            digest.update(part)
        return digest.hexdigest()

    def _read_chunks(self, blob: Blob) -> Iterator[bytes]:
        stdin, answers = self._process.stdin, output_of(self._process)
        try:
            if stdin is not None:
                stdin.write(f"{blob.object_id}\n".encode("ascii"))
                stdin.flush()
        except OSError as error:
            raise self._read_error(f"git cat-file ended: {error.strerror}") from None
        header = answers.readline().split()
        if len(header) != 3 or header[1] != b"blob" or int(header[2]) != blob.size:
            raise self._read_error(f"the mirror has lost the object {blob.object_id}")
        left = blob.size
        while left:
            part = answers.read(min(left, _CHUNK))
            if not part:
                raise self._read_error("git cat-file ended too early")
            left -= len(part)
            yield part
        answers.read(1)

    def _read_error(self, what: str) -> TransientError:
        self._on_missing()
        return TransientError(f"{what}; it is fetched again")
