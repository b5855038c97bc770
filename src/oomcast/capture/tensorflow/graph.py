"""A traced function as plain nodes: who feeds whom, in the order they were written, without what nobody needs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...trace import Phase
from .same_nodes import representatives

__all__ = ["LOSS_SCOPE", "Graph", "Node", "OutputSpec", "compile_graph", "place_of_name"]


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """What TensorFlow's shape inference says of an output."""

    shape: tuple[int, ...] | None
    """None where some extent is unknown until it runs."""
    dtype: str
    itemsize: int


@dataclass(slots=True)
class Node:
    name: str
    type: str
    operation: Any
    """TensorFlow's own `Operation`, for its attributes."""
    inputs: list[tuple[int, int]]
    """(node, which of its outputs)"""
    outputs: tuple[OutputSpec, ...]
    phase: Phase
    module: str
    data_consumers: list[list[int]] = field(default_factory=list)
    """By output: the nodes that read it, as often as they read it."""
    control_consumers: list[int] = field(default_factory=list)
    waits_for: int = 0


@dataclass(slots=True)
class Graph:
    nodes: list[Node]
    arguments: list[int]
    """The nodes that stand for the function's inputs, in order."""
    results: list[tuple[int, int]]
    after_loss: set[int] = field(default_factory=set)
    """The nodes of the backward pass that need the loss; others of its nodes may run before."""


_HANDS_ON = frozenset({"Identity", "IdentityN", "PreventGradient", "StopGradient"})
_NEUTRAL: dict[str, dict[int, int]] = {
    "Mul": {0: 1, 1: 1},
    "RealDiv": {1: 1},
    "AddV2": {0: 0, 1: 0},
    "Add": {0: 0, 1: 0},
    "Sub": {1: 0},
}
"""Operator → which input leaves the other one as it is, with that value everywhere: Grappler folds these away."""
_SMALL = 1 << 16
LOSS_SCOPE = "compile_loss"
"""What Keras calls the part of a step that computes the loss."""
_STATEFUL_WITHOUT_EFFECT = frozenset({"ReadVariableOp", "VariableShape", "VarIsInitializedOp", "Placeholder"})


def compile_graph(function: Any, optimizer_scope: str = "", mirrors: Collection[Any] = ()) -> Graph:
    """The graph of a traced function (`FuncGraph`); `optimizer_scope` is how its optimizer's operators are called.

    `mirrors`: those of its inputs that stand for variables of other GPUs, of which nothing is followed.
    """
    elsewhere = _elsewhere(function, mirrors) - {tensor.op for tensor in function.inputs}
    operations = [operation for operation in function.get_operations() if operation not in elsewhere]
    outputs = [tensor for tensor in map(_source, function.outputs) if tensor.op not in elsewhere]
    needed = _needed([*outputs, *function.inputs], operations) - elsewhere
    needed_in_order = [operation for operation in operations if operation in needed]
    instead = representatives(needed_in_order, _source, _controls)
    kept = [operation for operation in needed_in_order if operation not in instead]
    index = {operation: number for number, operation in enumerate(kept)}
    index.update((operation, index[first]) for operation, first in instead.items())
    nodes = [_node(operation, index, optimizer_scope) for operation in kept]
    for number, (operation, node) in enumerate(zip(kept, nodes, strict=True)):
        for source, output in node.inputs:
            nodes[source].data_consumers[output].append(number)
        controls = {index[control] for control in _controls(operation) if control not in elsewhere}
        for source in controls:
            nodes[source].control_consumers.append(number)
        node.waits_for = len(node.inputs) + len(controls)
    arguments = [index[tensor.op] for tensor in function.inputs]
    results = [(index[tensor.op], tensor.value_index) for tensor in outputs]
    return Graph(nodes, arguments, results, _after_loss(nodes))


def _elsewhere(function: Any, mirrors: Collection[Any]) -> set[Any]:
    """What runs on another GPU than the one that is followed, the first: each is a device of this machine.

    `mirrors` are the function's inputs for variables there. What has no device belongs to where it reads.
    """
    found = {tensor.op for tensor in mirrors}
    for operation in function.get_operations():
        place = operation.device.rpartition(":")[2]
        if operation.device:
            if place.isdigit() and place != "0":
                found.add(operation)
        elif any(tensor.op in found for tensor in operation.inputs):
            found.add(operation)
    return found


def _after_loss(nodes: Sequence[Node]) -> set[int]:
    """Where nobody names the loss, as in a step of the job's own, what the forward pass computes stands for it."""
    is_named = any(node.name.startswith(LOSS_SCOPE) for node in nodes)
    reached: set[int] = set()
    for number, node in enumerate(nodes):
        begins = node.name.startswith(LOSS_SCOPE) if is_named else _computes_forward(node)
        if (begins and node.inputs) or any(source in reached for source, _ in node.inputs):
            reached.add(number)
    return {number for number in reached if nodes[number].phase is Phase.BACKWARD}


