"""Training of a cross-encoder on lists: the network, one optimizer step, checkpoints.

The loss is listwise (SkillRouter §4.3): the cross-entropy of the needed skill in a softmax over the
scores of a list, divided by a temperature. Pointwise
losses are far worse in libraries with many similar skills (§5.4.2).

torch and transformers are imported in functions: the import takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from config.errors import PermanentError
from search.models.encoder import has_bfloat16, model_load_errors, model_path, silence_libraries
from workers.training.checkpoint import learning_rate_factor, load_checkpoint, save_checkpoint

_MAX_GRADIENT_NORM = 1.0
_WEIGHT_DECAY = 0.01


class CrossEncoderTrainer:
    """Trains a cross-encoder for a fixed number of steps.

    base: name or folder of a cross-encoder, which is trained further, or of an encoder, which gets
    a new head. The same seed gives the same training, even if it is interrupted and resumed.
    Raises PermanentError if the base cannot be loaded.
    """

    def __init__(
        self,
        base: str,
        *,
        max_length: int,
        steps: int,
        learning_rate: float,
        seed: int,
        threads: int,
        temperature: float = 1.0,
    ) -> None:
        import torch

        silence_libraries()
        torch.set_num_threads(threads)
        torch.manual_seed(seed)
        self._torch = torch
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._network, self._tokenizer = _load(base)
        self._network.to(self._device).train()
        positions = int(getattr(self._network.config, "max_position_embeddings", max_length))
        self.max_length = min(max_length, positions)
        self._tokenizer.model_max_length = self.max_length
        self._low_precision = has_bfloat16(torch, self._device)
        self._rate, self._steps, self._seed = learning_rate, steps, seed
        self._temperature = temperature
        self._optimizer = torch.optim.AdamW(
            self._network.parameters(), lr=learning_rate, weight_decay=_WEIGHT_DECAY
        )
        self.steps_done = 0

    def step(self, lists: Sequence[tuple[str, Sequence[str]]]) -> float:
        """Make one optimizer step on some lists; returns the mean loss in nats.

        lists: each a query and texts, of which the first is the needed one.
        """
        torch = self._torch
        torch.manual_seed(self._seed + self.steps_done)  # the same dropout after a resume
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * learning_rate_factor(self.steps_done, self._steps)
        self._optimizer.zero_grad()
        total = 0.0
        for query, texts in lists:
            loss = torch.nn.functional.cross_entropy(
                self._scores(query, texts).float()[None, :] / self._temperature,
                torch.zeros(1, dtype=torch.long, device=self._device),
            )
            (loss / len(lists)).backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), _MAX_GRADIENT_NORM)
        self._optimizer.step()
        self.steps_done += 1
        return total / len(lists)

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

    # -- saved files
    def save(self, folder: Path) -> None:
        """Save the model in the format of a sentence-transformers cross-encoder."""
        self._network.save_pretrained(folder)
        self._tokenizer.save_pretrained(folder)

    def save_checkpoint(self, folder: Path) -> None:
        """Write weights, moments and the number of steps atomically."""
        save_checkpoint(self._network, self._optimizer, self.steps_done, folder)

    def load_checkpoint(self, folder: Path) -> None:
        """Restore the checkpoint of a folder, if there is one.

        Raises PermanentError if it is damaged or of another model.
        """
        self.steps_done = load_checkpoint(self._network, self._optimizer, folder, self._device)


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
