"""A training step as a function of a number, written event by event: the truth that instances are compared with."""

from __future__ import annotations

from dataclasses import dataclass

from oomcast.trace import Allocation, Category, Event, EventKind, KernelCall, Mark, Operand, Phase, Trace


@dataclass(frozen=True)
class GrowingJob:
    """`layers` layers of `width`; `scratch_from` is the size from which a reduction takes scratch, in steps."""

    width: int = 256
    layers: int = 3
    tokens: int = 7
    squared: bool = False
    """Whether each layer makes scores of n × n."""
    scratch_from: int = 0

    def trace(self, n: int) -> Trace:
        writer = _Writer()
        writer.mark(Phase.BUILD, -1)
        for layer in range(self.layers):
            writer.allocate((self.width, self.width), Category.PARAMETER, f"layer{layer}")
        for step in range(2):
            writer.mark(Phase.FORWARD, step)
            kept = [writer.allocate((n * self.tokens, self.width), Category.INPUT, "")]
            for layer in range(self.layers):
                shape = (n, n) if self.squared else (n, self.tokens, self.width)
                kept.append(writer.allocate(shape, Category.ACTIVATION, f"layer{layer}"))
                writer.kernel((n * self.tokens, self.width), (self.width, self.width))
            writer.mark(Phase.BACKWARD, step)
            for layer in reversed(range(self.layers)):
                if self.scratch_from and n >= self.scratch_from:
                    writer.free(writer.allocate((), Category.WORKSPACE, f"layer{layer}", n // 16 * 1_000_000))
                gradient = writer.allocate((self.width, self.width), Category.GRADIENT, f"layer{layer}")
                writer.free(kept.pop())
                writer.free(gradient)
            writer.free(kept.pop())
        return writer.trace(n)


class _Writer:
    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self.events: list[Event] = []
        self.kernels: dict[KernelCall, int] = {}
        self.marks: list[Mark] = []

    def mark(self, phase: Phase, step: int) -> None:
        self.marks.append(Mark(len(self.events), phase, step))

    def allocate(self, shape: tuple[int, ...], category: Category, module: str, nbytes: int | None = None) -> int:
        size = 4
        for extent in shape:
            size *= extent
        mark = self.marks[-1]
        made = Allocation(
            nbytes if nbytes is not None else size, category, mark.phase, mark.step, "aten.mm", module, "", shape, ""
        )
        self.allocations.append(made)
        self.events.append(Event(EventKind.ALLOCATE, len(self.allocations) - 1))
        return len(self.allocations) - 1

    def free(self, index: int) -> None:
        self.events.append(Event(EventKind.FREE, index))

    def kernel(self, *shapes: tuple[int, int]) -> None:
        call = KernelCall("aten.mm", tuple(Operand(shape, (shape[1], 1), "float32") for shape in shapes))
        self.events.append(Event(EventKind.KERNEL, self.kernels.setdefault(call, len(self.kernels))))

    def trace(self, n: int) -> Trace:
        return Trace(
            tuple(self.allocations),
            tuple(self.events),
            tuple(self.kernels),
            tuple(self.marks),
            versions={"torch": "2.13"},
            workload={"job": "growing", "batch_size": n},
        )
