"""When each value of a graph is made and last read, and whose memory it lies in: ONNX Runtime's allocation planner.

An output lies in its input's memory if it is the same bytes (`Reshape`), or if its kernel can write over an input that
nobody else needs. Otherwise it takes over the memory of a value of the same shape that nobody reads any more; that
memory is then held in between, too. Only what is left is allocated when its node runs, and freed after its last use.
"""

from __future__ import annotations

from bisect import insort

from .operators import IN_PLACE, IN_PLACE_ON_GPU, VIEWS
from .read import Graph, Node

__all__ = ["Lives"]

_ALIGNMENT = 256


class Lives:
    """Nodes run in the graph's order. `kept` are values that must not be written over, nor die with their reader."""

    def __init__(self, graph: Graph, *, on_gpu: bool, kept: frozenset[str] = frozenset()) -> None:
        self._graph = graph
        self._takes_over = IN_PLACE | IN_PLACE_ON_GPU if on_gpu else IN_PLACE
        self.kept = kept | {*graph.weights, *graph.inputs, *graph.outputs}
        self.home: dict[str, str] = {}
        """Value → the value whose memory it lies in; most lie in their own."""
        self._last: dict[str, int] = {}
        """Memory → number of the node that reads it last."""
        self._readers: dict[str, int] = {}
        self._idle: list[str] = []
        """Memory that nobody reads any more, the latest first."""
        for number, node in enumerate(graph.nodes):
            for name in node.inputs:
                if name:
                    self._readers[name] = number
        for number, node in enumerate(graph.nodes):
            self._plan(number, node)
        self.stays = {self.home.get(name, name) for name in self.kept}
        """The memory of those."""
        self.freed_after: list[list[str]] = [[] for _ in graph.nodes]
        """By node: the memory that nobody needs after it."""
        for place, number in self._last.items():
            if place not in self.stays:
                self.freed_after[number].append(place)

    def made_by(self, node: Node) -> list[str]:
        """The outputs that need memory of their own."""
        return [name for name in node.outputs if name and self.home[name] == name]

    def block(self) -> int:
        """Bytes of the one block that ONNX Runtime takes for all values with a known life, each at the best gap."""
        placed: list[tuple[int, int, str]] = []  # offset, end, memory
        height = 0
        for node, gone in zip(self._graph.nodes, self.freed_after, strict=True):
            for name in self.made_by(node):
                size = -(-self._graph.tensors[name].nbytes // _ALIGNMENT) * _ALIGNMENT
                if not size or name in self.stays:
                    continue
                offset = _best_gap(placed, size, height)
                insort(placed, (offset, offset + size, name))
                height = max(height, offset + size)
            placed = [entry for entry in placed if entry[2] not in gone]
        return height

    def _plan(self, number: int, node: Node) -> None:
        inputs = [name for name in node.inputs if name]
        for position, name in enumerate(node.outputs):
            if name:
                self.home[name] = self._place(number, node, inputs, name, is_first=position == 0)
        for name in dict.fromkeys((*inputs, *(name for name in node.outputs if name))):
            place = self.home.get(name, name)
            self._last[place] = max(self._last.get(place, -1), self._readers.get(name, number))
        for name in dict.fromkeys((*inputs, *(name for name in node.outputs if name))):
            place = self.home.get(name, name)
            if self._last[place] == number and place not in self._idle and self._is_free(place):
                self._idle.insert(0, place)

    def _place(self, number: int, node: Node, inputs: list[str], name: str, *, is_first: bool) -> str:
        if is_first and node.type in VIEWS and inputs:
            return self.home.get(inputs[0], inputs[0])
        if name in self._graph.outputs:
            return name
        if is_first and node.type in self._takes_over:
            for given in inputs:
                place = self.home.get(given, given)
                if self._is_last_read(number, place) and self._have_one_size(given, name):
                    return place
        for place in self._idle:
            if self._have_one_size(place, name):
                self._idle.remove(place)
                return place
        return name

    def _have_one_size(self, one: str, other: str) -> bool:
        """As far as the runtime knows when it plans."""
        tensors, planned = self._graph.tensors, self._graph.planned
        if tensors[one].itemsize != tensors[other].itemsize:
            return False
        form = planned.get(one, tensors[one].shape)
        return form is not None and None not in form and form == planned.get(other, tensors[other].shape)

    def _is_last_read(self, number: int, place: str) -> bool:
        return self._is_free(place) and all(self._readers.get(name, -1) <= number for name in self._sharing(place))

    def _is_free(self, place: str) -> bool:
        return place not in self.kept and not self.kept.intersection(self._sharing(place))

    def _sharing(self, place: str) -> list[str]:
        return [place, *(name for name, home in self.home.items() if home == place)]


def _best_gap(placed: list[tuple[int, int, str]], size: int, height: int) -> int:
    """Where it leaves least; past the end if it fits nowhere."""
    current, best, waste = 0, None, None
    for offset, end, _ in placed:
        gap = offset - current
        if gap >= size and (waste is None or gap - size < waste):
            best, waste = current, gap - size
        current = max(current, end)
    if height - current >= size and (waste is None or height - current - size < waste):
        best = current
    return current if best is None else best
