"""The file of packed weights: what is read from it, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from config.errors import PermanentError
from search.models.packed_weights import PackedWeights, packed_weights_path, read_dimension


@pytest.fixture(scope="module")
def weights() -> PackedWeights:
    return PackedWeights(packed_weights_path())


def test_the_sizes_are_those_of_the_model(weights: PackedWeights) -> None:
    assert (weights.sizes.hidden, weights.sizes.layers) == (384, 12)
    assert read_dimension(packed_weights_path()) == 384
    assert len(weights.vocabulary.scores) == 250_002


def test_a_matrix_is_its_scales_times_its_levels(weights: PackedWeights) -> None:
    scales, pairs = weights.read_blocks("l0.q.w")
    matrix = weights.read_matrix("l0.q.w", 384)
    assert matrix.shape == (384, 384)
    first = (int(pairs[0, 0] & 15) - 8) * np.float32(scales[0])
    seventeenth = (int(pairs[0, 0] >> 4) - 8) * np.float32(scales[0])
    assert (matrix[0, 0], matrix[0, 16]) == (first, seventeenth)


@pytest.mark.parametrize(
    ("size", "message"), [(3, "no packed weights"), (9, "no packed weights"), (5_000, "is damaged")]
)
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, size: int, message: str) -> None:
    cut = tmp_path / "weights.bin"
    cut.write_bytes(packed_weights_path().read_bytes()[:size])
    with pytest.raises(PermanentError, match=message):
        PackedWeights(cut)
    if message == "no packed weights":
        with pytest.raises(PermanentError, match=message):
            read_dimension(cut)
