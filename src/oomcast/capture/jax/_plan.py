"""What XLA would run: a jaxpr fused, put in order and assigned to buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ._buffers import Assignment, assign
from ._fuse import Instruction, fuse
from ._graph import Graph
from ._lower import lower
from ._order import depth_first, greedy, post_order

__all__ = ["Plan", "make_plan"]


@dataclass(frozen=True)
class Plan:
    graph: Graph
    order: Sequence[Instruction]
    assignment: Assignment
    unsupported: Counter[str]


def make_plan(closed: Any, donated: Sequence[int] = (), *, on_gpu: bool = True) -> Plan:
    """For a GPU, the best of XLA's three orders, as its default scheduler has it; for a CPU, depth first."""
    graph, unsupported = lower(closed, on_gpu=on_gpu, peak_of=lambda body: _arranged(body, (), on_gpu)[2])
    order, assignment, _ = _arranged(graph, donated, on_gpu)
    return Plan(graph, order, assignment, unsupported)


def _arranged(graph: Graph, donated: Sequence[int], on_gpu: bool) -> tuple[list[Instruction], Assignment, int]:
    instructions = fuse(graph, on_gpu=on_gpu)
    orders = (greedy, depth_first, post_order) if on_gpu else (depth_first,)
    best: tuple[list[Instruction], Assignment, int] | None = None
    for arrange in orders:
        order = arrange(graph, instructions)
        found = assign(graph, order, donated=donated)
        needed = found.arena + found.outputs
        if best is None or needed < best[2]:
            best = (order, found, needed)
    assert best is not None
    return best
