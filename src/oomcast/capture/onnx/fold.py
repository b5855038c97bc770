"""What a graph computes from sizes alone, computed: shapes that go through Shape, Gather, Concat and the like.

Exporters write a reshape for open sizes as a small program over the shapes of its inputs. Once the sizes are given, its
result can be known. ONNX's own inference follows some of these programs; the rest is run here by ONNX's reference
evaluator, on numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

__all__ = ["MOST_ELEMENTS", "fold_sizes"]

MOST_ELEMENTS = 1 << 16
"""Of a value that is computed here: larger ones are data, not sizes."""
_MOST_ROUNDS = 100
_NEVER = ("If", "Loop", "Scan", "Multinomial", "Bernoulli", "Dropout", "Constant")
"""What has a body, what chance decides; and what is a constant already."""


def fold_sizes(model: Any, infer: Callable[[Any], Any]) -> tuple[Any, Mapping[str, Any]]:
    """The model with the shapes that follow from its sizes, and the values that do; `infer` adds shapes to a model.

    Every round knows more shapes than the one before, and with them more values. The model that is given back computes
    them still, as the runtime does in each run where sizes are open.
    """
    given, nodes = {weight.name for weight in model.graph.initializer}, list(model.graph.node)
    inferred = infer(model)
    for _ in range(_MOST_ROUNDS):
        if not _fold_once(model, _shapes(inferred.graph)):
            break
        inferred = infer(model)
    graph = inferred.graph
    weights = list(graph.initializer)
    values = {item.name: numpy_helper.to_array(item) for item in weights if item.name not in given}
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(item for item in weights if item.name in given)
    graph.node.extend(nodes)
    graph.value_info.extend(
        helper.make_tensor_value_info(item.name, item.data_type, item.dims)
        for item in weights
        if item.name not in given
    )
    return inferred, values


def _shapes(graph: Any) -> dict[str, tuple[int, ...]]:
    shapes = {weight.name: tuple(weight.dims) for weight in graph.initializer}
    for item in (*graph.input, *graph.value_info, *graph.output):
        dimensions = item.type.tensor_type.shape.dim if item.type.tensor_type.HasField("shape") else None
        if dimensions is not None and all(size.HasField("dim_value") for size in dimensions):
            shapes.setdefault(item.name, tuple(size.dim_value for size in dimensions))
    return shapes


def _fold_once(model: Any, shapes: dict[str, tuple[int, ...]]) -> bool:
    """Put every constant that can be computed now in the place of its node; whether there was any."""
    graph = model.graph
    known = {
        weight.name: numpy_helper.to_array(weight)
        for weight in graph.initializer
        if not weight.external_data and math.prod(weight.dims) <= MOST_ELEMENTS
    }
    results = {item.name for item in graph.output}
    kept = []
    for node in graph.node:
        for name, value in zip(node.output, _values(model, node, known, shapes), strict=False):
            known[name] = value
        folded = node.op_type != "Constant" and all(name in known for name in node.output if name)
        if folded and not results.intersection(node.output):
            graph.initializer.extend(numpy_helper.from_array(known[name], name) for name in node.output if name)
        else:
            kept.append(node)
    if len(kept) == len(graph.node):
        return False
    del graph.node[:]
    graph.node.extend(kept)
    # Else what the exporter wrote about a value, with names for its sizes, would hide what is known now.
    made = {weight.name for weight in graph.initializer}
    described = [item for item in graph.value_info if item.name not in made]
    del graph.value_info[:]
    graph.value_info.extend(described)
    return True


def _values(model: Any, node: Any, known: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> list[Any]:
    """What the node makes, if that is known; else nothing."""
    if node.op_type == "Constant":
        return [numpy_helper.to_array(item.t) for item in node.attribute if item.name == "value"]
    if node.op_type == "Shape" and node.input[0] in shapes:
        bounds = {item.name: item.i for item in node.attribute}
        sizes = shapes[node.input[0]][slice(bounds.get("start", 0), bounds.get("end"))]
        return [np.array(sizes, dtype=np.int64)]
    given = [name for name in node.input if name]
    sizes_out = [math.prod(shapes[name]) for name in node.output if name in shapes]
    if (
        node.domain not in ("", "ai.onnx")
        or node.op_type in _NEVER
        or node.op_type.startswith("Random")
        or not given
        or not all(name in known for name in given)
        or any(size > MOST_ELEMENTS for size in sizes_out)
        or _grows_too_large(node, known)
    ):
        return []
    try:
        made = ReferenceEvaluator(node, opsets={entry.domain: entry.version for entry in model.opset_import}).run(
            None, {name: known[name] for name in given}
        )
    except Exception:  # an operator that the evaluator does not have: its size stays unknown, and is told
        return []
    values = [np.asarray(value) for value in made]
    return values if all(value.size <= MOST_ELEMENTS for value in values) else []


def _grows_too_large(node: Any, known: dict[str, Any]) -> bool:
    """Before it is run: some operators make as much as their inputs' values say."""
    if node.op_type in ("ConstantOfShape", "Expand", "Tile", "Range"):
        numbers = [float(np.prod(np.abs(known[name]).astype(float))) for name in node.input if name]
        return any(number > MOST_ELEMENTS for number in numbers)
    return False
