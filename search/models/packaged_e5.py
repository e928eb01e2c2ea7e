"""multilingual-e5-small as a torch module, made from packed weights.

torch is imported in functions: the import takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from search.models.packed_weights import BLOCK_WEIGHTS, PackedWeights, Vocabulary

MAX_TOKENS = 256
"""Longer texts are cut. The model reads 512; the texts of skills and sections are shorter."""

_MATRICES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
}
_NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


class PackedTokenizer:
    """A tokenizer, called as those of transformers are; theirs would take 400 MB more."""

    def __init__(self, tokenizer: Any, padding: int) -> None:
        self.pad_token_id = padding
        self._tokenizer = tokenizer

    def __call__(
        self, texts: Sequence[str], truncation: bool, max_length: int
    ) -> dict[str, list[list[int]]]:
        """Return `input_ids` of each text, cut to `max_length` tokens."""
        if truncation:
            self._tokenizer.enable_truncation(max_length)
        found = self._tokenizer.encode_batch(list(texts))
        return {"input_ids": [encoding.ids for encoding in found]}


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
            scale_bits = torch.from_numpy(scales).view(-1, width // BLOCK_WEIGHTS).view(torch.int16)
            self.scale_bits = torch.nn.Buffer(scale_bits)
            self.pairs = torch.nn.Buffer(torch.from_numpy(pairs).view(*scale_bits.shape, -1))
            self.precision = torch.nn.Buffer(torch.zeros(0))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            pairs, scales = self.pairs[ids], self.scale_bits[ids].view(torch.float16)
            levels = torch.cat([pairs & 15, pairs >> 4], dim=-1).float() - 8.0
            rows = levels * scales.unsqueeze(-1).float()
            return rows.flatten(-2).to(self.precision.dtype)

    class PackagedE5(torch.nn.Module):
        """The encoder with mean pooling, callable as a `SentenceTransformer` is."""

        prompts: Mapping[str, str] = {}
        """Empty: those of the model's family apply."""

        default_prompt_name = None

        def __init__(self, path: Path) -> None:
            super().__init__()
            weights = PackedWeights(path)
            self.tokenizer = _build_tokenizer(weights.vocabulary)
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
    from search.models.bert import BertEncoder

    network = BertEncoder(weights.sizes, embedding)
    network.load_state_dict(
        {**_unpack_layers(weights), **embedding.state_dict(prefix="embeddings.word_embeddings.")},
        assign=True,
    )
    return network


def _unpack_layers(weights: PackedWeights) -> dict[str, Any]:
    """The state of the network but for the word embeddings."""
    import torch

    width = weights.sizes.hidden
    types = weights.read_vector("emb.type").reshape(-1, width)
    state = {
        "embeddings.position_embeddings.weight": weights.read_vector("emb.pos").reshape(-1, width),
        "embeddings.token_type_embeddings.weight": types[:1],
        "embeddings.LayerNorm.weight": weights.read_vector("emb.ln.w"),
        "embeddings.LayerNorm.bias": weights.read_vector("emb.ln.b"),
    }
    for layer in range(weights.sizes.layers):
        for short, name in _MATRICES.items():
            inputs = weights.sizes.intermediate if short == "fo" else width
            to = f"encoder.layer.{layer}.{name}"
            state[f"{to}.weight"] = weights.read_matrix(f"l{layer}.{short}.w", inputs)
            state[f"{to}.bias"] = weights.read_vector(f"l{layer}.{short}.b")
        for short, name in _NORMS.items():
            to = f"encoder.layer.{layer}.{name}"
            state[f"{to}.weight"] = weights.read_vector(f"l{layer}.{short}.w")
            state[f"{to}.bias"] = weights.read_vector(f"l{layer}.{short}.b")
    return {name: torch.from_numpy(values) for name, values in state.items()}


def _build_tokenizer(vocabulary: Vocabulary) -> PackedTokenizer:
    """The tokenizer of XLM-RoBERTa, whose replacements of characters are those of NFKC."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    scored = list(zip(vocabulary.pieces, vocabulary.scores, strict=True))
    begin, end = vocabulary.pieces[vocabulary.begin], vocabulary.pieces[vocabulary.end]
    tokenizer: Any = Tokenizer(models.Unigram(scored, unk_id=vocabulary.unknown))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        special_tokens=[(begin, vocabulary.begin), (end, vocabulary.end)],
    )
    return PackedTokenizer(tokenizer, vocabulary.padding)
