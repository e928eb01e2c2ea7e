"""Encoder over the packaged model, with or without adapters; it needs neither torch nor a file of
its own.

OpenVINO is imported when an encoder is created, not with this module.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from config.settings import EncoderSettings
from search.models.batch_encoder import BatchEncoder, Ids, Mask
from search.models.identity import (
    adapter_files,
    processor_has_bfloat16,
    read_prompts,
    resolve_prompts,
)
from search.models.low_rank import add_to_weights
from search.models.packed_weights import (
    BLOCK_WEIGHTS,
    MAX_TOKENS,
    PackedWeights,
    packed_weights_path,
    unpack_blocks,
)
from search.models.unigram import UnigramTokenizer
from search.process_memory import limit_malloc
from search.protocol import Vector


class PackagedEncoder(BatchEncoder):
    """An `Encoder` over multilingual-e5-small; several threads may encode at once, each on one
    processor.

    settings: names the model, `search.models.identity.is_packaged`. Multiplies in bfloat16 where
    the processor does so natively. Raises PermanentError if the weights or an adapter are missing
    or damaged.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        limit_malloc()
        from search.models.bert_graph import BertGraph

        packed = PackedWeights(packed_weights_path())
        hidden = packed.sizes.hidden
        weights = packed.read_layers()
        for path in adapter_files(settings.model):
            add_to_weights(weights, path)
        low_precision = processor_has_bfloat16()
        self._graph = BertGraph(packed.sizes, weights, low_precision=low_precision)
        self._tokenizer = UnigramTokenizer(packed.vocabulary)
        # The words stay in 4 bits, mapped from the file: 54 MB instead of 384.
        scales, pairs = packed.read_blocks("emb.word")
        self._scales = scales.reshape(-1, hidden // BLOCK_WEIGHTS)
        self._pairs = pairs.reshape(*self._scales.shape, -1)
        positions, token_type = packed.read_positions().values()
        self._positions = positions + token_type
        super().__init__(
            settings,
            prompts=resolve_prompts(settings, *read_prompts(settings.model)),
            limit=MAX_TOKENS,
            dimension=hidden,
            padding=packed.vocabulary.padding,
            low_precision=low_precision,
        )

    @override
    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        return self._tokenizer.tokenize(texts, self._limit)

    @override
    def _run(self, ids: Ids, mask: Mask) -> Vector:
        words = unpack_blocks(self._scales[ids], self._pairs[ids])
        embeddings = words.reshape(*ids.shape, -1) + self._positions[: ids.shape[1]]
        return self._graph.encode(np.ascontiguousarray(embeddings), mask)
