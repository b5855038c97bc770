"""A Symbol's graph with its gradients, told by MXNet itself: it is bound to arrays that have no memory yet.

MXNet's arrays take memory when they are first written, and its executor's pool does so too. So binding a Symbol to
empty arrays builds the gradient graph, infers every shape and plans the memory, and allocates nothing. The log of the
plan has the values' numbers and shapes, the executor's own description has the operators' names and attributes.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import mxnet as mx
from mxnet.ndarray.ndarray import _new_alloc_handle

from ...errors import BadInput, CaptureFailed
from ..explain import first_sentence
from ..stderr import stderr_into
from ..tensors import Tensor
from .graph import Graph, Node

__all__ = ["Form", "forms_of", "output_forms", "planned_bytes", "read_graph", "reason"]

# -------- MXNet's error messages in one sentence


_PLACE = re.compile(r"\[[\d:]+\] \S+: ")
"""The time, and the line of MXNet's source."""


def reason(error: BaseException) -> str:
    """They begin with a stack of MXNet's own; the last line with `Error` or a failed check says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line or "Check failed" in line]
    sentence = telling[-1] if telling else first_sentence(error)
    return _PLACE.sub("", sentence).removeprefix("MXNetError: ")[:300]


Form = tuple[tuple[int, ...], str]
"""Shape and dtype."""

_LINE = re.compile(r"exec_utils\.h:\d+:\s+(node|input|output) (\d+)(?:: | )(.*)")
_VALUE = re.compile(r"\[([\d,]*)\] \((\d+) KB\)")
_REFERENCE = re.compile(r"\t(?:arg|cdep|output)\[\d+\]=(.*?)(?:\((\d+)\))?(?: version=\d+)?$")
_MOST_ELEMENTS = 1 << 31
_DTYPES = {4: "float32", 2: "float16", 8: "float64", 1: "uint8"}


def forms_of(symbol: Any, given: Mapping[str, Form], job: str) -> dict[str, Form]:
    """Shape and dtype of every argument and auxiliary state; raises BadInput where one does not follow."""
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    arguments, _, states = _inferred(symbol, given, job)
    return dict(zip(names, (*arguments, *states), strict=True))


def output_forms(symbol: Any, given: Mapping[str, Form], job: str) -> list[Form]:
    """The same of its outputs."""
    return _inferred(symbol, given, job)[1]


def read_graph(symbol: Any, forms: Mapping[str, Form], *, shared: bool = True, hinted: bool = False) -> Graph:
    """The graph of the symbol and of the gradients of all its arguments.

    `shared`: whether equal parts are computed once, as they are in hybridized blocks and executors. `hinted`: whether
    the outputs' gradients pass through an operator that tells their shape, as only executors have it.
    """
    log, described = _bound(symbol, forms, shared=shared)
    graph = _graph(log, described, symbol.list_arguments())
    return graph if hinted else _without_hints(graph)


def planned_bytes(symbol: Any, forms: Mapping[str, Form]) -> int:
    """MiB of the pool that MXNet's executor plans, as bytes: it tells whole MiB, four bytes an element."""
    _, described = _bound(symbol, forms, shared=True)
    found = re.search(r"^Total (\d+) MB allocated", described, re.MULTILINE)
    return int(found.group(1)) << 20 if found else 0


def _inferred(symbol: Any, given: Mapping[str, Form], job: str) -> tuple[list[Form], list[Form], list[Form]]:
    """Of arguments, outputs and auxiliary states; what the symbol does not read of `given` is left out."""
    used = {name: given[name] for name in symbol.list_arguments() if name in given}
    shapes = {name: shape for name, (shape, _) in used.items()}
    _check_shapes(symbol, shapes, job)
    kinds = symbol.infer_type(**{name: dtype for name, (_, dtype) in used.items()})
    forms = []
    for of_shape, of_kind in zip(symbol.infer_shape(**shapes), kinds, strict=True):
        dtypes = [_name_of(kind) for kind in of_kind] if of_kind is not None else ["float32"] * len(of_shape)
        forms.append([(tuple(shape), dtype) for shape, dtype in zip(of_shape, dtypes, strict=True)])
    return forms[0], forms[1], forms[2]


def _check_shapes(symbol: Any, shapes: Mapping[str, tuple[int, ...]], job: str) -> None:
    internals = symbol.get_internals()
    _, found, _ = internals.infer_shape_partial(**shapes)
    for name, shape in zip(internals.list_outputs(), found or (), strict=False):
        if shape and math.prod(shape) >= _MOST_ELEMENTS:
            raise BadInput(
                f"{name} in {job} has {math.prod(shape):,} elements ({tuple(shape)}); MXNet, as it is installed, has "
                "arrays of less than 2,147,483,648."
            )
        if not shape or any(extent <= 0 for extent in shape):
            raise BadInput(
                f"the shape of {name} in {job} does not follow from the batch's shapes"
                + (f" (only {tuple(shape)} is known)" if shape else "")
                + "; give the layer its sizes (in_units, in_channels), and do without operators whose output depends "
                "on values, such as boolean_mask."
            )


