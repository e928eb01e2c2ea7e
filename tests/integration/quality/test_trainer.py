"""Steps of a training: interruptions, and gradients that are not finite."""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_extensions import override

from config.errors import PermanentError, TransientError
from workers.training.trainer import CHECKPOINT, Trainer

# torch is imported in functions: every process of a run imports this module.


class LineTrainer(Trainer[float]):
    """Trains one weight and one bias towards a target, the batch."""

    def __init__(self) -> None:
        import torch

        super().__init__(steps=4, learning_rate=0.1, seed=0, threads=1)
        network = torch.nn.Linear(1, 1)
        self._prepare(network, list(network.parameters()))

    @override
    def _add_gradients(self, batch: float) -> float:
        import torch

        loss = (self._network(torch.ones(1)) - batch).square().mean()
        loss.backward()
        return float(loss.item())

    @override
    def save(self, folder: Path) -> None:
        import torch

        torch.save(self._network.state_dict(), folder / "model.pt")

    def interrupt_update(self, number: int) -> None:
        """Interrupt the update of step `number` after its first weight."""
        import torch

        update = self._optimizer.step

        def interrupted() -> None:
            update()
            if self.steps_done == number:
                with torch.no_grad():
                    self._parameters[1].add_(1.0)
                raise KeyboardInterrupt

        self._optimizer.step = interrupted  # type: ignore[assignment, method-assign]


def run(trainer: LineTrainer, folder: Path, batches: list[float], every: int = 100) -> list[float]:
    return trainer.run(lambda number: batches[number], folder, every, lambda done, total: None)


def test_an_interrupted_update_is_made_again_from_the_checkpoint(tmp_path: Path) -> None:
    import torch

    batches = [1.0, 2.0, 3.0, 4.0]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    run(LineTrainer(), whole, batches)
    trainer = LineTrainer()
    trainer.interrupt_update(2)
    with pytest.raises(KeyboardInterrupt):
        run(trainer, parts, batches, every=1)
    assert len(run(LineTrainer(), parts, batches)) == 2
    assert torch.load(parts / "model.pt") == torch.load(whole / "model.pt")


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_ends_the_training(tmp_path: Path, broken: float) -> None:
    with pytest.raises(PermanentError, match=r"step 2 .*--learning-rate"):
        run(LineTrainer(), tmp_path, [1.0, broken, 1.0, 1.0], every=1)
    assert (tmp_path / CHECKPOINT).exists()
    assert not (tmp_path / "model.pt").exists()


def test_a_checkpoint_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match=r"cannot be written: .*resumes the training"):
        run(LineTrainer(), tmp_path / "none", [1.0] * 4, every=1)
