"""Which values come to lie in memory: XLA's instruction fusion.

From the results backwards, every instruction takes in the producers of its operands: elementwise operators, broadcasts,
slices, reductions, transposes and the like are then computed where they are needed, and computed again by every fusion
that needs them. A producer stays on its own if it is expensive and would be computed twice, or again for each element
of a broadcast, or if it reads several large operands and cannot disappear everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from .graph import Graph, Node, Value
from .primitives import CHEAP, EXPENSIVE, FUSIBLE

__all__ = ["Instruction", "fuse"]

_ELEMENTWISE = CHEAP | EXPENSIVE
_LOOP = _ELEMENTWISE | FUSIBLE
_MOST_CONCATENATED = 8
_LONG_MINOR = 128
_MOST_EVALUATIONS = 15


@dataclass(frozen=True, slots=True)
class Instruction:
    """A node, or a fusion of several that is named by the one whose output it makes."""

    node: int
    operands: tuple[Value, ...]
    overwrites: frozenset[Value]
    """Operands whose memory the output may take over, element by element."""
    is_alias: bool
    """Whether it only gives another shape to its operand's bytes."""


def fuse(graph: Graph, *, on_gpu: bool) -> list[Instruction]:
    """The instructions that are left, in the order of the graph."""
    state = _Fusion(graph, on_gpu)
    instructions = []
    for number in range(len(graph.nodes) - 1, -1, -1):
        if number in state.gone:
            continue
        instructions.append(state.instruction(number))
    return instructions[::-1]


class _Fusion:
    def __init__(self, graph: Graph, on_gpu: bool) -> None:
        self.graph = graph
        self._on_gpu = on_gpu
        self.gone: set[int] = set()
        """Nodes that every one of their users has taken in."""
        self.users: list[set[int]] = [set() for _ in graph.nodes]
        """Instructions that read a node, by the node that names them."""
        for number, node in enumerate(graph.nodes):
            for source, _ in node.inputs:
                self.users[source].add(number)
        self.results = {value[0] for value in graph.results}
        self.unfusible = self._globally_unfusible()

    def instruction(self, root: int) -> Instruction:
        graph = self.graph
        node = graph.nodes[root]
        members = {root: _Member(False, node.op in _ELEMENTWISE, frozenset((root,)), 1)}
        takes = node.op in _LOOP and not _long_concatenation(graph, node)
        operands = dict.fromkeys(node.inputs)
        waiting = sorted({source for source, _ in node.inputs}, reverse=True)
        if not takes:
            waiting = [source for source in waiting if self._is_free(source, node)]
        while waiting:
            producer = waiting.pop(0)
            member = self._as_member(producer, members)
            if not self._may_take(producer, root, member, is_fusion=len(members) > 1 or node.op == "transpose"):
                continue
            members[producer] = member
            self._take(producer, root)
            made = graph.nodes[producer]
            operands.pop((producer, 0), None)
            for value in made.inputs:
                operands[value] = None
                if value[0] not in waiting:
                    waiting.append(value[0])
            waiting.sort(reverse=True)
        straight = {value for value in operands if self._straight(value, members)}
        return Instruction(
            root,
            tuple(operands),
            frozenset(straight.union(node.inputs[position] for position, _ in node.updates)),
            is_alias=node.op in ("reshape", "barrier") and len(members) == 1,
        )

    def _is_free(self, producer: int, reader: Node) -> bool:
        """On a GPU, windows count their elements themselves instead of reading a counter."""
        return self._on_gpu and reader.op == "reduce_window" and self.graph.nodes[producer].op == "iota"

    def _as_member(self, producer: int, members: dict[int, _Member]) -> _Member:
        graph = self.graph
        reused = False
        straight = graph.nodes[producer].op in _ELEMENTWISE
        indexers: set[int] = set()
        for user, known in members.items():
            reader = graph.nodes[user]
            if any(value[0] == producer for value in reader.inputs):
                reused |= known.reused or reader.op == "broadcast"
                straight &= known.straight
                indexers |= known.indexers if reader.op in _ELEMENTWISE else {user}
        usage = sum(members[user].usage for user in indexers)
        return _Member(reused, straight, frozenset(indexers), usage)

    def _straight(self, value: Value, members: dict[int, _Member]) -> bool:
        """Whether each of the output's elements needs only the same element of it."""
        return all(known.straight for user, known in members.items() if value in self.graph.nodes[user].inputs)

    def _may_take(self, producer: int, root: int, member: _Member, *, is_fusion: bool) -> bool:
        node = self.graph.nodes[producer]
        if node.op not in _LOOP or producer in self.results or producer in self.unfusible:
            return False
        if _long_concatenation(self.graph, node):
            return False
        alone = self.users[producer] == {root}
        if is_fusion and node.op != "broadcast":
            if member.usage > _MOST_EVALUATIONS:
                return False
            if node.op in ("concatenate", "dynamic_update_slice") and not (alone and member.usage == 1):
                return False
        costly = node.expensive or node.op == "gather"
        return not costly or (alone and not member.reused)

    def _take(self, producer: int, root: int) -> None:
        users = self.users
        users[producer].discard(root)
        for source, _ in self.graph.nodes[producer].inputs:
            users[source].add(root)
        if not users[producer]:
            self.gone.add(producer)
            for source, _ in self.graph.nodes[producer].inputs:
                users[source].discard(producer)

    def _globally_unfusible(self) -> set[int]:
        """Producers that read several large operands and would not disappear by being taken in."""
        graph = self.graph
        found: set[int] = set()
        reached: list[int] | None = None
        for number in range(len(graph.nodes) - 1, -1, -1):
            node = graph.nodes[number]
            if node.op not in _LOOP or _at_most_unary(graph, node):
                continue
            if sum(graph.form(value).elements for value in set(node.inputs)) <= node.outputs[0].elements:
                continue
            if reached is None:
                reached = _reachability(graph)
            if number in self.results or not all(
                self._on_all_paths(number, user, found, reached, {}) for user in self.users[number]
            ):
                found.add(number)
        return found

    def _on_all_paths(
        self, producer: int, consumer: int, unfusible: set[int], reached: list[int], known: dict[int, bool]
    ) -> bool:
        if consumer == producer:
            return True
        if consumer in known:
            return known[consumer]
        node = self.graph.nodes[consumer]
        verdict = node.op in _LOOP and not _long_concatenation(self.graph, node)
        if verdict:
            for source, _ in node.inputs:
                if not reached[source] >> producer & 1:
                    continue
                made = self.graph.nodes[source]
                costly = made.expensive or made.op == "gather"
                blocked = (
                    source in unfusible
                    or source in self.results
                    or made.op not in _LOOP
                    or _long_concatenation(self.graph, made)
                    or (costly and (len(self.users[source]) > 1 or node.op == "broadcast"))
                )
                if blocked or not self._on_all_paths(producer, source, unfusible, reached, known):
                    verdict = False
                    break
        known[consumer] = verdict
        return verdict


