"""Where an equation comes from: which part of the step, which module, which line of the user's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jax._src import source_info_util

from oomcast.trace import Phase

from ._graph import Place

__all__ = ["Scopes"]

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
