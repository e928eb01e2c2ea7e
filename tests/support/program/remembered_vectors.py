"""The default encoder, which encodes each text once in a test run.

Tests sync the same skills hundreds of times. The vectors are those of the real model: a text that
any process of the run has encoded before is looked up in a file instead of being encoded again.
Others are encoded by a process that has loaded the network, which takes 0.7 s of processor time.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from hashlib import blake2b
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from config.settings import EncoderSettings
from search.models.batch_encoder import BatchEncoder, Ids, Mask
from search.models.identity import processor_has_bfloat16, read_prompts, resolve_prompts
from search.models.load_models import encoder_identity
from search.models.packaged_encoder import PackagedEncoder
from search.models.packed_weights import MAX_TOKENS
from search.protocol import Vector

_SECONDS = 60.0
_MAX_PARAMETERS = 10_000


class RememberingEncoder(BatchEncoder):
    """Keeps its vectors in an SQLite file, which several processes may use at once.

    path: the file. network: the socket of a process that encodes, of `start_network`.
    """

    def __init__(self, path: Path, network: Path) -> None:
        settings = EncoderSettings()
        identity = encoder_identity(settings)
        super().__init__(
            settings,
            prompts=resolve_prompts(settings, *read_prompts(settings.model)),
            limit=MAX_TOKENS,
            dimension=identity.dimension,
            padding=0,
            low_precision=processor_has_bfloat16(),
        )
        self._path = path
        self._network = str(network)
        # SQLite does not wait for another process that changes the mode of a file.
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with self._open() as file:
                file.execute("PRAGMA journal_mode = WAL")
                file.execute(
                    "CREATE TABLE IF NOT EXISTS vectors"
                    " (text BLOB PRIMARY KEY, vector BLOB NOT NULL)"
                )

    @override
    def _encode(
        self, texts: Sequence[str], before_batch: Callable[[], None] | None = None
    ) -> Vector:
        keys = [_key(text) for text in texts]
        known = self._read(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if missing:
            fresh = super()._encode(list(missing.values()), before_batch)
            made = {key: row.tobytes() for key, row in zip(missing, fresh, strict=True)}
            self._write(made)
            known |= made
        elif before_batch is not None:
            before_batch()
        if self.on_encoded is not None and len(texts) > len(missing):
            self.on_encoded(len(texts) - len(missing), 0, 0.0)
        rows = np.frombuffer(b"".join(known[key] for key in keys), dtype=np.float32)
        return rows.reshape(len(texts), self.dimension).copy()

    @override
    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self._ask("_tokenize", texts)
        return ids

    @override
    def _run(self, ids: Ids, mask: Mask) -> Vector:
        vectors: Vector = self._ask("_run", ids, mask)
        return vectors

    def _ask(self, method: str, *arguments: Any) -> Any:
        """What a method of the encoder in the other process returns."""
        with Client(self._network, "AF_UNIX") as connection:
            connection.send((method, arguments))
            answer = connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        with self._open() as file:
            for first in range(0, len(keys), _MAX_PARAMETERS):
                part = keys[first : first + _MAX_PARAMETERS]
                marks = ",".join("?" * len(part))
                found |= file.execute(
                    f"SELECT text, vector FROM vectors WHERE text IN ({marks})", part
                ).fetchall()
        return found

    def _write(self, vectors: Mapping[bytes, bytes]) -> None:
        with self._open() as file:
            file.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", vectors.items())

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection of this call's own: none may pass from a process to its fork."""
        with closing(sqlite3.connect(self._path, timeout=_SECONDS)) as file:
            file.execute("PRAGMA synchronous = OFF")
            with file:
                yield file


def start_network(path: Path) -> None:
    """Fork a process that encodes for others, over the socket `path`; it ends with this one.

    It loads the network for the first text: a fork of a process whose network has threads could
    not use it.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(64)
    parent = os.getpid()
    if os.fork():
        listener.close()
        return
    with Path(os.devnull).open("r+b") as nothing:
        for stream in (0, 1):  # the pipes of the fork server
            os.dup2(nothing.fileno(), stream)
    threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()
    load = cache(lambda: PackagedEncoder(EncoderSettings()))
    loading = threading.Lock()

    def answer(connection: Connection) -> None:
        with connection, suppress(OSError, EOFError):  # a client that was killed
            method, arguments = connection.recv()
            try:
                with loading:
                    encoder = load()
                connection.send(getattr(encoder, method)(*arguments))
            except Exception as error:
                connection.send(error)

    while True:
        accepted, _ = listener.accept()
        connection = Connection(accepted.detach())
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def _exit_after(parent: int) -> None:
    """End this process once its parent has ended."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


def _key(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
