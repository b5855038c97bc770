"""What each operator does with memory: a table. What is not in it allocates each of its outputs.

Kernels of TensorFlow share an input's buffer with their output in three ways: they hand the tensor on (`ALIASES`), they
write into the input's buffer if nobody else holds it (`FORWARDS`, `forward_input_or_allocate_output` in C++), or they
change a variable where it lies, unless a reader still holds its old content, which is then copied first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import BadInput
from ...trace import Category, Phase
from .graph import Node
from .kernels import RECURRENT, convolution_kernel
from .lists import LIST_OPERATORS, list_like
from .memory import Value

if TYPE_CHECKING:
    from .executor import Executor

__all__ = ["Operators", "Variable"]

Compute = Callable[["Executor", Node, list[Value]], list[Value]]


@dataclass(slots=True)
class Variable:
    """What a resource handle stands for."""

    name: str
    value: Value
    category: Category


ALIASES = frozenset(
    (
        "Bitcast",
        "CheckNumerics",
        "CheckNumericsV2",
        "EnsureShape",
        "ExpandDims",
        "Identity",
        "IdentityN",
        "PlaceholderWithDefault",
        "PreventGradient",
        "Reshape",
        "Snapshot",
        "Squeeze",
        "StopGradient",
    )
)

_UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Conj Cos Cosh Digamma Elu Erf Erfc Erfinv Exp Expm1 Floor Inv
    Invert IsFinite IsInf IsNan LeakyRelu Lgamma Log Log1p LogicalNot Ndtri Neg OnesLike Reciprocal Relu Relu6 Rint
    Round Rsqrt Selu Sigmoid Sign Sin Sinh Softmax LogSoftmax Softplus Softsign Sqrt Square Tan Tanh ZerosLike BiasAdd
    BiasAddV1 ClipByValue L2Normalize"""
_BINARY = """Add AddV2 Atan2 BitwiseAnd BitwiseOr BitwiseXor Div DivNoNan EluGrad FloorDiv FloorMod InvGrad
    LeakyReluGrad Maximum Minimum Mod Mul MulNoNan Pow RealDiv ReciprocalGrad Relu6Grad ReluGrad RsqrtGrad SeluGrad
    SigmoidGrad SoftplusGrad SoftsignGrad SqrtGrad SquaredDifference Sub TanhGrad TruncateDiv TruncateMod Xdivy Xlog1py
    Xlogy LogicalAnd LogicalOr"""
FORWARDS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(_UNARY.split(), (0,)),
    **dict.fromkeys(_BINARY.split(), (0, 1)),
    "AddN": tuple(range(64)),
    "AccumulateNV2": tuple(range(64)),
    "Select": (1, 2),
    "SelectV2": (1, 2),
    "FusedBatchNormV3": (0,),
    "SparseSoftmaxCrossEntropyWithLogits": (0,),
    "SoftmaxCrossEntropyWithLogits": (0,),
    "CollectiveReduceV2": (0,),
    "TensorScatterUpdate": (0,),
    "TensorScatterAdd": (0,),
}
"""Which inputs' buffers an output of the same size and type may take over."""


class Operators:
    """The table, made ready for a run: `compute` is what the executor calls for every node."""

    def __init__(self) -> None:
        self._table: dict[str, Compute] = {
            **dict.fromkeys(ALIASES, _alias),
            **LIST_OPERATORS,
            **RECURRENT,
            "Cast": _cast,
            "Shape": _shape,
            "ShapeN": _shape,
            "Size": _shape,
            "Rank": _shape,
            "Slice": _slice,
            "StridedSlice": _slice,
            "Tile": _same_or_new,
            "BroadcastTo": _same_or_new,
            "Split": _split,
            "SplitV": _split,
            "Unpack": _split,
            "ReadVariableOp": _read_variable,
            "ResourceGather": _allocate,
            "VariableShape": _variable_shape,
            "AssignVariableOp": _assign,
            "AssignAddVariableOp": _update_in_place,
            "AssignSubVariableOp": _update_in_place,
            "PartitionedCall": _call,
            "StatefulPartitionedCall": _call,
            "While": _while,
            "StatelessWhile": _while,
            "If": _if,
            "StatelessIf": _if,
            "MaxPoolGrad": _allocate,
            "NoOp": _nothing,
        }

    def compute(self, executor: Executor, node: Node, inputs: list[Value], key: tuple[int, int]) -> list[Value]:
        if node.type == "Const":
            return [executor.constant(node, key)]
        if node.phase is Phase.OPTIMIZER:
            _note_gradients(executor, inputs)
        known = executor.shapes.evaluate(node, inputs) if inputs else None
        found = self._table.get(node.type)
        if known is not None and node.type not in ALIASES:
            outputs = [executor.new(node, spec, value.shape) for spec, value in zip(node.outputs, known, strict=True)]
        elif found is not None:
            outputs = found(executor, node, inputs)
        elif node.type.startswith(("ResourceApply", "ResourceSparseApply", "ResourceScatter")):
            outputs = _update_in_place(executor, node, inputs)
        elif node.type in FORWARDS:
            outputs = _forward(executor, node, inputs)
        else:
            _check_known(executor, node)
            outputs = _allocate(executor, node, inputs)
        convolution_kernel(executor, node, inputs, outputs)
        if known is not None:
            for output, value in zip(outputs, known, strict=True):
                output.known = value
        return outputs


