"""An ONNX model as a Graph with all shapes known: sizes are filled in, shapes inferred, what cannot be known is told.

A convolution of the graph is also a kernel call, for the workspace rules of `simulate/`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner
from onnx import TensorProto, helper, shape_inference
from onnx.external_data_helper import load_external_data_for_tensor

from ...errors import BadInput, UnreadableFile
from ...spec import Workload
from ...trace import KernelCall, Operand
from ..tensors import Tensor, dense_strides
from .fold import MOST_ELEMENTS, fold_sizes
from .inputs import fix_inputs
from .planned import Form, forms_before_a_run

__all__ = ["Graph", "Node", "Tensor", "convolution", "read_model", "to_graph"]

_BITS = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4}
_OF_THE_RUNTIME = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
_LONGEST_LOOP = 100_000
_VALUES = ("raw_data", "float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_WHOLE_NUMBERS = (TensorProto.INT64, TensorProto.INT32)
_MOST_SIZES = 1024
"""Of values in a file of weights that are read, since they may be sizes."""
_CONVOLUTIONS = ("Conv", "ConvTranspose")
_OF_CONVOLUTIONS = ("pads", "strides", "dilations", "group")


def read_model(path: str) -> Any:
    """The model without the bytes of its weights, where these lie in files of their own."""
    try:
        model = onnx.load(path, load_external_data=False)
    except FileNotFoundError:
        raise BadInput(f"there is no ONNX file {path}.") from None
    except IsADirectoryError:
        raise BadInput(f"{path} is a folder; give the ONNX file in it.") from None
    except Exception as error:  # protobuf has several kinds
        raise UnreadableFile(f"{path} is not an ONNX model, or damaged.") from error
    if not model.graph.node and not model.graph.output:
        raise UnreadableFile(f"{path} is not an ONNX model, or empty.")
    for weight in model.graph.initializer:
        for entry in weight.external_data:
            if entry.key == "location" and not (Path(path).parent / entry.value).exists():
                raise BadInput(
                    f"the weight {weight.name} of {path} lies in the file {entry.value}, which is missing; "
                    "put it beside the model."
                )
        if weight.external_data and weight.data_type in _WHOLE_NUMBERS and math.prod(weight.dims) <= _MOST_SIZES:
            _load(weight, path)
    return model


def _load(weight: Any, path: str) -> None:
    """Few whole numbers may say a size."""
    try:
        load_external_data_for_tensor(weight, str(Path(path).parent))
    except Exception as error:  # a file that is too short, a link that leads out of the folder
        raise UnreadableFile(f"the weight {weight.name} of {path} cannot be read from its file.") from error
    weight.data_location = TensorProto.DEFAULT
    del weight.external_data[:]


def to_graph(model: Any, workload: Workload, forms: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """With the sizes that the workload gives; `forms` are the shapes of inputs that are known otherwise."""
    reference = workload.job.reference
    model = _without_bytes(model)
    if model.functions:
        model = _without_functions(model, reference)
    _check_counts(model.graph, reference)
    _check_names(model.graph, reference)
    planned, order = forms_before_a_run(model), _ranks(model.graph)
    fix_inputs(model.graph, workload, forms or {})
    custom = any(node.domain not in _OF_THE_RUNTIME for node in model.graph.node)

    def infer(model: Any) -> Any:
        return shape_inference.infer_shapes(model, strict_mode=not custom, data_prop=True)

    values: Mapping[str, Any] = {}
    try:
        inferred = infer(model)
        if not _is_known(inferred.graph):
            inferred, values = fold_sizes(model, infer)
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise BadInput(f"the shapes in {reference} do not fit together with these sizes: {text}") from error
    return _Reader(inferred, reference, planned, values).graph(order)


def _without_bytes(model: Any) -> Any:
    """A copy whose large weights have no values, as if these lay elsewhere: inference copies all that a model has."""
    light = onnx.ModelProto()
    light.CopyFrom(model)
    for weight in light.graph.initializer:
        if not weight.external_data and math.prod(weight.dims) > MOST_ELEMENTS:
            for kind in _VALUES:
                weight.ClearField(kind)
            weight.data_location = TensorProto.EXTERNAL
            weight.external_data.add(key="location", value="left out")
    return light


def _without_functions(model: Any, reference: str) -> Any:
    """Their bodies in the place of the nodes that call them, as the runtime has it when a session starts."""
    try:
        return onnx.inliner.inline_local_functions(model)
    except Exception as error:
        raise UnreadableFile(f"{reference} is damaged: its functions cannot be read; export it again.") from error


def _is_known(graph: Any) -> bool:
    """Whether every value of the graph itself has a size."""
    known = {item.name for item in (*graph.input, *graph.value_info, *graph.output) if _known_shape(item) is not None}
    return all(name in known for node in graph.node if node.op_type != "Constant" for name in node.output if name)


def _check_counts(graph: Any, reference: str) -> None:
    """Each node, in bodies too, has the inputs and outputs without which it would mean nothing."""
    for node in graph.node:
        inputs, outputs = _least_counts().get((node.domain, node.op_type), (0, 1))
        if len(node.output) < outputs or len(node.input) < inputs:
            raise BadInput(
                f"{node.op_type} {node.name} in {reference} has {len(node.input)} inputs and {len(node.output)} "
                f"outputs, and needs {inputs} and {outputs}: the file is damaged; export the model again."
            )
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _check_counts(attribute.g, reference)


@cache
def _least_counts() -> dict[tuple[str, str], tuple[int, int]]:
    """By domain and operator: how many inputs and outputs a node has at least."""
    return {
        (schema.domain, schema.name): (schema.min_input, max(1, schema.min_output))
        for schema in onnx.defs.get_all_schemas()
    }


def _check_names(graph: Any, reference: str) -> None:
    known = {"", *(item.name for item in graph.initializer), *(item.name for item in graph.input)}
    known.update(item.values.name for item in graph.sparse_initializer)
    for node in graph.node:
        for name in node.input:
            if name not in known:
                raise BadInput(
                    f"{reference} has no value for {name}, which {node.op_type} {node.name or node.output[0]} reads: "
                    "an initialiser is missing; export the model again with its weights."
                )
        known.update(node.output)


class _Reader:
    def __init__(
        self, model: Any, reference: str, planned: Mapping[str, Form | None], values: Mapping[str, Any]
    ) -> None:
        self._graph = model.graph
        self._planned = planned
        self._reference = reference
        self._tensors: dict[str, Tensor] = {}
        self._constants = dict(values)
        self._unsupported: Counter[str] = Counter()

    def graph(self, order: Mapping[str, int]) -> Graph:
        """`order` tells when values are made."""
        proto = self._graph
        weights = self._weights(proto)
        inputs = tuple(item.name for item in proto.input if item.name not in weights)
        nodes = tuple(
            sorted(self._nodes(proto), key=lambda node: min((order[name] for name in node.outputs if name), default=0))
        )
        outputs = tuple(item.name for item in proto.output)
        return Graph(nodes, self._tensors, weights, inputs, outputs, dict(self._unsupported), self._planned)

    def _weights(self, proto: Any) -> tuple[str, ...]:
        for weight in proto.initializer:
            self._tensors[weight.name] = _tensor(weight.data_type, tuple(weight.dims))
            if not weight.external_data and len(weight.dims) <= 1 and sum(weight.dims) <= 16:
                self._constants[weight.name] = onnx.numpy_helper.to_array(weight)
        for item in (*proto.input, *proto.value_info, *proto.output):
            shape = _known_shape(item)
            if shape is not None:
                self._tensors.setdefault(item.name, _tensor(item.type.tensor_type.elem_type, shape))
        return tuple(weight.name for weight in proto.initializer)

    def _nodes(self, proto: Any) -> tuple[Node, ...]:
        nodes = []
        for node in proto.node:
            attributes = {item.name: self._attribute(node, item) for item in node.attribute}
            if node.op_type == "Constant" and "value" in attributes:
                value = attributes["value"]
                self._tensors[node.output[0]] = _tensor(value.data_type, tuple(value.dims))
                self._constants[node.output[0]] = onnx.numpy_helper.to_array(value)
            scratch = self._bodies(node, attributes)
            self._check_outputs(node)
            nodes.append(Node(node.op_type, node.name, tuple(node.input), tuple(node.output), attributes, scratch))
        return tuple(nodes)

    def _attribute(self, node: Any, item: Any) -> Any:
        """Its value, of the kind that convolutions need where it is one of theirs."""
        value = helper.get_attribute_value(item)
        whole_numbers = all(isinstance(part, int) for part in value) if isinstance(value, list) else False
        wrong = item.name in _OF_CONVOLUTIONS and not (
            isinstance(value, int) if item.name == "group" else whole_numbers
        )
        if value is None or (wrong and node.op_type in _CONVOLUTIONS):
            raise UnreadableFile(
                f"{self._reference} is damaged: {node.op_type} {node.name} has no usable {item.name}; export it again."
            )
        return value

    def _bodies(self, node: Any, attributes: Mapping[str, Any]) -> int:
        """What the values of the graphs inside a node take, all of them at once; a loop keeps one round's."""
        if node.op_type == "Loop":
            count = self._constants.get(node.input[0])
            if count is None or int(count) > _LONGEST_LOOP:
                raise BadInput(
                    f"the loop {node.name or node.output[0]} in {self._reference} runs an unknown number of times; "
                    "export the model with a fixed length, or unrolled."
                )
        total = 0
        for value in attributes.values():
            if isinstance(value, onnx.GraphProto):
                before = set(self._tensors)
                self._weights(value)
                self._nodes(value)
                total = max(total, sum(self._tensors[name].nbytes for name in set(self._tensors) - before))
        return total

    def _check_outputs(self, node: Any) -> None:
        custom = node.domain not in _OF_THE_RUNTIME
        if custom:
            self._unsupported[f"{node.domain}.{node.op_type}"] += 1
        for name in node.output:
            if not name or name in self._tensors:
                continue
            called = node.name or node.output[0]
            if custom:
                raise BadInput(
                    f"{self._reference} uses the custom operator {node.domain}.{node.op_type} ({called}), whose output "
                    "shapes are not known; write them into the model (value_info) to have it estimated."
                )
            if node.op_type == "Loop":
                raise BadInput(
                    f"the loop {called} in {self._reference} makes values of unknown size; export the model with a "
                    "fixed length, or unrolled."
                )
            raise BadInput(
                f"the size of {name}, made by {node.op_type} {called} in {self._reference}, depends on values or on "
                "dimensions that are open; give all sizes, or export the model with fixed ones."
            )


