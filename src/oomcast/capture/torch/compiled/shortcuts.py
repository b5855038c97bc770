"""What Inductor asks over and over while it lowers a graph, answered once, and what it works out for a compiler of
kernels that is never called, left out: the same buffers, sooner."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import sympy
from sympy.core.basic import Basic
from sympy.core.parameters import global_parameters
from torch._inductor import config as _inductor_config
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
from torch._inductor.scheduler import Scheduler
from torch._inductor.sizevars import SizeVarAllocator, join_dimensions
from torch.utils._ordered_set import OrderedSet
from torch.utils._sympy.functions import FloorDiv, MinMaxBase, ModularIndexing

from ..patches import Patches

__all__ = ["answer_once", "leave_kernels_out", "without_symbols"]

_free_symbols: Callable[[Basic], set[Basic]] = vars(Basic)["free_symbols"].fget
_MOST_EXPRESSIONS = 100_000


def answer_once(patches: Patches) -> None:
    """Until the patches are taken back."""
    _remember_symbols(patches)
    _simplify_once(patches)
    _compare_once(patches)
    _set_up_types_once(patches)


def _remember_symbols(patches: Patches) -> None:
    """sympy walks through an expression each time that it is asked for its symbols."""
    remembered = functools.lru_cache(_MOST_EXPRESSIONS)(_free_symbols)

    def free_symbols(expression: Basic) -> set[Basic]:
        return set(remembered(expression)) if expression.args else set()

    patches.set(Basic, "free_symbols", property(free_symbols))


def _simplify_once(patches: Patches) -> None:
    """The same few expressions, of the same few sizes, are expanded tens of thousands of times."""
    expanded = functools.lru_cache(_MOST_EXPRESSIONS, typed=True)(sympy.expand)
    with_ranges = SizeVarAllocator._simplify_with_ranges

    def simplify(sizes: SizeVarAllocator, expression: Any) -> Any:
        return expanded(expression).xreplace(sizes.replacements)

    def simplify_with_ranges(sizes: SizeVarAllocator, expression: Any, ranges: Any) -> Any:
        joined = join_dimensions(sizes.simplify(expression))
        # Ranges tell something of quotients and remainders only; torch first states them all as inequalities.
        return with_ranges(sizes, joined, ranges) if joined.has(FloorDiv, ModularIndexing) else joined

    patches.set(SizeVarAllocator, "simplify", simplify)
    patches.set(SizeVarAllocator, "_simplify_with_ranges", simplify_with_ranges)


def _compare_once(patches: Patches) -> None:
    """Which of several indices is the least and which the greatest: a pooling layer asks it for each of its windows."""
    compared: Any = MinMaxBase.__new__
    remembered = functools.lru_cache(_MOST_EXPRESSIONS, typed=True)(compared)

    def new(kind: Any, *terms: Any, **assumptions: Any) -> Any:
        known = not assumptions and global_parameters.evaluate
        return remembered(kind, *terms) if known else compared(kind, *terms, **assumptions)

    patches.set(MinMaxBase, "__new__", staticmethod(new))


def _set_up_types_once(patches: Patches) -> None:
    """There is one handler of types; it is set up anew, by hundreds of attributes, for each operation of a kernel."""
    set_up = DtypePropagationOpsHandler.__init__
    done: list[DtypePropagationOpsHandler] = []

    def once(handler: DtypePropagationOpsHandler) -> None:
        if not done or done[0] is not handler:
            set_up(handler)
            done[:] = [handler]

    patches.set(DtypePropagationOpsHandler, "__init__", once)


@contextlib.contextmanager
def without_symbols(is_static: bool) -> Iterator[None]:
    """A graph whose sizes are all numbers needs no symbols from outside: they are looked for in each of its kernels."""
    with Patches() as patches:
        if is_static and hasattr(Scheduler, "get_graph_partition_symbol_inputs"):
            patches.set(Scheduler, "get_graph_partition_symbol_inputs", lambda *args: OrderedSet())
        yield


_ANALYSIS = "triton.coalesce_tiling_analysis"


def leave_kernels_out(patches: Patches) -> None:
    """How a kernel is cut into blocks, and between which bounds its values lie, makes it fast or slow: which buffers
    there are is decided before, and so nearly always is in how many ways its launch is tried."""
    in_full = SIMDScheduling.codegen_node
    # Not `patch`: it writes the default back as if somebody had chosen it.
    settings: Any = _inductor_config
    without_analysis = settings._make_closure_patcher(**{_ANALYSIS: False})

    def codegen_node(scheduling: SIMDScheduling, node: Any) -> Any:
        as_it_was = without_analysis()  # here alone: what is fused may depend on it
        try:
            return in_full(scheduling, node)
        finally:
            as_it_was()

    @contextlib.contextmanager
    def set_current_node(kernel: TritonKernel, node: Any) -> Iterator[None]:
        before = kernel.current_node
        kernel.current_node, kernel.node_to_bounds = node, {}
        try:
            yield
        finally:
            kernel.current_node = before

    patches.set(SIMDScheduling, "codegen_node", codegen_node)
    patches.set(TritonKernel, "set_current_node", set_current_node)
