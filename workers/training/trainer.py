"""Training of a network in a fixed number of optimizer steps, with checkpoints.

Checkpoints hold the trained weights, the optimizer's moments and the number of steps, as
safetensors, without pickle. torch and safetensors are imported in functions: the import takes
seconds.
"""

from __future__ import annotations

import json
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pydantic import TypeAdapter

from config.errors import PermanentError, TransientError
from search.models.identity import TRAINING_FILE, processor_has_bfloat16
from search.models.installed import check_installed
from workers.library.user_files import write_atomically

CHECKPOINT = "checkpoint.safetensors"
TRAINING_SET_FILE = "training_set.json"
"""The training set of an unfinished training, in the folder of its checkpoint."""

_MAX_GRADIENT_NORM = 1.0
_WEIGHT_DECAY = 0.01
_WARM_UP = 0.05
"""Share of the steps with a rising learning rate; then it decays as a cosine (SkillRouter §4.2)."""

ProgressCallback = Callable[[int, int], None]
"""Called with the number of items done and their total."""

BatchT = TypeVar("BatchT")
ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Options of a training; equal options on the same library give the same training set.

    base: the model to start from. feedback: identity of the labelled prompts, "" for none. prompts:
    the language model whose stored prompts are also queries, "" for none. folds: number of parts of
    the library, of which part `fold` is held out. learning_rate: its peak. batch_size: items of a
    step.
    """

    base: str
    languages: tuple[str, ...]
    feedback: str = ""
    prompts: str = ""
    folds: int = 5
    fold: int = 0
    seed: int = 0
    epochs: int = 1
    learning_rate: float = 2e-5
    batch_size: int = 16


class BuiltTrainingSet(Protocol):
    """Training set of a model, with the options that it was built with, and counts for its card."""

    @property
    def options(self) -> TrainingOptions:
        """Options that the set was built with."""
        ...

    @property
    def notes(self) -> Mapping[str, int]:
        """Counts by name."""
        ...


SetT = TypeVar("SetT", bound=BuiltTrainingSet)


class Trainer(ABC, Generic[BatchT]):
    """Trains the weights of a network with AdamW.

    A subclass sets the attributes by `_prepare`, and computes the gradients of a batch. The same
    seed gives the same training, even if it is interrupted and resumed.
    """

    steps_done = 0
    _is_updating = False
    """Whether some weights may be those after the step, and others those before it."""

    def __init__(self, *, steps: int, learning_rate: float, seed: int, threads: int) -> None:
        """Set up a training.

        steps: of the whole training. learning_rate: its peak. threads: of torch, on the CPU.
        """
        check_installed("torch", "transformers", purpose="training a model")
        import torch

        torch.set_num_threads(threads)
        torch.manual_seed(seed)
        self._torch = torch
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._low_precision = (
            torch.cuda.is_bf16_supported() if self._device == "cuda" else processor_has_bfloat16()
        )
        self._rate, self._steps, self._seed = learning_rate, steps, seed

    def _prepare(self, network: Any, parameters: Sequence[Any]) -> None:
        """Set the network and the parameters to train."""
        self._network, self._parameters = network, list(parameters)
        self._optimizer = self._torch.optim.AdamW(
            self._parameters, lr=self._rate, weight_decay=_WEIGHT_DECAY
        )

    @abstractmethod
    def _add_gradients(self, batch: BatchT) -> float:
        """Run a batch forward and backward, and return the mean loss in nats."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Save the trained model."""

    def step(self, batch: BatchT) -> float:
        """Make one optimizer step on a batch, and return the mean loss in nats.

        Raises PermanentError if the gradient is not finite.
        """
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * learning_rate_factor(self.steps_done, self._steps)
        self._optimizer.zero_grad()
        loss = self._add_gradients(batch)
        norm = self._torch.nn.utils.clip_grad_norm_(self._parameters, _MAX_GRADIENT_NORM)
        if not math.isfinite(norm):
            raise PermanentError(
                f"step {self.steps_done + 1} of {self._steps} has no finite gradient; start over "
                "with --fresh and a smaller --learning-rate or a larger --temperature"
            )
        self._is_updating = True
        self._optimizer.step()
        self.steps_done += 1
        self._is_updating = False
        return loss

    def run(
        self,
        make_batch: Callable[[int], BatchT],
        folder: Path,
        checkpoint_steps: int,
        progress: ProgressCallback,
    ) -> list[float]:
        """Make the remaining steps, save the model, and return the loss of each step.

        make_batch: returns the batch of a step, by its number. folder: of the model and of the
        checkpoint, from which the training resumes; it is written every `checkpoint_steps` steps
        and on KeyboardInterrupt, except within an update of the weights. progress: called with the
        steps done and their total. Raises TransientError if the disk is full.
        """
        self.load_checkpoint(folder)
        losses = []
        try:
            while self.steps_done < self._steps:
                progress(self.steps_done, self._steps)
                losses.append(self.step(make_batch(self.steps_done)))
                if self.steps_done % checkpoint_steps == 0:
                    self.save_checkpoint(folder)
        except KeyboardInterrupt:
            if not self._is_updating:
                self.save_checkpoint(folder)
            raise
        self.save_checkpoint(folder)
        with _writing(folder):
            self.save(folder)
        return losses

    def save_checkpoint(self, folder: Path) -> None:
        """Write the weights that are trained, their moments and the number of steps atomically."""
        from safetensors.torch import save_file

        tensors = {}
        for name, parameter in self._trained():
            tensors[f"weight.{name}"] = parameter.detach()
            state = self._optimizer.state.get(parameter, {})
            for moment in ("exp_avg", "exp_avg_sq"):
                if moment in state:
                    tensors[f"{moment}.{name}"] = state[moment]
        temporary = folder / f".{CHECKPOINT}"
        with _writing(folder):
            save_file(tensors, temporary, metadata={"done": str(self.steps_done)})
            temporary.replace(folder / CHECKPOINT)

    def load_checkpoint(self, folder: Path) -> None:
        """Restore the checkpoint of a folder, if there is one.

        Raises PermanentError if it is damaged or of another model.
        """
        from safetensors import SafetensorError, safe_open

        path = folder / CHECKPOINT
        if not path.exists():
            return
        try:
            with safe_open(path, "pt", device=self._device) as tensors, self._torch.no_grad():
                self._restore(tensors)
        except (SafetensorError, KeyError, ValueError, RuntimeError, OSError) as error:
            raise PermanentError(
                f"{path} is not a checkpoint of this training ({error}); start over with --fresh"
            ) from error

    def _restore(self, tensors: Any) -> None:
        done = int(tensors.metadata()["done"])
        known = set(tensors.keys())
        for name, parameter in self._trained():
            parameter.copy_(tensors.get_tensor(f"weight.{name}"))
            if f"exp_avg.{name}" in known:
                self._optimizer.state[parameter] = {
                    "step": self._torch.tensor(float(done)),
                    "exp_avg": tensors.get_tensor(f"exp_avg.{name}"),
                    "exp_avg_sq": tensors.get_tensor(f"exp_avg_sq.{name}"),
                }
        self.steps_done = done

    def _trained(self) -> list[tuple[str, Any]]:
        return [(name, one) for name, one in self._network.named_parameters() if one.requires_grad]


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Raise TransientError if a file cannot be written, as on a full disk."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        raise TransientError(
            f"{folder} cannot be written: {error}; the same command resumes the training"
        ) from error


