"""A BERT encoder (Devlin et al., NAACL 2019) as a torch module, for weights that are read by name.

Layers have the names of `BertModel` of transformers, so that adapters of either fit the other.
Importing that class takes twice as long as torch itself, and 150 MB more.

This module imports torch, which takes seconds: import it in functions.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention
from typing_extensions import override

from search.models.packed_weights import ModelSizes


class Linear(nn.Linear):
    """A linear layer whose weights are read later: filling them first would take seconds."""

    @override
    def reset_parameters(self) -> None:
        """Leave the weights as they are."""


class SelfAttention(nn.Module):
    """Multi-head self-attention without its output projection."""

    def __init__(self, sizes: ModelSizes) -> None:
        super().__init__()
        self._heads = sizes.heads
        self.query = Linear(sizes.hidden, sizes.hidden)
        self.key = Linear(sizes.hidden, sizes.hidden)
        self.value = Linear(sizes.hidden, sizes.hidden)

    def forward(self, values: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Attend from each token of (batch, tokens, hidden) to the tokens that the mask allows."""
        query, key, value = (
            layer(values).unflatten(-1, (self._heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        found = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return found.transpose(1, 2).flatten(-2)


class ResidualLinear(nn.Module):
    """A linear layer, a residual connection, and layer normalisation."""

    def __init__(self, inputs: int, sizes: ModelSizes) -> None:
        super().__init__()
        self.dense = Linear(inputs, sizes.hidden)
        self.LayerNorm = nn.LayerNorm(sizes.hidden, eps=sizes.norm_epsilon)

    def forward(self, values: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Map values (batch, tokens, inputs) to the shape of `before` (batch, tokens, hidden)."""
        normalised: torch.Tensor = self.LayerNorm(self.dense(values) + before)
        return normalised


class BertLayer(nn.Module):
    """One layer of the encoder: self-attention, then two linear layers with GELU in between."""

    def __init__(self, sizes: ModelSizes) -> None:
        super().__init__()
        self.attention = nn.ModuleDict(
            {"self": SelfAttention(sizes), "output": ResidualLinear(sizes.hidden, sizes)}
        )
        self.intermediate = nn.ModuleDict({"dense": Linear(sizes.hidden, sizes.intermediate)})
        self.output = ResidualLinear(sizes.intermediate, sizes)

    def forward(self, values: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Map (batch, tokens, hidden) to the same shape."""
        attended = self.attention["output"](self.attention["self"](values, mask), values)
        output: torch.Tensor = self.output(gelu(self.intermediate["dense"](attended)), attended)
        return output


class BertEmbeddings(nn.Module):
    """Sums of embeddings of words, of the one token type and of positions, normalised."""

    def __init__(self, sizes: ModelSizes, words: nn.Module) -> None:
        super().__init__()
        self.word_embeddings = words
        self.token_type_embeddings = nn.Embedding(1, sizes.hidden)
        self.position_embeddings = nn.Embedding(sizes.positions, sizes.hidden)
        self.LayerNorm = nn.LayerNorm(sizes.hidden, eps=sizes.norm_epsilon)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Map ids (batch, tokens) to vectors (batch, tokens, hidden)."""
        words = self.word_embeddings(ids) + self.token_type_embeddings.weight[0]
        positions = self.position_embeddings.weight[: ids.shape[1]]
        normalised: torch.Tensor = self.LayerNorm(words + positions)
        return normalised


class BertEncoder(nn.Module):
    """The network without a pooler or a head. It has no dropout.

    words: maps ids (batch, tokens) to vectors (batch, tokens, hidden).
    """

    def __init__(self, sizes: ModelSizes, words: nn.Module) -> None:
        super().__init__()
        self.embeddings = BertEmbeddings(sizes, words)
        self._layers = [BertLayer(sizes) for _ in range(sizes.layers)]
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(self._layers)})

    def forward(self, ids: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Encode ids (batch, tokens) to vectors (batch, tokens, hidden).

        attended: (batch, tokens), 1 for tokens and 0 for padding.
        """
        mask = None if bool(attended.all()) else attended.bool()[:, None, None, :]
        values: torch.Tensor = self.embeddings(ids)
        for layer in self._layers:
            values = layer(values, mask)
        return values
