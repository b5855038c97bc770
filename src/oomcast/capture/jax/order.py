"""The orders in which XLA may run instructions; its schedulers try them and take the one that holds least."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from .fuse import Instruction
from .graph import Graph

__all__ = ["depth_first", "greedy", "post_order"]


def depth_first(graph: Graph, instructions: Sequence[Instruction]) -> list[Instruction]:
    """XLA's memory scheduler: operands whose history has more readers come first, then those with more bytes.

    Both figures are sums over all paths, so what is on several paths counts several times; they are cut off at the
    number of instructions, and at the bytes seen so far.
    """
    by_node = {instruction.node: instruction for instruction in instructions}
    readers: dict[int, set[int]] = {node: set() for node in by_node}
    for instruction in instructions:
        for source in _sources(instruction):
            readers[source].add(instruction.node)
    results = {value[0] for value in graph.results}
    count = len(by_node) + 1
    so_far = 0
    extra: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for instruction in post_order(graph, instructions):
        node = instruction.node
        if graph.nodes[node].op in ("argument", "constant"):
            extra[node] = sizes[node] = 0
            continue
        own = sum(form.nbytes for form in graph.nodes[node].outputs)
        so_far += own
        users = len(readers[node]) + (node in results)
        total_extra, total = max(users - 1, 0), own
        for source in _sources(instruction):
            total_extra += extra[source]
            total += sizes[source]
        extra[node], sizes[node] = min(total_extra, count), min(total, so_far)

    def busiest_first(nodes: Sequence[int]) -> list[int]:
        return sorted(nodes, key=lambda node: (-extra[node], -sizes[node]))

    return _visit(by_node, busiest_first(list(dict.fromkeys(value[0] for value in graph.results))), busiest_first)


def post_order(graph: Graph, instructions: Sequence[Instruction]) -> list[Instruction]:
    """Operands in their own order."""
    by_node = {instruction.node: instruction for instruction in instructions}
    return _visit(by_node, list(dict.fromkeys(value[0] for value in graph.results)), list)


def greedy(graph: Graph, instructions: Sequence[Instruction]) -> list[Instruction]:
    """Of all instructions that are ready, always the one that frees most, less what it needs."""
    by_node = {instruction.node: instruction for instruction in instructions}
    readers: dict[int, list[int]] = {node: [] for node in by_node}
    waits: dict[int, int] = {}
    for instruction in instructions:
        sources = _sources(instruction)
        waits[instruction.node] = len(sources)
        for source in sources:
            readers[source].append(instruction.node)
    kept = {value[0] for value in graph.results}
    left = {node: len(users) + (node in kept) for node, users in readers.items()}

    def size(node: int) -> int:
        is_free = by_node[node].is_alias or graph.nodes[node].op in ("argument", "constant")
        return 0 if is_free else sum(form.nbytes for form in graph.nodes[node].outputs)

    def priority(node: int) -> tuple[int, int, int]:
        freed = sum(size(source) for source in _sources(by_node[node]) if left[source] == 1)
        return (size(node) - freed, -len(readers[node]), node)

    current: dict[int, tuple[int, int, int]] = {}
    heap: list[tuple[int, int, int]] = []

    def offer(node: int) -> None:
        current[node] = priority(node)
        heapq.heappush(heap, current[node])

    for node, count in waits.items():
        if count == 0:
            offer(node)
    order = []
    while heap:
        entry = heapq.heappop(heap)
        node = entry[2]
        if current.get(node) != entry:
            continue  # it was offered again since
        del current[node]
        order.append(by_node[node])
        for source in _sources(by_node[node]):
            left[source] -= 1
            if left[source] == 1:
                for other in readers[source]:
                    if other in current:
                        offer(other)
        for user in readers[node]:
            waits[user] -= 1
            if waits[user] == 0:
                offer(user)
    return order


def _sources(instruction: Instruction) -> list[int]:
    return list(dict.fromkeys(value[0] for value in instruction.operands))


def _visit(
    by_node: dict[int, Instruction], roots: list[int], ordered: Callable[[list[int]], list[int]]
) -> list[Instruction]:
    done: set[int] = set()
    order: list[Instruction] = []
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, is_left = stack.pop()
        if node in done:
            continue
        if is_left:
            done.add(node)
            order.append(by_node[node])
            continue
        stack.append((node, True))
        stack.extend((source, False) for source in reversed(ordered(_sources(by_node[node]))) if source not in done)
    return order
