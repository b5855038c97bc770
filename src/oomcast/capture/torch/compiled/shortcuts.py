"""What Inductor asks over and over while it lowers a graph, answered once: the same answers, sooner."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

from sympy.core.basic import Basic
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
from torch._inductor.scheduler import Scheduler
from torch.utils._ordered_set import OrderedSet

from ..patches import Patches

__all__ = ["answer_once", "without_symbols"]

_free_symbols: Callable[[Basic], set[Basic]] = vars(Basic)["free_symbols"].fget
_MOST_EXPRESSIONS = 100_000


def answer_once(patches: Patches) -> None:
    """Until the patches are taken back."""
    _remember_symbols(patches)
    _set_up_types_once(patches)


def _remember_symbols(patches: Patches) -> None:
    """sympy walks through an expression each time that it is asked for its symbols."""
    remembered = functools.lru_cache(_MOST_EXPRESSIONS)(_free_symbols)

    def free_symbols(expression: Basic) -> set[Basic]:
        return set(remembered(expression)) if expression.args else set()

    patches.set(Basic, "free_symbols", property(free_symbols))


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
