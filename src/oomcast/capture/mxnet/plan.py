"""MXNet's memory plan (`MXPlanMemory`): which values share which memory.

Nodes are gone through in order. An output takes over an input that nobody else reads any more, where its operator can
write in place. Else it takes free memory: the smallest that is large enough and at most sixteen times as large, or the
largest that is smaller and at least a sixteenth, which then grows. Memory is free again when all that lies in it was
read. Sizes are counted as if every element had four bytes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .graph import Graph, Node
from .operators import ignored_inputs, in_place, is_identity

__all__ = ["Plan", "make_plan", "read_counts", "with_sums_in_place"]

_MATCH_RANGE = 16
_PLANNED_ITEM = 4


@dataclass(frozen=True)
class Plan:
    place: Mapping[int, int]
    """Value → the memory it lies in; values that lie elsewhere are not in it."""
    planned: int
    """Bytes of all memory, as the plan counts them."""

    def sizes(self, graph: Graph) -> dict[int, int]:
        """Memory → bytes that it really takes."""
        found: dict[int, int] = {}
        for value, place in self.place.items():
            found[place] = max(found.get(place, 0), graph.tensors[value].nbytes)
        return found


class _Free:
    """Memory by size; equal ones in the order in which they became free."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        """By memory: the most that was asked of it."""
        self._free: list[tuple[int, int, int]] = []
        self._count = 0

    def request(self, size: int) -> int:
        middle = bisect_left(self._free, (size,))
        end = bisect_left(self._free, (size * _MATCH_RANGE + 1,))
        begin = bisect_left(self._free, (size // _MATCH_RANGE,))
        if middle < end:
            return self._take(middle, size)
        if middle > begin:
            return self._take(middle - 1, size)
        self.sizes.append(size)
        return len(self.sizes) - 1

    def release(self, place: int) -> None:
        self._count += 1
        insort(self._free, (self.sizes[place], self._count, place))

    def _take(self, position: int, size: int) -> int:
        _, _, place = self._free.pop(position)
        self.sizes[place] = max(self.sizes[place], size)
        return place


def read_counts(nodes: Iterable[Node], outputs: Iterable[int] = ()) -> Counter[int]:
    """How often each value is read by these nodes; being an output counts too."""
    counts = Counter(value for node in nodes for value in node.inputs)
    counts.update(outputs)
    return counts


def make_plan(graph: Graph, nodes: Sequence[Node], counts: Mapping[int, int], elsewhere: Iterable[int]) -> Plan:
    """The plan for these nodes; `counts` says how often each value is read, `elsewhere` has memory of its own."""
    external = set(elsewhere)
    place: dict[int, int] = {}
    readers: Counter[int] = Counter()  # by memory
    free = _Free()
    for node in nodes:
        if not node.type:
            continue
        ignored = ignored_inputs(node)
        _write_over_inputs(graph, node, counts, place, readers, external, ignored)
        fresh = [value for value in node.outputs if value not in place and value not in external]
        # Of equal sizes the later goes first, as a multimap is walked from its end.
        for value in sorted(fresh, key=lambda value: (graph.tensors[value].elements, value), reverse=True):
            place[value] = free.request(graph.tensors[value].elements * _PLANNED_ITEM)
            readers[place[value]] = counts.get(value, 0)
        for number, value in enumerate(node.inputs):
            if number in ignored or value not in place:
                continue
            readers[place[value]] -= 1
            if readers[place[value]] == 0:
                free.release(place[value])
        for value in node.outputs:
            if value in place and readers[place[value]] == 0:
                free.release(place[value])
    return Plan(place, sum(free.sizes))


def _write_over_inputs(
    graph: Graph,
    node: Node,
    counts: Mapping[int, int],
    place: dict[int, int],
    readers: Counter[int],
    external: set[int],
    ignored: tuple[int, ...],
) -> None:
    taken: set[int] = set()
    for source, target in in_place(node):
        if source >= len(node.inputs) or target >= len(node.outputs):
            continue
        given, made = node.inputs[source], node.outputs[target]
        if source in taken or made in place or made in external or given not in place or not counts.get(made, 0):
            continue
        one, other = graph.tensors[given], graph.tensors[made]
        same = one.elements == other.elements and one.itemsize == other.itemsize
        only_reader = readers[place[given]] == 1 and len(ignored) != len(node.inputs)
        if same and (only_reader or (is_identity(node) and one.dtype == other.dtype)):
            taken.add(source)
            place[made] = place[given]
            readers[place[given]] += counts[made]


def with_sums_in_place(graph: Graph, nodes: Sequence[Node], plan: Plan) -> Plan:
    """Long sums of gradients are added up where the first of them lies (`DetectInplaceAddTo`)."""
    place = dict(plan.place)
    counts = read_counts(nodes, (*graph.outputs, *graph.gradients.values()))
    maker = {value: number for number, node in enumerate(graph.nodes) for value in node.outputs}
    for node in nodes:
        if node.type != "_grad_add":
            continue
        left, right = node.inputs
        home = place.get(left)
        is_sum = home is not None and home == place.get(node.outputs[0])
        computed = all(graph.nodes[maker[value]].type for value in (left, right))
        if is_sum and computed and counts[right] == 1 and maker[left] < maker[right]:
            place[right] = home  # type: ignore[assignment]  # is_sum says that it is one
    return Plan(place, plan.planned)
