"""multilingual-e5-small as a torch module, made from packed weights: for training.

torch is imported in functions: the import takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from search.models.packed_weights import (
    BLOCK_WEIGHTS,
    MAX_TOKENS,
    PackedWeights,
    Vocabulary,
)
from search.models.unigram import UnigramTokenizer


class PackedTokenizer:
    """The tokenizer of the packaged model, with the call signature of transformers."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.pad_token_id = vocabulary.padding
        self._tokenizer = UnigramTokenizer(vocabulary)

    def __call__(
        self, texts: Sequence[str], truncation: bool, max_length: int
    ) -> dict[str, list[list[int]]]:
        """Return `input_ids` of each text, cut to `max_length` tokens; truncation must be true."""
        if not truncation:
            raise ValueError("texts of this model are always cut")
        return {"input_ids": self._tokenizer.tokenize(texts, max_length)}


def load_packaged_e5(path: Path) -> Any:
    """Load the encoder of a file of packed weights, callable as a `SentenceTransformer` is."""
    import torch

    class PackedEmbedding(torch.nn.Module):
        """Embeddings that stay in 4 bits, 54 MB instead of 384; a lookup unpacks its rows."""

        def __init__(self, weights: PackedWeights, name: str) -> None:
            super().__init__()
            width = weights.sizes.hidden
            scales, pairs = weights.read_blocks(name)
            # An integer buffer keeps its bits when the model is converted to bfloat16.
            scale_bits = (
                torch.from_numpy(scales.copy()).view(-1, width // BLOCK_WEIGHTS).view(torch.int16)
            )
            self.scale_bits = torch.nn.Buffer(scale_bits)
            self.pairs = torch.nn.Buffer(torch.from_numpy(pairs.copy()).view(*scale_bits.shape, -1))
            self.precision = torch.nn.Buffer(torch.zeros(0))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            pairs, scales = self.pairs[ids], self.scale_bits[ids].view(torch.float16)
            levels = torch.cat([pairs & 15, pairs >> 4], dim=-1).float() - 8.0
            rows = levels * scales.unsqueeze(-1).float()
            return rows.flatten(-2).to(self.precision.dtype)

    class PackagedE5(torch.nn.Module):
        """The encoder with mean pooling, callable as a `SentenceTransformer` is."""

        prompts: Mapping[str, str] = {}
        """Empty: the prompts of the model's family apply."""

        default_prompt_name = None

        def __init__(self, path: Path) -> None:
            super().__init__()
            weights = PackedWeights(path)
            self.tokenizer = PackedTokenizer(weights.vocabulary)
            self.network = _build_network(weights, PackedEmbedding(weights, "emb.word"))
            self.max_seq_length = MAX_TOKENS
            self._width = weights.sizes.hidden

        def get_embedding_dimension(self) -> int:
            """Return the width of the vectors."""
            return self._width

        def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            mask = features["attention_mask"]
            hidden = self.network(features["input_ids"], mask)
            shares = mask.unsqueeze(-1).to(hidden.dtype)
            return {"sentence_embedding": (hidden * shares).sum(1) / shares.sum(1)}

    return PackagedE5(path)


def _build_network(weights: PackedWeights, embedding: Any) -> Any:
    import torch

    from search.models.bert import BertEncoder

    network = BertEncoder(weights.sizes, embedding)
    layers = {name: torch.from_numpy(values) for name, values in weights.read_layers().items()}
    network.load_state_dict(
        {**layers, **embedding.state_dict(prefix="embeddings.word_embeddings.")},
        assign=True,
    )
    return network