def _note_gradients(executor: Executor, inputs: list[Value]) -> None:
    """What backward made and the optimizer reads is a gradient."""
    memory = executor.memory
    for value in inputs:
        if value.buffer is not None and value.buffer.index >= 0 and memory.phase_of(value.buffer) is Phase.BACKWARD:
            memory.relabel(value.buffer, Category.GRADIENT)


def _check_known(executor: Executor, node: Node) -> None:
    import tensorflow as tf

    if node.operation.op_def.is_stateful and any(spec.dtype == "resource" for spec in node.outputs):
        return
    if not hasattr(tf.raw_ops, node.type) and not node.type.startswith("_"):
        executor.unsupported[f"custom operator {node.type}: only its outputs are counted"] += 1


def _shapes_of(executor: Executor, node: Node, inputs: list[Value]) -> list[tuple[int, ...]]:
    if all(spec.shape is not None for spec in node.outputs):
        return [spec.shape for spec in node.outputs if spec.shape is not None]
    if any(spec.itemsize == 0 for spec in node.outputs):
        return [spec.shape or () for spec in node.outputs]
    return executor.shapes.infer(node, inputs)


def _allocate(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    shapes = _shapes_of(executor, node, inputs)
    return [executor.new(node, spec, shape) for spec, shape in zip(node.outputs, shapes, strict=True)]


def _forward(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    """The first free input that is as large as an output becomes it."""
    outputs = []
    candidates = [inputs[position] for position in FORWARDS[node.type] if position < len(inputs)]
    for spec, shape in zip(node.outputs, _shapes_of(executor, node, inputs), strict=True):
        elements = math.prod(shape)
        taken = next(
            (
                value
                for value in candidates
                if value.buffer is not None
                and value.buffer.references == 1
                and value.dtype == spec.dtype
                and value.elements == elements
            ),
            None,
        )
        if taken is not None:
            candidates.remove(taken)
            outputs.append(Value(shape, spec.dtype, spec.itemsize, taken.buffer))
        elif any(value.payload is not None for value in inputs):
            outputs.append(_of_variants(executor, node, inputs))
        else:
            outputs.append(executor.new(node, spec, shape))
    return outputs


def _of_variants(executor: Executor, node: Node, inputs: list[Value]) -> Value:
    """Sums and zeros of tensor lists stand for lists of the same lengths; their elements are made when they are set."""
    return list_like(executor, node, inputs)


def _alias(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    shapes = _shapes_of(executor, node, inputs)
    return [
        Value(shape if spec.itemsize else value.shape, spec.dtype, spec.itemsize, value.buffer, payload=value.payload)
        for spec, shape, value in zip(node.outputs, shapes, inputs, strict=False)
    ]


def _cast(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    same = inputs[0].dtype == node.outputs[0].dtype
    return _alias(executor, node, inputs) if same else _allocate(executor, node, inputs)


def _shape(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    import numpy

    outputs = []
    for spec, value in zip(node.outputs, inputs, strict=True):
        fact = value.elements if node.type == "Size" else len(value.shape) if node.type == "Rank" else value.shape
        known = numpy.array(fact, dtype=spec.dtype)
        output = executor.new(node, spec, known.shape)
        output.known = known
        outputs.append(output)
    return outputs


def _same_or_new(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    shapes = _shapes_of(executor, node, inputs)
    if shapes[0] == inputs[0].shape:
        return _alias(executor, node, inputs)
    return _allocate(executor, node, inputs)


def _slice(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    """A slice of whole rows stays where it is."""
    (shape,) = _shapes_of(executor, node, inputs)
    source = inputs[0]
    whole_rows = node.type == "Slice" and len(shape) == len(source.shape) and shape[1:] == source.shape[1:]
    if shape == source.shape or (whole_rows and _is_aligned(source)):
        return [Value(shape, source.dtype, source.itemsize, source.buffer)]
    return _allocate(executor, node, inputs)


def _is_aligned(value: Value) -> bool:
    return bool(value.shape) and math.prod(value.shape[1:]) * value.itemsize % 64 == 0


def _split(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    """Pieces along the first dimension stay where they are, if each begins at an aligned address."""
    shapes = _shapes_of(executor, node, inputs)
    source = next(value for value in inputs if value.dtype == node.outputs[0].dtype and value.shape)
    first = node.type == "Unpack" and node.operation.get_attr("axis") == 0
    if node.type in ("Split", "SplitV") and len(shapes[0]) == len(source.shape):
        first = shapes[0][1:] == source.shape[1:]
    if len(node.outputs) == 1 and node.type != "Unpack":
        first = True
    if first and all(math.prod(shape) * source.itemsize % 64 == 0 for shape in shapes):
        return [Value(shape, source.dtype, source.itemsize, source.buffer) for shape in shapes]
    return _allocate(executor, node, inputs)


def _variable(inputs: list[Value], node: Node) -> Variable:
    variable = inputs[0].payload
    if not isinstance(variable, Variable):
        raise BadInput(f"{node.name} uses a resource that is not a variable ({node.type}); oomcast cannot follow it.")
    return variable


def _read_variable(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    held = _variable(inputs, node).value
    return [Value(held.shape, held.dtype, held.itemsize, held.buffer, held.known)]


def _variable_shape(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    return _shape(executor, node, [_variable(inputs, node).value])


def _assign(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    """The variable takes over the tensor itself."""
    variable, value = _variable(inputs, node), inputs[1]
    old, variable.value = variable.value, Value(value.shape, value.dtype, value.itemsize, value.buffer)
    executor.memory.hold(variable.value)
    executor.memory.drop(old)
    if value.buffer is not None and value.buffer.index >= 0:
        executor.memory.relabel(value.buffer, variable.category)
    return []


def _update_in_place(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    """Every variable among the inputs is written to; who still reads the old content makes it be copied first."""
    memory = executor.memory
    for handle in inputs:
        variable = handle.payload
        if isinstance(variable, Variable) and variable.value.buffer is not None:
            old = variable.value
            if old.buffer is not None and old.buffer.references > 1 and old.buffer.index >= 0:
                buffer = memory.new(old.shape, old.dtype, old.itemsize, node.type, variable.name, variable.category)
                variable.value = Value(old.shape, old.dtype, old.itemsize, buffer)
                memory.hold(variable.value)
                memory.drop(old)
    return []


def _taken(inputs: list[Value]) -> list[Value]:
    """A function takes its arguments over: TensorFlow puts it in the place of the node that calls it."""
    taken = list(inputs)
    inputs.clear()
    return taken


def _call(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    if "_XlaMustCompile" in node.operation.node_def.attr and node.operation.get_attr("_XlaMustCompile"):
        executor.assumptions.setdefault(
            "a part of the step is compiled by XLA on its own (Keras does so with grouped convolutions): what it "
            "copies to lay its operands out anew is not counted"
        )
    results = executor.run(executor.function(node, "f"), _taken(inputs))
    executor.release_later(results)
    return results


def _while(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    results = executor.loop(node, _taken(inputs))
    executor.release_later(results)
    return [Value(v.shape, v.dtype, v.itemsize, v.buffer, v.known, v.payload) for v in results]


def _if(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    predicate, *arguments = _taken(inputs)
    executor.memory.drop(predicate)
    if predicate.known is None:
        executor.assumptions.setdefault(
            f"The condition of {node.name} is only known when it runs: its first branch was taken"
        )
    branch = "then_branch" if predicate.known is None or bool(predicate.known) else "else_branch"
    results = executor.run(executor.function(node, branch), arguments)
    executor.release_later(results)
    return results


def _nothing(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    return []