def _ranks(graph: Any) -> Mapping[str, int]:
    """When the runtime makes each value: depth first from the nodes that nobody reads, the last one first.

    So are a node's inputs visited. Nodes that only compute sizes count, since the runtime runs them too.
    """
    maker = {name: number for number, node in enumerate(graph.node) for name in node.output if name}
    sources = [sorted({maker[name] for name in node.input if name in maker}) for node in graph.node]
    read = {source for found in sources for source in found}
    ranks: dict[str, int] = {}
    done: set[int] = set()
    stack = [(number, False) for number in range(len(graph.node)) if number not in read]
    while stack:
        number, is_left = stack.pop()
        if is_left:
            ranks.update(dict.fromkeys(graph.node[number].output, len(ranks)))
        elif number not in done:
            done.add(number)
            stack.append((number, True))
            stack.extend((source, False) for source in sources[number] if source not in done)
    return ranks


def _known_shape(item: Any) -> tuple[int, ...] | None:
    kind = item.type.tensor_type
    if not item.type.HasField("tensor_type") or not kind.HasField("shape"):
        return None
    if any(dimension.WhichOneof("value") != "dim_value" for dimension in kind.shape.dim):
        return None
    return tuple(dimension.dim_value for dimension in kind.shape.dim)


def _tensor(kind: int, shape: tuple[int, ...]) -> Tensor:
    name = TensorProto.DataType.Name(kind)
    if name in _BITS:
        return Tensor((*shape[:-1], -(-shape[-1] * _BITS[name] // 8)) if shape else shape, name.lower(), 1)
    itemsize = 1 if name == "STRING" else helper.tensor_dtype_to_np_dtype(kind).itemsize
    return Tensor(shape, "float32" if name == "FLOAT" else name.lower(), itemsize)


# -------- An ONNX model with all shapes known: what its nodes read and write, in an order in which they can run


@dataclass(frozen=True)
class Node:
    type: str
    name: str
    inputs: tuple[str, ...]
    """Names of values; "" where an optional input is left out."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    scratch: int = 0
    """Bytes that the bodies of an If or a Loop need while it runs."""


@dataclass(frozen=True)
class Graph:
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    """By name, for everything that is computed or given."""
    weights: tuple[str, ...]
    """Initialisers."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    unsupported: Mapping[str, int]
    """Custom operators → how many nodes."""
    planned: Mapping[str, Form | None] = field(default_factory=dict)
    """What the runtime knows of values when it plans, before any size is given; what is not here is as in `tensors`."""


def convolution(graph: Graph, node: Node, kind: str = "conv_fprop") -> KernelCall | None:
    """Input, filter and output, as cuDNN has them; None for other nodes. ONNX Runtime keeps NCHW."""
    if node.type not in _CONVOLUTIONS:
        return None
    x, weight, y = (graph.tensors[name] for name in (node.inputs[0], node.inputs[1], node.outputs[0]))
    images = (x.shape, y.shape)
    if node.type == "ConvTranspose":
        # It is the gradient of the convolution that goes the other way.
        images = images[::-1]
        kind = {"conv_fprop": "conv_dgrad", "conv_dgrad": "conv_fprop"}.get(kind, kind)
    spatial = len(x.shape) - 2
    attributes = node.attributes
    pads = tuple(attributes.get("pads", (0,) * (2 * spatial)))
    settings = (
        ("stride", tuple(attributes.get("strides", (1,) * spatial))),
        ("padding", pads[:spatial]),
        ("dilation", tuple(attributes.get("dilations", (1,) * spatial))),
        ("groups", int(attributes.get("group", 1))),
    )
    operands = tuple(Operand(shape, dense_strides(shape), x.dtype) for shape in (images[0], weight.shape, images[1]))
    return KernelCall(kind, operands, settings)
