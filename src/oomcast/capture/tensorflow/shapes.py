"""Shapes and small values that TensorFlow's own inference and kernels give for inputs known only while running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from ...errors import BadInput
from .graph import Node
from .memory import Value

__all__ = ["Shapes"]


class Shapes:
    """Answers are remembered: loops ask the same again and again."""

    LARGEST_KNOWN = 4096
    """Elements up to which values are followed."""

    def __init__(self) -> None:
        self._inferred: dict[Any, list[tuple[int, ...]]] = {}
        self._evaluated: dict[Any, list[Any] | None] = {}

    def infer(self, node: Node, inputs: list[Value]) -> list[tuple[int, ...]]:
        """The output shapes for these inputs, by TensorFlow's shape functions; BadInput where they do not follow."""
        key = (
            node.operation,
            tuple((value.shape, None if value.known is None else value.known.tobytes()) for value in inputs),
        )
        if key not in self._inferred:
            self._inferred[key] = self._infer(node, inputs)
        return self._inferred[key]

    def _infer(self, node: Node, inputs: list[Value]) -> list[tuple[int, ...]]:
        import tensorflow as tf

        operation = node.operation
        with tf.Graph().as_default() as scratch:
            feeds = []
            for value, tensor in zip(inputs, operation.inputs, strict=True):
                if value.known is not None:
                    feeds.append(tf.constant(value.known, dtype=tensor.dtype))
                else:
                    feeds.append(tf.compat.v1.placeholder(tensor.dtype, value.shape))
            attributes = dict(operation.node_def.attr)
            again = scratch._create_op_internal(
                operation.type, feeds, [tensor.dtype for tensor in operation.outputs], attrs=attributes
            )
            shapes = [output.shape for output in again.outputs]
        for shape in shapes:
            if shape.rank is None or None in shape.as_list():
                raise BadInput(
                    f"{node.type} ({node.name}) has an output whose size is only known when it runs; "
                    "give every dimension a fixed size (input shapes, static sequence lengths) to have it estimated."
                )
        return [tuple(shape.as_list()) for shape in shapes]

    def evaluate(self, node: Node, inputs: list[Value]) -> list[Any] | None:
        """The values of a node whose inputs are all known and few, from TensorFlow's own kernel; None otherwise."""
        operation = node.operation
        if operation.op_def.is_stateful or any(value.known is None for value in inputs):
            return None
        if any(spec.dtype not in ("int32", "int64", "bool") for spec in node.outputs):
            return None
        if any(spec.shape is not None and _count(spec.shape) > self.LARGEST_KNOWN for spec in node.outputs):
            return None
        key = (operation, tuple((value.shape, value.known.tobytes()) for value in inputs))
        if key not in self._evaluated:
            self._evaluated[key] = self._evaluate(operation, inputs)
        return self._evaluated[key]

    def _evaluate(self, operation: Any, inputs: list[Value]) -> list[Any] | None:
        if operation.type in _BY_NUMPY:
            return [_BY_NUMPY[operation.type](*(value.known for value in inputs))]
        import tensorflow as tf
        from tensorflow.python.eager import context, execute

        with context.eager_mode():
            given = [
                tf.constant(value.known, dtype=tensor.dtype)
                for value, tensor in zip(inputs, operation.inputs, strict=True)
            ]
            attributes: list[Any] = []
            for attribute in operation.op_def.attr:
                attributes += [attribute.name, operation.get_attr(attribute.name)]
            try:
                found = execute.execute(
                    operation.type.encode(), len(operation.outputs), given, tuple(attributes), context.context()
                )
            except tf.errors.OpError:
                return None
            return [result.numpy() for result in found]


_BY_NUMPY: dict[str, Callable[..., Any]] = {
    "AddV2": numpy.add,
    "Identity": numpy.asarray,
    "Less": numpy.less,
    "LogicalAnd": numpy.logical_and,
    "Sub": numpy.subtract,
}
"""What loops count and compare with: a kernel's call would cost more than the rest of the loop."""


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count
