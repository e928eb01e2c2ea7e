"""Low-rank adapters of encoders (LoRA; Hu et al., ICLR 2022): a small file on top of a model.

An adapter adds `scale · B·A` to the weight of each linear layer of a transformer, A (rank, inputs)
and B (outputs, rank). It is saved as float16 safetensors: 1–3 MB for a model of 6–12 layers.

torch is imported in functions: the import takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from config.errors import PermanentError

ADAPTER_FILE = "adapter.safetensors"
"""The adapter in the folder of a model that was trained with one."""

SCALE = 2.0
"""Factor of the added product, which stays the same at every rank."""

_SMALL_PRODUCT = 200_000
"""Multiplications; OpenBLAS uses one thread up to 262,144."""


def add_adapter(network: Any, rank: int, layers: int = 0) -> list[Any]:
    """Add an untrained adapter to a transformer and return its parameters, the only trainable ones.

    layers: adapt only this number of last layers, which shortens backpropagation; 0: all layers. B
    starts at 0, so that the network's output stays the same at first.
    """
    import torch

    class LowRankLinear(torch.nn.Module):
        def __init__(self, linear: Any) -> None:
            super().__init__()
            self.linear = linear
            inputs, outputs = linear.in_features, linear.out_features
            self.a = torch.nn.Parameter(torch.randn(rank, inputs) / math.sqrt(inputs))
            self.b = torch.nn.Parameter(torch.zeros(outputs, rank))

        def forward(self, values: Any) -> Any:
            return self.linear(values) + (values @ self.a.T) @ self.b.T * SCALE

    for parameter in network.parameters():
        parameter.requires_grad_(False)
    parameters: list[Any] = []
    adaptable = list(_linear_layers(network))
    first = max(_layer_number(name) for name, _ in adaptable) + 1 - layers if layers else 0
    for name, linear in adaptable:
        if _layer_number(name) < first:
            continue
        adapted = LowRankLinear(linear).to(linear.weight.device)
        parent, _, own = name.rpartition(".")
        setattr(network.get_submodule(parent), own, adapted)
        parameters += [adapted.a, adapted.b]
    return parameters


def take_adapter(network: Any) -> dict[str, Any]:
    """Return the tensors of an adapter, float16, which `apply_adapter` adds to the original
    model."""
    return {
        f"{name}.{part}": getattr(layer, part).detach().half().cpu().contiguous()
        for name, layer in network.named_modules()
        if hasattr(layer, "linear")
        for part in ("a", "b")
    }


def apply_adapter(network: Any, path: Path) -> None:
    """Add the adapter of a file to a transformer.

    Raises PermanentError if it cannot be read or is of another model.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        with torch.no_grad():
            _add(network, load_file(path))
    except (OSError, SafetensorError, AttributeError, KeyError, RuntimeError) as error:
        raise PermanentError(f"{path} is not an adapter of this encoder ({error})") from error


def add_to_weights(weights: dict[str, npt.NDArray[np.float32]], path: Path) -> None:
    """Add the adapter of a file to the weights of linear layers, by name; torch is not needed.

    Raises PermanentError if it cannot be read or is of another model.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors = load_file(path)
        for name in sorted({key.rpartition(".")[0] for key in tensors}):
            a, b = (tensors[f"{name}.{part}"].astype(np.float32) for part in ("a", "b"))
            _add_product(weights[f"{name}.weight"], np.float32(SCALE) * b, a)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise PermanentError(f"{path} is not an adapter of this encoder ({error})") from error


def save_adapter(tensors: dict[str, Any], path: Path) -> None:
    """Write the tensors of `take_adapter`."""
    from safetensors.torch import save_file

    save_file(tensors, path)


def _add(network: Any, tensors: dict[str, Any]) -> None:
    for name in sorted({key.rpartition(".")[0] for key in tensors}):
        weight = network.get_submodule(name).weight
        product = tensors[f"{name}.b"].float() @ tensors[f"{name}.a"].float()
        weight += (SCALE * product).to(weight.device, weight.dtype)


def _add_product(
    weight: npt.NDArray[np.float32], b: npt.NDArray[np.float32], a: npt.NDArray[np.float32]
) -> None:
    """Add `b @ a` in parts so small that OpenBLAS starts no threads, which would take half a
    second."""
    rows = max(1, _SMALL_PRODUCT // a.size)
    for first in range(0, len(b), rows):
        weight[first : first + rows] += b[first : first + rows] @ a


def _linear_layers(network: Any) -> Iterator[tuple[str, Any]]:
    """Yield the linear layers of the transformer's blocks, without a pooler, whose output is not
    used."""
    import torch

    for name, layer in network.named_modules():
        if isinstance(layer, torch.nn.Linear) and "pooler" not in name.split("."):
            yield name, layer


def _layer_number(name: str) -> int:
    """Return the number in a layer's name such as `encoder.layer.4.output.dense`; 0 without one."""
    return next((int(part) for part in name.split(".") if part.isdigit()), 0)