def order_batches(items: Sequence[ItemT], options: TrainingOptions) -> list[list[ItemT]]:
    """Return the items of each step, in an order given by the seed."""
    batches = []
    for epoch in range(options.epochs):
        order = list(items)
        random.Random(f"{options.seed}:{epoch}").shuffle(order)
        starts = range(0, len(order), options.batch_size)
        batches += [order[start : start + options.batch_size] for start in starts]
    return batches


def learning_rate_factor(done: int, steps: int) -> float:
    """Return the factor of the learning rate: a linear warm-up, then a cosine decay to 0."""
    rise = max(1, round(_WARM_UP * steps))
    if done < rise:
        return (done + 1) / rise
    return 0.5 * (1.0 + math.cos(math.pi * (done - rise) / max(1, steps - rise)))


def save_training_set(folder: Path, training_set: BuiltTrainingSet) -> None:
    """Save the training set of an unfinished training, from which it can be resumed."""
    content = TypeAdapter(type(training_set)).dump_json(training_set)
    write_atomically(folder / TRAINING_SET_FILE, content)


def load_training_set(folder: Path, kind: type[SetT]) -> SetT:
    """Return a saved training set; raises PermanentError if it cannot be read."""
    path = folder / TRAINING_SET_FILE
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise PermanentError(f"{path} cannot be read ({reason}); start over with --fresh") from None


def describe_training(training_set: BuiltTrainingSet) -> dict[str, Any]:
    """Return the part of a model card that all models have."""
    options = training_set.options
    return {
        "skillbus": version("skillbus"),
        "base": options.base,
        "languages": list(options.languages),
        "choices": asdict(options),
        "notes": training_set.notes,
    }


def write_training_card(folder: Path, card: Mapping[str, Any]) -> None:
    """Write the model card, with which the folder loads as a trained model."""
    content = json.dumps(card, indent=2, ensure_ascii=False) + "\n"
    write_atomically(folder / TRAINING_FILE, content.encode())


def end_training(folder: Path) -> None:
    """Delete the training set and the checkpoint: the training can no longer be resumed."""
    # The set first: with the set alone, an interruption here would start the training over.
    for name in (TRAINING_SET_FILE, CHECKPOINT):
        (folder / name).unlink(missing_ok=True)
