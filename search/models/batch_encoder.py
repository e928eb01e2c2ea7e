"""Base class of encoders: batches of texts of similar length, prompts and the identity of
vectors."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from config.errors import PermanentError
from config.settings import EncoderSettings
from search.models.identity import model_version, trained_languages
from search.models.model_families import Prompts, with_mixtures
from search.protocol import Encoder, Vector

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.int64]

_LENGTH_STEP = 16
"""Lengths of batches are multiples of this number of tokens."""


class BatchEncoder(Encoder):
    """An `Encoder` over a network that encodes a batch of padded texts at a time.

    prompts: put before queries and texts. limit: tokens of a text; the rest is cut. low_precision:
    whether the network multiplies in bfloat16. Vectors are normalised in float32. Encoding raises
    PermanentError for vectors that are not finite.
    """

    def __init__(
        self,
        settings: EncoderSettings,
        *,
        prompts: Prompts,
        limit: int,
        dimension: int,
        padding: int,
        low_precision: bool,
    ) -> None:
        self._batch_tokens = settings.batch_tokens
        self._prompts = prompts
        self._limit = limit
        self._dimension = dimension
        self._padding = padding
        self._model = model_version(settings, low_precision, prompts.passage)
        self._languages = with_mixtures(settings.languages or trained_languages(settings.model))
        self.on_encoded: Callable[[int, int, float], None] | None = None
        """Called after each encoding with the numbers of texts and tokens, and the seconds."""

    @property
    @override
    def model(self) -> str:
        return self._model

    @property
    @override
    def dimension(self) -> int:
        return self._dimension

    @property
    @override
    def languages(self) -> frozenset[str]:
        """Languages of the settings; else of the training file, else those that the name
        implies."""
        return self._languages

    @override
    def encode_queries(self, texts: Sequence[str]) -> Vector:
        return self._encode([self._prompts.query + text for text in texts])

    @override
    def encode_texts(
        self, texts: Sequence[str], before_batch: Callable[[], None] | None = None
    ) -> Vector:
        return self._encode([self._prompts.passage + text for text in texts], before_batch)

    @abstractmethod
    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, at most `limit`."""

    @abstractmethod
    def _run(self, ids: Ids, mask: Mask) -> Vector:
        """Return vectors (texts, dimension) of ids (texts, tokens).

        mask: of the same shape, 1 for tokens and 0 for padding.
        """

    def _encode(
        self, texts: Sequence[str], before_batch: Callable[[], None] | None = None
    ) -> Vector:
        vectors = np.zeros((len(texts), self._dimension), dtype=np.float32)
        tokens, seconds = 0, 0.0
        for places, ids, mask in self._batches(texts):
            if before_batch is not None:
                before_batch()
            started = time.perf_counter()
            vectors[places] = self._run(ids, mask)
            seconds += time.perf_counter() - started
            tokens += int(mask.sum())
        if self.on_encoded is not None and len(texts):
            self.on_encoded(len(texts), tokens, seconds)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(norms).all():
            raise PermanentError(
                f"the encoder {self._model} makes vectors that are not finite; name another model"
            )
        return np.asarray(vectors / np.maximum(norms, 1e-12), dtype=np.float32)

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Ids, Mask]]:
        """Yield batches of similar length, longest first, as (positions in `texts`, ids, mask).

        Lengths are rounded up to few distinct shapes, because the matrix library caches a plan,
        and memory, for each shape.
        """
        rows = self._tokenize(texts) if texts else []
        order = sorted(range(len(rows)), key=lambda place: -len(rows[place]))
        start = 0
        while start < len(order):
            longest = len(rows[order[start]])
            width = min(-(-longest // _LENGTH_STEP) * _LENGTH_STEP, max(self._limit, longest))
            places = order[start : start + max(1, self._batch_tokens // width)]
            start += len(places)
            yield places, *_pad([rows[place] for place in places], width, self._padding)


def _pad(rows: list[list[int]], width: int, padding: int) -> tuple[Ids, Mask]:
    ids = np.full((len(rows), width), padding, dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=np.int64)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = row
        mask[place, : len(row)] = 1
    return ids, mask
