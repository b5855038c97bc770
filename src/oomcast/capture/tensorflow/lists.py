"""Tensor lists: what loops and TensorArrays keep their tensors in. An element is held by its list, not copied."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .graph import Node
from .memory import ListStorage, Value

if TYPE_CHECKING:
    from .executor import Executor

__all__ = ["LIST_OPERATORS", "list_like"]


def _list(storage: ListStorage) -> Value:
    return Value((), "variant", 0, payload=storage)


def _storage(value: Value) -> ListStorage:
    assert isinstance(value.payload, ListStorage), "a tensor list is expected here"
    return value.payload


def _to_change(executor: Executor, value: Value) -> ListStorage:
    """The list itself if nobody else has it, else a copy of it, which holds the same elements."""
    storage = _storage(value)
    if storage.references == 1:
        return storage
    for element in storage.elements:
        if element is not None:
            executor.memory.hold(element)
    return ListStorage(list(storage.elements))


def _empty(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    return [_list(ListStorage([]))]


def _reserve(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    count = inputs[1].known
    return [_list(ListStorage([None] * (0 if count is None else int(count))))]


def _from_tensor(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    """Rows share the tensor's buffer where each begins at an aligned address."""
    tensor = inputs[0]
    row = tensor.shape[1:]
    aligned = math.prod(row) * tensor.itemsize % 64 == 0
    elements: list[Value | None] = []
    for _ in range(tensor.shape[0]):
        element = Value(row, tensor.dtype, tensor.itemsize, tensor.buffer if aligned else None)
        if not aligned and tensor.buffer is not None:
            element.buffer = executor.memory.new(row, tensor.dtype, tensor.itemsize, node.type, node.module)
        executor.memory.hold(element)
        elements.append(element)
    return [_list(ListStorage(elements))]


def _push(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    storage = _to_change(executor, inputs[0])
    executor.memory.hold(inputs[1])
    storage.elements.append(inputs[1])
    return [_list(storage)]


def _pop(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    storage = _to_change(executor, inputs[0])
    element = storage.elements.pop()
    if element is None:
        return [_list(storage), _zeros(executor, node, 1, inputs[1])]
    executor.release_later([element])
    return [_list(storage), element]


def _get(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    elements = _storage(inputs[0]).elements
    # Every element has the same size, so which one it is matters only where they were not all set.
    index = int(inputs[1].known) if inputs[1].known is not None else 0
    element = elements[index] if index < len(elements) else None
    return [element if element is not None else _zeros(executor, node, 0, inputs[2])]


def _set(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    storage = _to_change(executor, inputs[0])
    index = int(inputs[1].known) if inputs[1].known is not None else 0
    while len(storage.elements) <= index:
        storage.elements.append(None)
    old, storage.elements[index] = storage.elements[index], inputs[2]
    executor.memory.hold(inputs[2])
    if old is not None:
        executor.memory.drop(old)
    return [_list(storage)]


def _stack(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    elements = _storage(inputs[0]).elements
    row = next((element.shape for element in elements if element is not None), None)
    spec = node.outputs[0]
    if row is None:
        shape = spec.shape if spec.shape is not None else (len(elements), *_shape_from(inputs[1]))
    else:
        shape = (len(elements), *row)
    return [executor.new(node, spec, shape)]


def _length(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    import numpy

    output = executor.new(node, node.outputs[0], ())
    output.known = numpy.array(len(_storage(inputs[0]).elements), dtype=node.outputs[0].dtype)
    return [output]


def _element_shape(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    import numpy

    row = next((element.shape for element in _storage(inputs[0]).elements if element is not None), ())
    output = executor.new(node, node.outputs[0], (len(row),))
    output.known = numpy.array(row, dtype=node.outputs[0].dtype)
    return [output]


def list_like(executor: Executor, node: Node, inputs: list[Value]) -> Value:
    """A list of the same length, with nothing in it yet."""
    return _list(ListStorage([None] * len(_storage(inputs[0]).elements)))


def _zeros(executor: Executor, node: Node, output: int, shape: Value) -> Value:
    spec = node.outputs[output]
    return executor.new(node, spec, spec.shape if spec.shape is not None else _shape_from(shape))


def _shape_from(value: Value) -> tuple[int, ...]:
    if value.known is None or (value.known < 0).any():
        return ()
    return tuple(int(extent) for extent in value.known.reshape(-1))


LIST_OPERATORS: dict[str, Any] = {
    "EmptyTensorList": _empty,
    "TensorListReserve": _reserve,
    "TensorListFromTensor": _from_tensor,
    "TensorListPushBack": _push,
    "TensorListPopBack": _pop,
    "TensorListGetItem": _get,
    "TensorListSetItem": _set,
    "TensorListStack": _stack,
    "TensorListLength": _length,
    "TensorListElementShape": _element_shape,
}