def _computes_forward(node: Node) -> bool:
    return node.phase is Phase.FORWARD and node.type not in (*_STATEFUL_WITHOUT_EFFECT, "Shape")


def _needed(ends: Sequence[Any], operations: Sequence[Any]) -> set[Any]:
    """What the results or an effect depend on; TensorFlow drops the rest before it runs a function."""
    waiting = [tensor.op for tensor in ends]
    waiting += [operation for operation in operations if _has_effect(operation)]
    found: set[Any] = set()
    while waiting:
        operation = waiting.pop()
        if operation in found:
            continue
        found.add(operation)
        waiting += [_source(tensor).op for tensor in operation.inputs]
        waiting += _controls(operation)
    return found


def _source(tensor: Any) -> Any:
    """Where a tensor really comes from: TensorFlow's optimizer takes nodes that only hand on out of the graph.

    It matters: Keras' optimizers pass all gradients through one `IdentityN`, which would hold back every update; and
    the gradient of silu multiplies its input by a constant 1, which would live from the forward pass to the backward.
    """
    while (handed_on := _handed_on(tensor)) is not None:
        tensor = handed_on
    return tensor


def _handed_on(tensor: Any) -> Any:
    """The input that is the output as well; None for a node that does something."""
    operation = tensor.op
    if operation.type in _HANDS_ON and not operation.control_inputs:
        return operation.inputs[tensor.value_index]
    for position in _NEUTRAL.get(operation.type, {}):
        kept, other = operation.inputs[1 - position], operation.inputs[position]
        if (
            kept.shape.is_fully_defined()
            and kept.shape == tensor.shape
            and _is_filled_with(other, _NEUTRAL[operation.type][position])
        ):
            return kept
    return None


def _is_filled_with(tensor: Any, value: int) -> bool:
    """Whether it is a constant that is this everywhere; large ones are not looked at."""
    if tensor.op.type != "Const" or (tensor.shape.num_elements() or 0) > _SMALL or not tensor.dtype.is_floating:
        return False
    import tensorflow as tf

    return bool((tf.make_ndarray(tensor.op.get_attr("value")) == value).all())


def _controls(operation: Any) -> list[Any]:
    """What a node waits for without reading it, and what those waited for that handed its inputs on."""
    waited_for = []
    for control in (*operation.control_inputs, *_inherited(operation)):
        if control.type in _HANDS_ON and not control.control_inputs:
            waited_for += [_source(tensor).op for tensor in control.inputs]
        else:
            waited_for.append(control)
    return waited_for


def _inherited(operation: Any) -> list[Any]:
    found = []
    for tensor in operation.inputs:
        while (handed_on := _handed_on(tensor)) is not None:
            found += tensor.op.control_inputs
            tensor = handed_on
    return found


def _has_effect(operation: Any) -> bool:
    return bool(operation.op_def.is_stateful) and operation.type not in _STATEFUL_WITHOUT_EFFECT


def _node(operation: Any, index: dict[Any, int], optimizer_scope: str) -> Node:
    outputs = tuple(_spec(tensor) for tensor in operation.outputs)
    phase, module = place_of_name(operation.name, optimizer_scope)
    return Node(
        name=operation.name,
        type=operation.type,
        operation=operation,
        inputs=[(index[tensor.op], tensor.value_index) for tensor in map(_source, operation.inputs)],
        outputs=outputs,
        phase=phase,
        module=module,
        data_consumers=[[] for _ in outputs],
    )


def _spec(tensor: Any) -> OutputSpec:
    dtype = tensor.dtype
    size = 0 if dtype.name in ("resource", "variant", "string") else dtype.size
    shape = tensor.shape.as_list() if tensor.shape.rank is not None else None
    known = None if shape is None or None in shape else tuple(shape)
    return OutputSpec(known, dtype.name, size)


def place_of_name(name: str, optimizer_scope: str) -> tuple[Phase, str]:
    """Which part of the step an operator belongs to, and the layer whose it is, by the scopes in its name."""
    scopes = name.split("/")
    if optimizer_scope and scopes[0].partition("_")[0] == optimizer_scope:
        return Phase.OPTIMIZER, ""
    if scopes[0].startswith("gradient_tape"):
        return Phase.BACKWARD, "/".join(scopes[1:-1])
    if scopes[0].startswith("AddN"):  # where gradients that meet are summed
        return Phase.BACKWARD, ""
    return Phase.FORWARD, "/".join(scopes[:-1])
