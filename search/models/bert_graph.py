"""A BERT encoder (Devlin et al., NAACL 2019) as a graph of OpenVINO, which runs it on processors.

The graph is made in memory from weights by the names of `BertModel`, so that no file of it has to
be kept. This module imports OpenVINO, which takes a tenth of a second: import it in functions.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from config.errors import PermanentError
from search.models.packed_weights import ModelSizes

# OpenVINO reports each import of itself to its makers, through this package if it can be imported.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # blocks imports
# Its converter of models, which is not used, takes as long to import as the rest.
sys.modules.setdefault("openvino.tools.ovc", None)  # type: ignore[arg-type]  # blocks imports

import openvino as ov  # noqa: E402 - after its telemetry is blocked
from openvino import Node  # noqa: E402 - after its telemetry is blocked
from openvino import opset15 as ops  # noqa: E402 - after its telemetry is blocked

Weights = dict[str, npt.NDArray[Any]]
"""Weights by name: float32, or the bits of bfloat16 as uint16."""

_KEPT_SMALL = "decompression_0"
"""Marks a conversion to float32 that OpenVINO leaves to the product that follows. Without the mark
it replaces the constant by a float32 copy."""

_CALLS_AT_ONCE = 8
"""Maximum streams, one per thread; further threads that encode at the same time wait."""

_core_lock = threading.Lock()


class BertGraph:
    """An encoder with mean pooling. Threads may share it.

    weights: float32; kept, since compiled networks share their memory. low_precision: multiplies
    in bfloat16, to which the matrices of `weights` are converted in place. Raises PermanentError
    if the network cannot be compiled.

    OpenVINO computes in threads of its own, which have the priority of the thread that compiled
    the network. It is therefore compiled once for each priority that callers have: bulk encoding
    takes no time from queries.
    """

    def __init__(self, sizes: ModelSizes, weights: Weights, *, low_precision: bool) -> None:
        self._sizes = sizes
        self._weights = weights
        if low_precision:
            for name, values in weights.items():
                if values.ndim > 1:
                    weights[name] = to_bfloat16(values)
        self._precision = "bf16" if low_precision else "f32"
        self._lock = threading.Lock()
        self._compiled: dict[int, _CompiledGraph] = {}
        # OpenVINO registers the Python types of a result with the first result, which fails if two
        # threads do so at once ("Object of type 'iterator' is not an instance of 'iterator'").
        self.encode(np.zeros((1, 1, sizes.hidden), np.float32), np.ones((1, 1), np.int64))

    def encode(
        self, embeddings: npt.NDArray[np.float32], mask: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float32]:
        """Return the mean vector of each text, (texts, hidden), not normalised.

        embeddings: of words, (texts, tokens, hidden). mask: (texts, tokens), 1 for tokens and 0
        for padding; every text has a token.
        """
        attended = np.where(mask, np.float32(0), np.finfo(np.float32).min)[:, None, None, :]
        shares = (mask / mask.sum(axis=1, keepdims=True)).astype(np.float32)[:, None, :]
        return self._get_compiled().infer([embeddings, attended, shares])

    def _get_compiled(self) -> _CompiledGraph:
        priority = _thread_priority()
        compiled = self._compiled.get(priority)
        if compiled is None:
            with self._lock:
                compiled = self._compiled.get(priority)
                if compiled is None:
                    compiled = self._compiled[priority] = self._compile()
        return compiled

    def _compile(self) -> _CompiledGraph:
        streams = min(os.cpu_count() or 1, _CALLS_AT_ONCE)
        try:
            model = _get_core().compile_model(
                _GraphMaker(self._sizes, self._weights).make(),
                "CPU",
                {
                    "INFERENCE_PRECISION_HINT": self._precision,
                    "NUM_STREAMS": streams,
                    "INFERENCE_NUM_THREADS": streams,
                    "ENABLE_CPU_PINNING": False,
                },
            )
        except (KeyError, RuntimeError) as error:
            raise PermanentError(f"the encoder cannot be made ({error})") from error
        return _CompiledGraph(model)


def _get_core() -> ov.Core:
    """Return OpenVINO's runtime, one for the process, which is never released.

    It gives the thread that first compiles a network another stack for signal handlers. Released in
    another thread, or before another runtime of the same thread, it frees that stack while it is
    in use, and the next signal ends the process without a message.
    """
    with _core_lock:
        return _make_core(os.getpid())


@functools.cache
def _make_core(process: int) -> ov.Core:
    del process  # the runtime's threads are not in a forked process, which makes its own
    return ov.Core()


class _CompiledGraph:
    """A compiled network, with the requests that no thread uses at the moment."""

    def __init__(self, model: ov.CompiledModel) -> None:
        self._model = model
        self._idle: list[ov.InferRequest] = []

    def infer(self, inputs: list[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._model.create_infer_request()
        try:
            found = request.infer(inputs, share_inputs=True)
            return np.array(found[0][:, 0])
        finally:
            self._idle.append(request)


def _thread_priority() -> int:
    """Return the priority of this thread; on other systems than Linux all have the same."""
    if sys.platform != "linux":
        return 0
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


class _GraphMaker:
    """Makes the graph; its constants share the memory of the weights."""

    def __init__(self, sizes: ModelSizes, weights: Weights) -> None:
        self._sizes = sizes
        self._weights = weights

    def make(self) -> ov.Model:
        """Return the graph. Its inputs: word embeddings, values added to attention, shares of the
        mean."""
        hidden = self._sizes.hidden
        words = ops.parameter([-1, -1, hidden], np.float32)
        attended = ops.parameter([-1, 1, 1, -1], np.float32)
        shares = ops.parameter([-1, 1, -1], np.float32)
        values = self._norm(words, "embeddings.LayerNorm")
        for number in range(self._sizes.layers):
            values = self._layer(values, attended, f"encoder.layer.{number}")
        pooled = ops.matmul(shares, values, False, False)
        return ov.Model([ops.result(pooled)], [words, attended, shares], "bert")

    def _layer(self, values: Node, attended: Node, name: str) -> Node:
        sizes = self._sizes
        heads = _integers([0, 0, sizes.heads, sizes.hidden // sizes.heads])
        query, key, value = (
            ops.transpose(
                ops.reshape(self._linear(values, f"{name}.attention.self.{part}"), heads, True),
                _integers([0, 2, 1, 3]),
            )
            for part in ("query", "key", "value")
        )
        found = ops.scaled_dot_product_attention(query, key, value, attended)
        joined = ops.reshape(
            ops.transpose(found, _integers([0, 2, 1, 3])), _integers([0, 0, sizes.hidden]), True
        )
        values = self._residual(joined, values, f"{name}.attention.output")
        inner = ops.gelu(self._linear(values, f"{name}.intermediate.dense"), "erf")
        return self._residual(inner, values, f"{name}.output")

    def _residual(self, values: Node, before: Node, name: str) -> Node:
        added = ops.add(self._linear(values, f"{name}.dense"), before)
        return self._norm(added, f"{name}.LayerNorm")

    def _linear(self, values: Node, name: str) -> Node:
        product = ops.matmul(values, self._constant(f"{name}.weight"), False, True)
        return ops.add(product, self._constant(f"{name}.bias"))

    def _norm(self, values: Node, name: str) -> Node:
        centred = ops.mvn(values, _integers([-1]), True, self._sizes.norm_epsilon, "inside_sqrt")
        scaled = ops.multiply(centred, self._constant(f"{name}.weight"))
        return ops.add(scaled, self._constant(f"{name}.bias"))

    def _constant(self, name: str) -> Node:
        values = self._weights[name]
        if values.dtype == np.float32:
            return ops.constant(values, shared_memory=True)
        stored = ov.Tensor(values, ov.Shape(values.shape), ov.Type.bf16)
        converted = ops.convert(ops.constant(stored, shared_memory=True), np.float32)
        converted.get_rt_info()[_KEPT_SMALL] = ""
        return converted


def to_bfloat16(matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Return the bits of a matrix in bfloat16, each value rounded to the nearest, ties to even."""
    bits = matrix.view(np.uint32)
    rounded = (bits >> 16) & 1
    rounded += bits
    rounded += 0x7FFF
    return (rounded >> 16).astype(np.uint16)


def _integers(values: list[int]) -> Node:
    return ops.constant(np.array(values, dtype=np.int64))
