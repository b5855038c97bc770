"""A computation as XLA sees it: instructions with shapes, in an order in which they could run, and their origins."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jax._src import source_info_util

from ...trace import KernelCall, Phase
from ..tensors import Tensor
from ..xla.schedule import Place

__all__ = ["Form", "Graph", "Node", "Scopes", "Value", "place_of_name"]

Value = tuple[int, int]
"""Number of a node, and which of its outputs."""


class Form(Tensor):
    __slots__ = ()

    @property
    def true_rank(self) -> int:
        """Dimensions that are not of extent 1."""
        return sum(extent != 1 for extent in self.shape)


@dataclass(slots=True)
class Node:
    op: str
    inputs: tuple[Value, ...]
    outputs: tuple[Form, ...]
    place: Place
    detail: Hashable = None
    """What tells it from others of the same kind: dimensions, constants …"""
    expensive: bool = False
    """Whether computing it twice is worse than keeping it."""
    scratch: int = 0
    """Bytes that it needs while it runs, beside its inputs and outputs."""
    updates: tuple[tuple[int, int], ...] = ()
    """(input, output) pairs where the output can take over the input's memory."""
    kernel: KernelCall | None = None


@dataclass(slots=True)
class Graph:
    """Nodes are numbered so that inputs come before their users."""

    nodes: list[Node] = field(default_factory=list)
    arguments: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)

    def form(self, value: Value) -> Form:
        return self.nodes[value[0]].outputs[value[1]]


# -------- Where an equation comes from: which part of the step, which module, which line of the user's

_WRAPPED = re.compile(r"(?:jvp|transpose|vmap|jit|remat|checkpoint|rematted_computation)\(([^()]*)\)")


class Scopes:
    """Places of equations, each looked up once."""

    outside = Place(Phase.OPTIMIZER, "", "")

    def __init__(self) -> None:
        self._modules: dict[str, tuple[Phase, str]] = {}
        self._lines: dict[int, str] = {}

    def place_of(self, equation: Any, outer: Place | None) -> Place:
        """An equation of a function that is called belongs to its caller's part of the step, unless it says more."""
        stack = str(equation.source_info.name_stack)
        if stack not in self._modules:
            self._modules[stack] = _read(stack)
        phase, module = self._modules[stack]
        if outer is not None and phase is Phase.OPTIMIZER:
            phase = outer.phase
        if outer is not None and outer.module:
            module = f"{outer.module}.{module}" if module and not module.startswith(outer.module) else outer.module
        source = self._line(equation.source_info.traceback) or (outer.source if outer is not None else "")
        return Place(phase, module, source)

    def _line(self, trace: Any) -> str:
        key = id(trace)
        if key not in self._lines:
            frame = next(iter(source_info_util.user_frames(trace)), None) if trace is not None else None
            self._lines[key] = f"{Path(frame.file_name).name}:{frame.start_line}" if frame is not None else ""
        return self._lines[key]


def _read(stack: str) -> tuple[Phase, str]:
    """`transpose(jvp(Model))/Dense_0`: gradients are transposed derivatives, a forward pass is a derivative."""
    phase = Phase.BACKWARD if "transpose(" in stack else Phase.FORWARD if "jvp(" in stack else Phase.OPTIMIZER
    while _WRAPPED.search(stack):
        stack = _WRAPPED.sub(r"\1", stack)
    return phase, ".".join(part for part in stack.split("/") if part)


def place_of_name(op_name: str) -> tuple[Phase, str]:
    """Of an instruction that XLA compiled: `jit(step)/jvp(Model)/Dense_0/dot_general`, the step and the kind apart."""
    return _read("/".join(op_name.split("/")[1:-1]))
