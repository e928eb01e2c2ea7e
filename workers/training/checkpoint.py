"""Checkpoints of a training: trained weights, the optimizer's moments and the number of steps.

They are safetensors, without pickle. torch and safetensors are imported in functions: the import
takes seconds.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from config.errors import PermanentError

CHECKPOINT = "checkpoint.safetensors"

_WARM_UP = 0.05
"""Share of the steps with a rising learning rate; then it decays as a cosine (SkillRouter §4.2)."""


def save_checkpoint(network: Any, optimizer: Any, done: int, folder: Path) -> None:
    """Write the parameters that are trained, their moments and the number of steps atomically."""
    from safetensors.torch import save_file

    tensors = {}
    for name, parameter in _trained(network):
        tensors[f"weight.{name}"] = parameter.detach()
        state = optimizer.state.get(parameter, {})
        for moment in ("exp_avg", "exp_avg_sq"):
            if moment in state:
                tensors[f"{moment}.{name}"] = state[moment]
    temporary = folder / f".{CHECKPOINT}"
    save_file(tensors, temporary, metadata={"done": str(done)})
    temporary.replace(folder / CHECKPOINT)


def load_checkpoint(network: Any, optimizer: Any, folder: Path, device: str) -> int:
    """Restore the checkpoint of a folder and return its number of steps; 0 if there is none.

    Raises PermanentError if it is damaged or of another model.
    """
    import torch
    from safetensors import SafetensorError, safe_open

    path = folder / CHECKPOINT
    if not path.exists():
        return 0
    try:
        with safe_open(path, "pt", device=device) as tensors, torch.no_grad():
            done = int(tensors.metadata()["done"])
            known = set(tensors.keys())
            for name, parameter in _trained(network):
                parameter.copy_(tensors.get_tensor(f"weight.{name}"))
                if f"exp_avg.{name}" in known:
                    optimizer.state[parameter] = {
                        "step": torch.tensor(float(done)),
                        "exp_avg": tensors.get_tensor(f"exp_avg.{name}"),
                        "exp_avg_sq": tensors.get_tensor(f"exp_avg_sq.{name}"),
                    }
    except (SafetensorError, KeyError, ValueError, RuntimeError, OSError) as error:
        raise PermanentError(
            f"{path} is not a checkpoint of this training ({error}); start over with --fresh"
        ) from error
    return done


def learning_rate_factor(done: int, steps: int) -> float:
    """The factor of the learning rate: a linear warm-up, then a cosine decay to 0."""
    rise = max(1, round(_WARM_UP * steps))
    if done < rise:
        return (done + 1) / rise
    return 0.5 * (1.0 + math.cos(math.pi * (done - rise) / max(1, steps - rise)))


def _trained(network: Any) -> list[tuple[str, Any]]:
    return [(name, one) for name, one in network.named_parameters() if one.requires_grad]
