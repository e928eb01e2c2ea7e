"""A tiny encoder, and a runtime in this process, for tests that need no meaning."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from config.settings import Settings
from search.protocol import Vector
from search.text.tokens import tokenize
from workers.backend.embedded import EmbeddedBackend
from workers.backend.protocol import EmbedMode, RefineMode

DIMENSION = 16


class TinyEncoder:
    """Sums of random directions, one a word: like words, like vectors."""

    model = "tiny:1"
    dimension = DIMENSION
    languages = frozenset({"en"})

    def __init__(self, before: Callable[[Sequence[str]], None] = lambda _: None) -> None:
        self._before = before

    def encode_queries(self, texts: Sequence[str]) -> Vector:
        """Unit vectors, as of texts of skills."""
        return self.encode_texts(texts)

    def encode_texts(
        self, texts: Sequence[str], before_batch: Callable[[], None] | None = None
    ) -> Vector:
        """Unit vectors; calls what was given with the texts first."""
        self._before(texts)
        if before_batch is not None:
            before_batch()
        rows = [self._vector(text) for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(texts), DIMENSION)

    def _vector(self, text: str) -> Vector:
        total = np.full(DIMENSION, 1e-3, dtype=np.float32)
        for token in tokenize(text):
            total += _direction(token)
        return np.asarray(total / np.linalg.norm(total), dtype=np.float32)


@lru_cache(maxsize=100_000)
def _direction(token: str) -> Vector:
    seed = int.from_bytes(token.encode()[:8].ljust(8, b"\0"), "big")
    return np.random.default_rng(seed).normal(size=DIMENSION).astype(np.float32)


@contextmanager
def tiny_backend(
    home: Path,
    encoder: TinyEncoder | None = None,
    refine: RefineMode = "always",
    embeds: EmbedMode = "sections",
    **groups: Any,
) -> Iterator[EmbeddedBackend]:
    """A writing runtime with the tiny encoder; `groups` are tables of the settings."""
    settings = Settings(**groups).model_copy(update={"home": home})
    used = encoder or TinyEncoder()
    with EmbeddedBackend(
        settings, writable=True, encoder=used, refine=refine, embeds=embeds
    ) as backend:
        yield backend


def settle(backend: EmbeddedBackend, seconds: float = 120.0) -> None:
    """Wait until every queue is empty and nothing is left to do."""
    end = time.monotonic() + seconds
    quiet = 0
    while quiet < 3:
        counts = backend.get_progress()
        left = counts["events"] + counts["waiting"] + counts["unlinked"]
        left += 2 * counts["published"] - counts["with_vectors"] - counts["embedded"]
        quiet = 0 if left else quiet + 1
        assert time.monotonic() < end, f"not settled: {counts}"
        time.sleep(0.01)
