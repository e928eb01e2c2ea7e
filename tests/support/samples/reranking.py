"""Rerankers made on the spot: one that counts words, and a cross-encoder with random weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from search.protocol import Vector
from search.text.tokens import tokenize

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f g h i j k l m n o p q r s t u v w x y z"


class WordReranker:
    """The share of the query's words that a text has; calls what was given before each batch."""

    model = "words:1"

    def __init__(
        self,
        before: Callable[[Sequence[str]], None] = lambda _: None,
        languages: frozenset[str] = frozenset({"en"}),
    ) -> None:
        self._before = before
        self.languages = languages

    def score(self, query: str, texts: Sequence[str]) -> Vector:
        """Shares in [0, 1]."""
        self._before(texts)
        words = set(tokenize(query))
        shares = [len(words & set(tokenize(text))) / max(len(words), 1) for text in texts]
        return np.array(shares, dtype=np.float32)


def write_cross_encoder(folder: Path, labels: int = 1, body: str = "classifier") -> str:
    """Save a tiny BERT with random weights that reads letters; a `body` "encoder" has no head."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizer

    torch.manual_seed(0)
    words = WORDS.split()
    pieces = [*words, *(f"##{letter}" for letter in words[5:])]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=128,
    )
    config.num_labels = labels
    kind = BertForSequenceClassification if body == "classifier" else BertModel
    kind(config).save_pretrained(folder)
    BertTokenizer(vocab=vocabulary, model_max_length=128).save_pretrained(folder)
    return str(folder)
