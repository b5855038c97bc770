"""Nodes that compute the same from the same, of which TensorFlow keeps one.

Grappler, which rewrites every function before it runs, merges them by default
(https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/grappler/optimizers/common_subgraph_elimination.cc):
a node without effects that has the type, the attributes, the device, the inputs and the control inputs of an earlier
one is dropped, and its readers read that one. So what two layers do to the same input in the same way, a padding, an
activation, is there once, and for as long as any of them needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

__all__ = ["representatives"]

_COMMUTATIVE = frozenset(
    {"Add", "AddV2", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mul"}
)
_STAYING = frozenset({"Placeholder", "Enter", "Exit", "NoOp"})


def representatives(
    operations: Sequence[Any], source: Callable[[Any], Any], controls: Callable[[Any], Sequence[Any]]
) -> dict[Any, Any]:
    """Operation → the earlier one that stands for it; only those that go are in it.

    `operations` are in an order in which they could run; `source` says where a tensor really comes from, and
    `controls` what an operation waits for.
    """
    found: dict[Hashable, Any] = {}
    instead: dict[Any, Any] = {}
    for operation in operations:
        if operation.type in _STAYING or operation.op_def.is_stateful:
            continue
        inputs = [(instead.get(tensor.op, tensor.op), tensor.value_index) for tensor in map(source, operation.inputs)]
        if operation.type in _COMMUTATIVE:
            inputs.sort(key=lambda pair: (id(pair[0]), pair[1]))
        waited_for = frozenset(instead.get(control, control) for control in controls(operation))
        first = found.setdefault((tuple(inputs), waited_for, _described(operation)), operation)
        if first is not operation:
            instead[operation] = first
    return instead


def _described(operation: Any) -> bytes:
    """Type, attributes and device; a constant's value is an attribute."""
    description = type(operation.node_def)()
    description.CopyFrom(operation.node_def)
    description.name = ""
    del description.input[:]
    described: bytes = description.SerializeToString(deterministic=True)
    return described
