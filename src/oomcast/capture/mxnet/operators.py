"""What MXNet's operators may do with memory: write over an input, hand it on, keep a state between their two passes."""

from __future__ import annotations

import json
import math
from functools import cache
from importlib import resources

from ..tensors import Tensor
from .graph import Graph, Node

__all__ = ["ignored_inputs", "in_place", "is_identity", "state_bytes"]

_USES_LENGTH = "use_length"
_GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}


def in_place(node: Node) -> tuple[tuple[int, int], ...]:
    """Pairs of an input and the output that may lie in its memory, in the order in which MXNet tries them."""
    if node.type in ("_backward_softmax", "_backward_softmin", "_backward_log_softmax"):
        if node.attributes.get(_USES_LENGTH) in ("True", "1"):
            return ((0, 0), (1, 0), (2, 1), (3, 0))
        return ((0, 0), (1, 0), (2, 0))[: len(node.inputs)]
    if node.type in ("amp_multicast", "_backward_amp_multicast"):
        return tuple((number, number) for number in range(len(node.outputs)))
    if node.type == "_backward_Pooling":
        return ((1, 0),) if len(node.inputs) == 5 else ()
    return _table()[0].get(node.type, ())


def is_identity(node: Node) -> bool:
    """Whether its output has the bytes of its input, so that they may lie together while both are read."""
    return node.type in _table()[1]


def ignored_inputs(node: Node) -> tuple[int, ...]:
    """Inputs of which only the shape is read."""
    return _table()[2].get(node.type, ())


def state_bytes(graph: Graph, node: Node, *, on_gpu: bool) -> int:
    """What an operator keeps from its forward to its backward pass beside its outputs: recurrent layers do."""
    if node.type != "RNN":
        return 0
    data = graph.tensors[node.inputs[0]]
    layers = int(node.attributes["num_layers"])
    directions = 2 if node.attributes.get("bidirectional") in ("True", "1") else 1
    units = int(node.attributes["state_size"])
    kind = node.attributes["mode"]
    if on_gpu:
        return _reserve_of_cudnn(data, layers, directions, units, kind, float(node.attributes.get("p", "0")))
    return _reserve_on_cpu(data, layers, directions, units, kind) * data.itemsize


def _reserve_of_cudnn(data: Tensor, layers: int, directions: int, units: int, kind: str, dropout: float) -> int:
    """Every gate's value, the cell and its activation, for every step; with dropout, what it leaves and its mask."""
    step = math.prod(data.shape[:2]) * units * directions
    kept = _GATES[kind] + (2 if kind == "lstm" else 1)
    between = (layers - 1) * step * (data.itemsize + 1) if dropout > 0 else 0
    return layers * step * kept * data.itemsize + between


def _reserve_on_cpu(data: Tensor, layers: int, directions: int, units: int, kind: str) -> int:
    """Elements of the two arrays that MXNet's own kernels hold (`GetRNNWorkspaceSize`, `GetRNNReserveSpaceSize`)."""
    length, batch = data.shape[:2]
    block = length * batch * units
    if kind == "lstm":
        scratch = block * (4 + directions) + batch * units * 6 + length * units * 8
        scratch += block * directions if directions > 1 else 0
        return scratch + directions * block * (7 * layers - 1)
    if kind == "gru":
        scratch = 4 * block * directions + batch * units * (6 + directions)
        kept = block * directions * (9 * layers - 1) + 9 * batch * units * directions + 6 * units * length
        return scratch + kept + 7 * block * directions
    scratch = 2 * block * directions + batch * units * (1 + directions)
    kept = block * directions * (6 * layers - 1) + 3 * batch * units * directions + 2 * units * length
    return scratch + kept + 2 * block * directions


@cache
def _table() -> tuple[dict[str, tuple[tuple[int, int], ...]], frozenset[str], dict[str, tuple[int, ...]]]:
    plain = json.loads(resources.files(__package__).joinpath("operators.json").read_text(encoding="utf-8"))
    pairs: dict[str, tuple[tuple[int, int], ...]] = {}
    for text, names in plain["in_place"].items():
        found = tuple((int(source), int(target)) for source, _, target in (p.partition(">") for p in text.split()))
        pairs.update(dict.fromkeys(names, found))
    ignored: dict[str, tuple[int, ...]] = {
        name: (int(number),) for number, names in plain["ignored_inputs"].items() for name in names
    }
    return pairs, frozenset(plain["identity"]), ignored
