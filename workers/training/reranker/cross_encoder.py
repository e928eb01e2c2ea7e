"""Training of a cross-encoder on lists of texts: the network and its loss.

The loss is listwise (SkillRouter §4.3): the cross-entropy of the needed skill in a softmax over the
scores of a list, divided by a temperature. Pointwise losses are far worse in libraries with many
similar skills (§5.4.2).

torch and transformers are imported in functions: the import takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from config.errors import PermanentError
from search.models.encoder import model_load_errors, silence_libraries
from search.models.identity import model_path
from search.models.installed import check_installed
from workers.training.reranker.training_lists import RerankerOptions
from workers.training.trainer import Trainer

RankedTexts = tuple[str, Sequence[str]]
"""A query and texts, of which the first is that of the needed skill."""


def check_base(options: RerankerOptions) -> None:
    """Raise PermanentError if the base model cannot be loaded."""
    check_installed("torch", "transformers", purpose="training a reranker")
    silence_libraries()
    _load(options.base)


class CrossEncoderTrainer(Trainer[Sequence[RankedTexts]]):
    """Trains a cross-encoder.

    The base of the options is a cross-encoder, which is trained further, or an encoder, which gets
    a new head. Raises PermanentError if it cannot be loaded.
    """

    def __init__(self, options: RerankerOptions, *, steps: int, threads: int) -> None:
        silence_libraries()
        super().__init__(
            steps=steps, learning_rate=options.learning_rate, seed=options.seed, threads=threads
        )
        network, self._tokenizer = _load(options.base)
        network.to(self._device).train()
        length = options.max_length
        positions = int(getattr(network.config, "max_position_embeddings", length))
        # RoBERTa has two positions more than it reads tokens; its tokenizer has the limit.
        self.max_length = min(length, positions, int(self._tokenizer.model_max_length))
        self._tokenizer.model_max_length = self.max_length
        self._temperature = options.temperature
        self._prepare(network, list(network.parameters()))

    @override
    def _add_gradients(self, batch: Sequence[RankedTexts]) -> float:
        torch = self._torch
        torch.manual_seed(self._seed + self.steps_done)  # the same dropout after a resume
        total = 0.0
        for query, texts in batch:
            loss = torch.nn.functional.cross_entropy(
                self._scores(query, texts).float()[None, :] / self._temperature,
                torch.zeros(1, dtype=torch.long, device=self._device),
            )
            (loss / len(batch)).backward()
            total += loss.item()
        return total / len(batch)

    def _scores(self, query: str, texts: Sequence[str]) -> Any:
        features = self._tokenizer(
            [query] * len(texts),
            list(texts),
            truncation=True,
            max_length=self.max_length,
            padding=True,
            return_tensors="pt",
        ).to(self._device)
        with self._torch.autocast(
            self._device, dtype=self._torch.bfloat16, enabled=self._low_precision
        ):
            return self._network(**features).logits[:, 0]

    @override
    def save(self, folder: Path) -> None:
        """Save the model in the format of a sentence-transformers cross-encoder."""
        self._network.save_pretrained(folder)
        self._tokenizer.save_pretrained(folder)


def _load(base: str) -> tuple[Any, Any]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    try:
        path = model_path(base)
        network = AutoModelForSequenceClassification.from_pretrained(path, num_labels=1)
        return network, AutoTokenizer.from_pretrained(path)
    except model_load_errors() as error:
        raise PermanentError(
            f"the model {base!r} cannot be loaded for training ({error}); name an installed "
            "encoder or cross-encoder with --base"
        ) from error