def _bound(symbol: Any, forms: Mapping[str, Form], *, shared: bool) -> tuple[str, str]:
    """The log of the plan, and what the executor says of itself."""

    def empty(name: str) -> Any:
        shape, dtype = forms[name]
        return mx.nd.NDArray(_new_alloc_handle(shape, mx.cpu(), True, dtype))

    settings = {
        "MXNET_MEM_PLAN_VERBOSE_LOGGING": "1",
        "MXNET_SUBGRAPH_BACKEND": "NONE",
        "MXNET_ELIMINATE_COMMON_EXPR": str(int(shared)),
    }
    arguments = symbol.list_arguments()
    with tempfile.TemporaryFile() as log, mock.patch.dict(os.environ, settings):
        with stderr_into(log.fileno()):
            executor = symbol.bind(
                mx.cpu(),
                args=[empty(name) for name in arguments],
                args_grad=[empty(name) for name in arguments],
                grad_req="write",
                aux_states=[empty(name) for name in symbol.list_auxiliary_states()],
            )
            described = executor.debug_str()
        log.seek(0)
        return log.read().decode(errors="replace"), described


def _graph(log: str, described: str, arguments: Sequence[str]) -> Graph:
    links, tensors = _values(log)
    heads, blocks = _descriptions(described)
    if len(links) != len(blocks):
        raise CaptureFailed("MXNet's memory plan could not be read; is this MXNet 1.9?")
    nodes: list[Node] = []
    latest: dict[str, int] = {}
    count = 0
    for (kind, inputs, outputs), block in zip(links, blocks, strict=True):
        if kind != block.type:
            raise CaptureFailed(f"MXNet's memory plan could not be read: {kind} is not {block.type}.")
        made = outputs or (count,)
        count = made[-1] + 1
        controls = tuple(latest[name] for name in block.controls if name in latest)
        nodes.append(Node(kind, block.name, inputs, made, block.attributes, controls))
        latest[block.name] = len(nodes) - 1
    values = _head_values(nodes, heads)
    results = len(heads) - len(arguments)
    maker = {value: number for number, node in enumerate(nodes) for value in node.outputs}
    forward = max(maker[value] for value in values[:results]) + 1
    return Graph(
        tuple(nodes), tensors, tuple(values[:results]), dict(zip(arguments, values[results:], strict=True)), forward
    )


def _without_hints(graph: Graph) -> Graph:
    variables = set(graph.variables().values())
    same = {
        node.outputs[0]: node.inputs[0]
        for node in graph.nodes
        if node.type == "_identity_with_attr_like_rhs" and node.inputs[0] in variables
    }
    nodes = tuple(replace(node, inputs=tuple(same.get(value, value) for value in node.inputs)) for node in graph.nodes)
    gradients = {name: same.get(value, value) for name, value in graph.gradients.items()}
    return replace(graph, nodes=nodes, gradients=gradients)


def _head_values(nodes: Sequence[Node], heads: Sequence[tuple[str, int]]) -> list[int]:
    """The outputs' values. Sums of gradients share one name: those that nobody reads are outputs, in order."""
    read = {value for node in nodes for value in node.inputs}
    places: dict[tuple[str, int], list[int]] = {}
    for node in nodes:
        for index, value in enumerate(node.outputs):
            places.setdefault((node.name, index), []).append(value)
    found: list[int] = []
    for head in heads:
        free = [value for value in places[head] if value not in found]
        unread = [value for value in free if value not in read]
        found.append(unread[0] if len(free) > 1 and unread else places[head][-1])
    return found


def _values(log: str) -> tuple[list[tuple[str, tuple[int, ...], tuple[int, ...]]], dict[int, Tensor]]:
    """By node: its operator, the values that it reads and those that it makes; and what each value is."""
    links: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = []
    tensors: dict[int, Tensor] = {}
    for kind, number, rest in _LINE.findall(log):
        if kind == "node":
            links.append(("" if rest == "var" else rest.strip(), (), ()))
            continue
        found = _VALUE.search(rest)
        if found is None:
            raise CaptureFailed(f"MXNet's memory plan could not be read: {rest!r}.")
        shape = tuple(int(extent) for extent in found.group(1).split(",") if extent)
        tensors[int(number)] = _tensor(shape, int(found.group(2)))
        operator, inputs, outputs = links[-1]
        if kind == "input":
            links[-1] = (operator, (*inputs, int(number)), outputs)
        else:
            links[-1] = (operator, inputs, (*outputs, int(number)))
    return links, tensors


def _tensor(shape: tuple[int, ...], kilobytes: int) -> Tensor:
    """The log has whole KB, which tell the size of an element wherever it matters."""
    tensor = Tensor(shape, "", 4)
    itemsize = next((size for size in _DTYPES if tensor.elements * size >> 10 == kilobytes), 4)
    return Tensor(shape, _DTYPES[itemsize], itemsize)


class _Block:
    def __init__(self, operator: str, name: str) -> None:
        self.type = operator
        self.name = name
        self.attributes: dict[str, str] = {}
        self.controls: list[str] = []


def _descriptions(text: str) -> tuple[list[tuple[str, int]], list[_Block]]:
    """The outputs by node and position, and the nodes in order."""
    heads: list[tuple[str, int]] = []
    blocks: list[_Block] = []
    part = ""
    for line in text.splitlines():
        if line.startswith("Variable:"):
            blocks.append(_Block("", line.removeprefix("Variable:")))
        elif line.startswith("Op:"):
            operator, _, name = line.removeprefix("Op:").partition(", Name=")
            blocks.append(_Block(operator, name))
        elif not line.startswith("\t"):
            part = line
        elif part == "Attrs:":
            key, _, value = line.strip().partition("=")
            blocks[-1].attributes[key] = value
        elif (found := _REFERENCE.match(line)) is not None:
            if part == "Symbol Outputs:":
                heads.append((found.group(1), int(found.group(2))))
            elif part == "Control deps:":
                blocks[-1].controls.append(found.group(1))
    return heads, blocks


def _name_of(dtype: Any) -> str:
    return str(getattr(dtype, "__name__", dtype))