@dataclass(frozen=True, slots=True)
class _Member:
    reused: bool
    """Whether its elements are read again and again, through a broadcast."""
    straight: bool
    """Whether there are only elementwise operators from it to the fusion's output."""
    indexers: frozenset[int]
    """The members whose way of counting elements it is computed in: elementwise ones count as their readers do."""
    usage: int
    """How often its code appears in the fusion, once for each such way."""


def _at_most_unary(graph: Graph, node: Node) -> bool:
    rank = node.outputs[0].true_rank
    large = 0
    for value in node.inputs:
        made = graph.nodes[value[0]]
        if made.op in ("broadcast", "iota") or (made.op == "constant" and graph.form(value).elements == 1):
            continue
        large += graph.form(value).true_rank >= rank
    return large <= 1


def _long_concatenation(graph: Graph, node: Node) -> bool:
    """Those are written by copies, on their own."""
    if node.op != "concatenate":
        return False
    shape = node.outputs[0].shape
    if len(node.inputs) > _MOST_CONCATENATED:
        return True
    along_minor = len(shape) > 1 and any(graph.form(value).shape[-1] != shape[-1] for value in node.inputs)
    return along_minor and shape[-1] >= _LONG_MINOR


def _reachability(graph: Graph) -> list[int]:
    """By node, a bit for every node that it depends on, and its own."""
    reached: list[int] = []
    for number, node in enumerate(graph.nodes):
        bits = 1 << number
        for source, _ in node.inputs:
            bits |= reached[source]
        reached.append(bits)
    return reached
