"""Training of a bi-encoder by InfoNCE: the network and its loss.

The loss is the cross-entropy of a query's own text in a softmax over the texts of its batch and
their hard negatives, of cosines divided by a temperature (SkillRouter §4.2, equation 1).

torch is imported in functions: the import takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from config.errors import UsageError
from search.models.encoder import load_network, transformer_of
from search.models.identity import DEFAULT_MODEL, PLAIN_MODEL, base_model, resolve_prompts
from search.models.installed import check_installed
from search.models.low_rank import ADAPTER_FILE, add_adapter, save_adapter, take_adapter
from workers.training.encoder.encoder_pairs import EncoderOptions
from workers.training.trainer import Trainer

_MASKED = -1e4
"""Score of a masked text."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Queries and texts of one step; text n is that of query n, further texts are negatives.

    masked: (queries, texts), true if a text may also serve the query, and so is no negative.
    """

    queries: Sequence[str]
    texts: Sequence[str]
    masked: npt.NDArray[np.bool_]


def check_base(options: EncoderOptions) -> None:
    """Raise PermanentError if the base model cannot be loaded, UsageError for options that do
    not fit: for a packaged model with packed weights only an adapter can be trained."""
    if options.layers and not options.rank:
        raise UsageError("--layers is for adapters, and --rank 0 trains all weights: drop one")
    check_installed("torch", "sentence_transformers", purpose="training an encoder")
    if not options.rank and base_model(options.base) in (DEFAULT_MODEL, PLAIN_MODEL):
        raise UsageError(f"of {options.base} only an adapter can be trained; give --rank")
    load_network(options.base, "cpu")


class BiEncoderTrainer(Trainer[Batch]):
    """Trains an encoder. Raises PermanentError if its base cannot be loaded."""

    def __init__(self, options: EncoderOptions, *, steps: int, threads: int) -> None:
        super().__init__(
            steps=steps, learning_rate=options.learning_rate, seed=options.seed, threads=threads
        )
        network = load_network(options.base, self._device).float()
        network.eval()  # no dropout: an adapter of so few weights needs none
        settings = options.get_base_settings()
        self.prompts = resolve_prompts(settings, network.prompts, network.default_prompt_name)
        self._tokens = min(options.tokens, int(network.max_seq_length or options.tokens))
        self._rank, self._temperature = options.rank, options.temperature
        transformer = transformer_of(network)
        trained = transformer.parameters()
        if options.rank:
            trained = add_adapter(transformer, options.rank, options.layers)
        self._prepare(network, list(trained))

    @override
    def _add_gradients(self, batch: Batch) -> float:
        torch = self._torch
        queries = self._encode([self.prompts.query + text for text in batch.queries])
        texts = self._encode([self.prompts.passage + text for text in batch.texts])
        masked = torch.from_numpy(batch.masked).to(self._device)
        scores = (queries @ texts.T / self._temperature).masked_fill(masked, _MASKED)
        loss = torch.nn.functional.cross_entropy(
            scores, torch.arange(len(batch.queries), device=self._device)
        )
        loss.backward()
        return float(loss.item())

    def _encode(self, texts: Sequence[str]) -> Any:
        torch = self._torch
        tokenizer = self._network.tokenizer
        ids = tokenizer(list(texts), truncation=True, max_length=self._tokens)["input_ids"]
        rows = [torch.tensor(row) for row in ids]
        pad = torch.nn.utils.rnn.pad_sequence
        features = {
            "input_ids": pad(rows, True, int(tokenizer.pad_token_id or 0)).to(self._device),
            "attention_mask": pad([torch.ones_like(row) for row in rows], True).to(self._device),
        }
        with torch.autocast(self._device, dtype=torch.bfloat16, enabled=self._low_precision):
            vectors = self._network(features)["sentence_embedding"]
        return torch.nn.functional.normalize(vectors.float(), dim=1)

    @override
    def save(self, folder: Path) -> None:
        """Save the adapter, or all weights as a sentence-transformers model; ends the training."""
        if self._rank:
            save_adapter(take_adapter(transformer_of(self._network)), folder / ADAPTER_FILE)
        else:
            self._network.save(str(folder), create_model_card=False)
