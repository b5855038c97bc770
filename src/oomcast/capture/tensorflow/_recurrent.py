"""cuDNN's recurrent layers, which Keras calls in place of a loop where there is a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._graph import Node
from ._memory import Value

if TYPE_CHECKING:
    from ._executor import Executor

__all__ = ["RECURRENT"]

_GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}


def _forward(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    """Outputs as inferred, but for the reserve: every gate's value, the cell and its activation, for every step."""
    outer, inner, _ = inputs[0].shape
    batch = inner if node.operation.get_attr("time_major") else outer
    states = inputs[1].elements // batch  # units of all layers
    kind = node.operation.get_attr("rnn_mode").decode()
    kept = _GATES[kind] + (2 if kind == "lstm" else 1)
    reserve = (outer * inner * states * kept,) if node.operation.get_attr("is_training") else (0,)
    outputs = []
    for position, spec in enumerate(node.outputs):
        shape = reserve if position == 3 else (0,) if position == 4 else spec.shape
        outputs.append(executor.new(node, spec, shape))
    return outputs


RECURRENT: dict[str, Any] = {"CudnnRNNV3": _forward}
