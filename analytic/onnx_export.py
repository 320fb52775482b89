"""Trained models as ONNX graphs in float64, for runtimes without Python or PyTorch.

onnx comes with the ``onnx`` extra and is imported only when a graph is asked for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.bucketing import Encoding
from analytic.errors import AnalyticError, SpecificationError
from analytic.layers import Activated, Clipped, Layer, Layered, Linear, Lookup, Residual, Rounded, complete_layers

__all__ = ["OnnxMissingError", "to_onnx"]

OPSET, IR_VERSION = 18, 9
"""Versions of the graph: the oldest with all its operators, so that old runtimes read it."""


class OnnxMissingError(AnalyticError, ImportError):
    """onnx is not installed."""


def to_onnx(learner: Layered, model: Any) -> bytes:
    """Return an ONNX file from ``features``, float64 of shape (n, d), to ``scores`` of shape (n, c).

    They are those of ``decision_function``, with the differences that ``to_torch`` states. Only the error function of
    GELU is taken in float32, the one precision that onnxruntime has it in: each such activation is off by at most
    2^-21 |z|. A row with NaN or infinity has scores NaN where SAFLe would refuse it.

    Args:
        learner: the closed form.
        model: its complete model.

    Raises:
        OnnxMissingError: onnx is not installed.
        NotReadyError: the model still needs a sum.
        SpecificationError: a learner without layers, or with one that has no graph.
    """
    layers, graph = complete_layers(learner, model, "graph"), _Graph()
    graph.name(graph.stack(layers, "features"), "scores")
    return graph.to_bytes()


class _Graph:
    """Nodes and constants, each under a fresh name."""

    def __init__(self) -> None:
        try:
            import onnx
        except ImportError as error:
            raise OnnxMissingError(
                "to_onnx needs onnx, which is not installed; install the extra: pip install '.[onnx]'"
            ) from error
        self._onnx = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def to_bytes(self) -> bytes:
        """Return the file of the graph, checked."""
        onnx, helper = self._onnx, self._onnx.helper
        (features, scores) = (
            helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, ["rows", columns])
            for name, columns in (("features", "features"), ("scores", "scores"))
        )
        graph = helper.make_graph(self._nodes, "model", [features], [scores], initializer=self._constants)
        opset = [helper.make_opsetid("", OPSET)]
        whole = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="analytic-secagg")
        onnx.checker.check_model(whole, full_check=True)
        content: bytes = whole.SerializeToString()
        return content

    def op(self, kind: str, *inputs: str | float | NDArray[Any], **attributes: Any) -> str:
        """Add a node; arrays and numbers become constants. Return the name of its output."""
        name = f"{kind}.{len(self._nodes)}"
        names = [one if isinstance(one, str) else self._constant(one) for one in inputs]
        self._nodes.append(self._onnx.helper.make_node(kind, names, [name], **attributes))
        return name

    def name(self, output: str, name: str) -> None:
        """Give an output the name that it is asked for under."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [output], [name]))

    def _constant(self, array: float | NDArray[Any]) -> str:
        name = f"constant.{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def stack(self, layers: tuple[Layer, ...], rows: str) -> str:
        """Add layers one after the other; return the name of what comes out."""
        first = None
        for layer in layers:
            if isinstance(layer, Residual):
                first = rows if first is None else first
                rows = self.op("Add", rows, self.stack(layer.branch, first if layer.of_first else rows))
            else:
                rows = self._layer(layer, rows)
        return rows

    def _layer(self, layer: Layer, rows: str) -> str:
        match layer:
            case Linear(matrix=matrix, bias=bias):
                product = self.op("MatMul", rows, matrix)
                return product if bias is None else self.op("Add", product, bias)
            case Activated(name=name):
                return self._activated(name, rows)
            case Rounded(fraction_bits=bits):  # ties to the even multiple, as everywhere
                return self.op("Mul", self.op("Round", self.op("Mul", rows, 2.0**bits)), 2.0**-bits)
            case Clipped(low=low, high=high):
                return self.op("Min", self.op("Max", rows, low), high)  # ORT cannot join float64 Relu and Clip
            case Lookup():
                return self._lookup(layer, rows)
        raise SpecificationError(f"there is no graph for a layer {type(layer).__name__}; export the model to torch")

    def _activated(self, name: str, z: str) -> str:
        """An activation of ``analytic.integer_maps``, out of operators that runtimes have in float64."""
        match name:
            case "gelu":
                erf = self.op("Erf", self._cast(self.op("Div", z, math.sqrt(2.0)), "FLOAT"))
                twice = self.op("Add", self._cast(erf, "DOUBLE"), 1.0)
                return self.op("Mul", self.op("Mul", z, 0.5), twice)
            case "relu":
                return self.op("Relu", z)
            case "leaky_relu":
                return self.op("Max", z, self.op("Mul", z, 0.01))
            case "tanh":
                return self.op("Tanh", z)
            case "sine":
                return self.op("Sin", z)
            case "hardswish":
                ramp = self.op("Clip", self.op("Add", z, 3.0), 0.0, 6.0)
                return self.op("Div", self.op("Mul", z, ramp), 6.0)
            case "softshrink":
                return self.op("Shrink", z, lambd=0.5, bias=0.5)
            case "none":
                return z
        raise SpecificationError(f"there is no graph for the activation {name}; export the model to torch")

    def _lookup(self, layer: Lookup, rows: str) -> str:
        """The sum of each group's embedding (SAFLe, eq. 3-5)."""
        bucketing, grouping = layer.bucketing, layer.grouping
        reached = self.op("GreaterOrEqual", self.op("Unsqueeze", rows, np.array([2])), layer.thresholds)
        digits = self._sum(self._cast(reached, "INT64"), axis=2)
        if bucketing.encoding is not Encoding.INTEGER:
            overlapping = bucketing.encoding is Encoding.BINARY_OVERLAPPING
            numbers = np.arange(bucketing.n_buckets)
            bits = self.op("Greater" if overlapping else "Equal", self.op("Unsqueeze", digits, np.array([2])), numbers)
            digits = self.op("Reshape", self._cast(bits, "INT64"), np.array([0, -1]))
        powers = np.array([grouping.base**place for place in range(grouping.group_size)])
        grouped = self.op("Gather", digits, grouping.order.astype(np.int64), axis=1)
        within = self._sum(self.op("Mul", grouped, powers), axis=2)
        cells = self.op("Add", within, np.arange(grouping.n_groups) * grouping.n_values)
        scores = self._sum(self.op("Gather", layer.embeddings, cells, axis=0), axis=1)
        finite = self._cast(self.op("Less", self.op("Abs", rows), np.inf), "INT64")
        whole = self._cast(self.op("ReduceMin", finite, np.array([1]), keepdims=1), "BOOL")
        return self.op("Where", whole, scores, np.nan)

    def _cast(self, name: str, kind: str) -> str:
        return self.op("Cast", name, to=getattr(self._onnx.TensorProto, kind))

    def _sum(self, name: str, *, axis: int) -> str:
        return self.op("ReduceSum", name, np.array([axis]), keepdims=0)
