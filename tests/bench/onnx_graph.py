"""The packaged model as a graph of ONNX Runtime, for `tests.bench.encoder_engines`.

It needs the packages onnx and onnxruntime.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from search.models.identity import DEFAULT_MODEL, adapter_files
from search.models.low_rank import add_to_weights
from search.models.packed_weights import PackedWeights, packed_weights_path

_BLOCK = 32
_OWN = "com.microsoft"


class OnnxGraph:
    """Called as `search.models.bert_graph.BertGraph` is. precision: f32, or 8bit for weights."""

    def __init__(self, precision: str) -> None:
        packed = PackedWeights(packed_weights_path())
        self._weights = packed.read_layers()
        for path in adapter_files(DEFAULT_MODEL):
            add_to_weights(self._weights, path)
        self._precision, self._sizes = precision, packed.sizes
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            self._make().SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def encode(self, embeddings: Any, mask: Any) -> Any:
        """Return the mean vector of each text, (texts, hidden)."""
        shares = (mask / mask.sum(axis=1, keepdims=True)).astype(np.float32)[:, None, :]
        given = {"words": embeddings, "mask": mask.astype(np.int32), "shares": shares}
        return self._session.run(None, given)[0][:, 0]

    def _make(self) -> Any:
        values = self._add(
            "LayerNormalization",
            ["words", *self._norm("embeddings.LayerNorm")],
            epsilon=self._sizes.norm_epsilon,
            axis=-1,
        )
        for number in range(self._sizes.layers):
            name = f"encoder.layer.{number}"
            parts = [
                self._linear(values, f"{name}.attention.self.{part}")
                for part in ("query", "key", "value")
            ]
            found = self._add(
                "MultiHeadAttention", [*parts, "", "mask"], domain=_OWN, num_heads=self._sizes.heads
            )
            values = self._residual(found, values, f"{name}.attention.output")
            inner = self._add(
                "Gelu", [self._linear(values, f"{name}.intermediate.dense")], domain=_OWN
            )
            values = self._residual(inner, values, f"{name}.output")
        last = self._add("MatMul", ["shares", values])
        hidden = self._sizes.hidden
        floats = TensorProto.FLOAT
        graph = helper.make_graph(
            self._nodes,
            "bert",
            [
                helper.make_tensor_value_info("words", floats, ["b", "t", hidden]),
                helper.make_tensor_value_info("mask", TensorProto.INT32, ["b", "t"]),
                helper.make_tensor_value_info("shares", floats, ["b", 1, "t"]),
            ],
            [helper.make_tensor_value_info(last, floats, ["b", 1, hidden])],
            [numpy_helper.from_array(value, name) for name, value in self._constants.items()],
        )
        versions = [helper.make_opsetid("", 17), helper.make_opsetid(_OWN, 1)]
        return helper.make_model(graph, opset_imports=versions, ir_version=10)

    def _linear(self, values: str, name: str) -> str:
        weight, bias = self._weights[f"{name}.weight"], self._constant(f"{name}.bias")
        if self._precision == "f32":
            self._constants[name] = np.ascontiguousarray(weight.T)
            return self._add("Add", [self._add("MatMul", [values, name]), bias])
        blocks = weight.reshape(len(weight), -1, _BLOCK)
        scales = np.abs(blocks).max(axis=-1) / 127
        self._constants[name] = np.rint(blocks / scales[..., None] + 128).astype(np.uint8)
        self._constants[f"{name}.scales"] = scales.astype(np.float32)
        return self._add(
            "MatMulNBits",
            [values, name, f"{name}.scales", "", "", bias],
            domain=_OWN,
            K=weight.shape[1],
            N=weight.shape[0],
            bits=8,
            block_size=_BLOCK,
            accuracy_level=4,
        )

    def _residual(self, values: str, before: str, name: str) -> str:
        added = [self._linear(values, f"{name}.dense"), before, *self._norm(f"{name}.LayerNorm")]
        return self._add(
            "SkipLayerNormalization", added, domain=_OWN, epsilon=self._sizes.norm_epsilon
        )

    def _norm(self, name: str) -> list[str]:
        return [self._constant(f"{name}.weight"), self._constant(f"{name}.bias")]

    def _constant(self, name: str) -> str:
        self._constants[name] = self._weights[name]
        return name

    def _add(self, kind: str, given: list[str], **options: Any) -> str:
        made = f"{kind}.{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, given, [made], **options))
        return made
