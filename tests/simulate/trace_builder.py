"""Small traces for tests, by hand and by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from oomcast.trace import Allocation, Category, Event, EventKind, KernelCall, Mark, Operand, Phase, Trace
from oomcast.units import KiB, MiB

MATMUL = KernelCall("aten.mm", (Operand((4, 4), (4, 1), "float32"),) * 2)
CONVOLUTION = KernelCall("conv_fprop", (Operand((1, 3, 8, 8), (192, 64, 8, 1), "float32"),), (("stride", (1, 1)),))


class Builder:
    """Writes a trace line by line."""

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self.events: list[Event] = []
        self.kernels: list[KernelCall] = []
        self.marks: list[Mark] = []

    def allocate(self, nbytes: int, category: Category = Category.ACTIVATION, stream: int = 0) -> int:
        number = len(self.allocations)
        operator = f"aten.op{number}"
        self.allocations.append(Allocation(nbytes, category, Phase.FORWARD, 0, operator, "", "", stream=stream))
        self.events.append(Event(EventKind.ALLOCATE, number))
        return number

    def free(self, number: int) -> None:
        self.events.append(Event(EventKind.FREE, number))

    def let_go(self, number: int) -> None:
        self.events.append(Event(EventKind.LET_GO, number))

    def call(self, kernel: KernelCall) -> None:
        if kernel not in self.kernels:
            self.kernels.append(kernel)
        self.events.append(Event(EventKind.KERNEL, self.kernels.index(kernel)))

    def empty_cache(self) -> None:
        self.events.append(Event(EventKind.EMPTY_CACHE, 0))

    def mark(self, phase: Phase, step: int = 0) -> None:
        self.marks.append(Mark(len(self.events), phase, step))

    def build(self) -> Trace:
        return Trace(tuple(self.allocations), tuple(self.events), tuple(self.kernels), tuple(self.marks))


_sizes = st.one_of(
    st.integers(0, 4 * KiB), st.integers(1, 40 * MiB), st.sampled_from([1 * MiB, 2 * MiB, 10 * MiB, 20 * MiB])
)


@st.composite
def traces(draw: st.DrawFn, kernels: bool = True) -> Trace:
    """Any trace that keeps its promises."""
    builder = Builder()
    live: list[int] = []
    choices = ["allocate", "allocate", "allocate", "free", "free", "mark", "empty", *["kernel"] * kernels]
    for _ in range(draw(st.integers(0, 40))):
        choice = draw(st.sampled_from(choices))
        if choice == "allocate":
            category = draw(st.sampled_from(Category))
            live.append(builder.allocate(draw(_sizes), category, draw(st.sampled_from([0, 0, 0, 1]))))
        elif choice == "free" and live:
            builder.free(live.pop(draw(st.integers(0, len(live) - 1))))
        elif choice == "mark":
            builder.mark(draw(st.sampled_from(Phase)), draw(st.integers(-1, 3)))
        elif choice == "empty":
            builder.empty_cache()
        elif choice == "kernel":
            builder.call(draw(st.sampled_from([MATMUL, CONVOLUTION])))
    return builder.build()
