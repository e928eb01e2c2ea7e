"""Training of a cross-encoder on lists: the network, one optimizer step, checkpoints.

The loss is listwise (SkillRouter §4.3): the cross-entropy of the needed skill in a softmax over the
scores of a list. Pointwise losses are far worse in libraries with many similar skills (§5.4.2).
Checkpoints are safetensors, without pickle.

torch, transformers and safetensors are imported in functions: the import takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from config.errors import PermanentError
from search.models.encoder import has_bfloat16, model_load_errors, model_path, silence_libraries

CHECKPOINT = "checkpoint.safetensors"

_WARM_UP = 0.05
"""Share of the steps with a rising learning rate; then it decays as a cosine (SkillRouter §4.2)."""

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
            group["lr"] = self._rate * _schedule(self.steps_done, self._steps)
        self._optimizer.zero_grad()
        total = 0.0
        for query, texts in lists:
            loss = torch.nn.functional.cross_entropy(
                self._scores(query, texts).float()[None, :],
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
        from safetensors.torch import save_file

        tensors = {}
        for name, parameter in self._network.named_parameters():
            tensors[f"weight.{name}"] = parameter.detach()
            state = self._optimizer.state.get(parameter, {})
            for moment in ("exp_avg", "exp_avg_sq"):
                if moment in state:
                    tensors[f"{moment}.{name}"] = state[moment]
        temporary = folder / f".{CHECKPOINT}"
        save_file(tensors, temporary, metadata={"done": str(self.steps_done)})
        temporary.replace(folder / CHECKPOINT)

    def load_checkpoint(self, folder: Path) -> bool:
        """Restore the checkpoint of a folder; False if there is none.

        Raises PermanentError if it is damaged or of another model.
        """
        from safetensors import SafetensorError, safe_open

        path = folder / CHECKPOINT
        if not path.exists():
            return False
        torch = self._torch
        try:
            with safe_open(path, "pt", device=self._device) as tensors, torch.no_grad():
                done = int(tensors.metadata()["done"])
                known = set(tensors.keys())
                for name, parameter in self._network.named_parameters():
                    parameter.copy_(tensors.get_tensor(f"weight.{name}"))
                    if f"exp_avg.{name}" in known:
                        self._optimizer.state[parameter] = {
                            "step": torch.tensor(float(done)),
                            "exp_avg": tensors.get_tensor(f"exp_avg.{name}"),
                            "exp_avg_sq": tensors.get_tensor(f"exp_avg_sq.{name}"),
                        }
        except (SafetensorError, KeyError, ValueError, RuntimeError, OSError) as error:
            raise PermanentError(
                f"{path} is not a checkpoint of this training ({error}); start over with --fresh"
            ) from error
        self.steps_done = done
        return True


def _schedule(done: int, steps: int) -> float:
    """The factor of the learning rate: a linear warm-up, then a cosine decay to 0."""
    rise = max(1, round(_WARM_UP * steps))
    if done < rise:
        return (done + 1) / rise
    return 0.5 * (1.0 + math.cos(math.pi * (done - rise) / max(1, steps - rise)))


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
