"""A small job written by hand and estimated, with its history: what reports are made of."""

from __future__ import annotations

from collections.abc import Callable

from oomcast.estimation import Estimate, Target, estimate_trace
from oomcast.spec import Place
from oomcast.trace import Allocation, Category, Event, EventKind, KernelCall, Mark, Operand, Phase, Trace
from oomcast.units import MiB

MATMUL = KernelCall("aten.mm", (Operand((4, 4), (4, 1), "float32"),) * 2)
ENVIRONMENT = "torch-2.8-cu128"


class Job:
    """Writes the trace of a training loop line by line."""

    def __init__(self, name: str = "zoo:by-hand") -> None:
        self.name = name
        self.allocations: list[Allocation] = []
        self.events: list[Event] = []
        self.marks: list[Mark] = []
        self.phase, self.step = Phase.BUILD, -1
        self.assumptions: list[str] = []
        self.unsupported: dict[str, int] = {}

    def enter(self, phase: Phase, step: int) -> None:
        self.phase, self.step = phase, step
        self.marks.append(Mark(len(self.events), phase, step))

    def take(self, nbytes: int, category: Category, module: str = "", source: str = "", operator: str = "op") -> int:
        made = Allocation(nbytes, category, self.phase, self.step, operator, module, source, (nbytes // 4,), "float32")
        self.allocations.append(made)
        self.events.append(Event(EventKind.ALLOCATE, len(self.allocations) - 1))
        return len(self.allocations) - 1

    def give_back(self, number: int) -> None:
        self.events.append(Event(EventKind.FREE, number))

    def multiply(self) -> None:
        self.events.append(Event(EventKind.KERNEL, 0))

    def trace(self) -> Trace:
        return Trace(
            tuple(self.allocations),
            tuple(self.events),
            (MATMUL,),
            tuple(self.marks),
            unsupported=self.unsupported,
            assumptions=tuple(self.assumptions),
            versions={"torch": "2.8.0"},
            workload={"job": self.name, "batch_size": 2, "precision": "fp32", "steps": 2},
        )


def training(
    layers: int = 3,
    steps: int = 2,
    *,
    name: str = "zoo:by-hand",
    module: Callable[[int], str] = "blocks.{}.linear".format,
    source: Callable[[int], str] = "/home/user/model.py:{}".format,
    width: int = 3 * MiB,
) -> Job:
    """Parameters, then steps of forward, backward and a foreach optimizer."""
    job = Job(name)
    job.enter(Phase.BUILD, -1)
    for layer in range(layers):
        job.take(width, Category.PARAMETER, f"{module(layer)}.weight")
    for step in range(steps):
        job.enter(Phase.FORWARD, step)
        batch = job.take(512 * 1024, Category.INPUT)
        kept = []
        for layer in range(layers):
            kept.append(job.take((layer + 1) * width, Category.ACTIVATION, module(layer), source(layer), "aten.mm"))
            job.multiply()
        job.enter(Phase.BACKWARD, step)
        gradients = []
        for layer in reversed(range(layers)):
            job.give_back(kept.pop())
            gradients.append(job.take(width, Category.GRADIENT, f"{module(layer)}.weight", source(layer), "aten.mm"))
        job.give_back(batch)
        job.enter(Phase.OPTIMIZER, step)
        if step == 0:
            for layer in range(layers):
                job.take(2 * width, Category.OPTIMIZER_STATE, f"{module(layer)}.weight")
        temporary = [job.take(width, Category.TEMPORARY, operator="aten._foreach_sqrt") for _ in range(layers)]
        for number in (*temporary, *gradients):
            job.give_back(number)
    return job


def estimated(job: Job, device: str = "rtx-3090", alloc_conf: str | None = None) -> Estimate:
    place = Place(device, environment=ENVIRONMENT, alloc_conf=alloc_conf, use_calibration=False)
    return estimate_trace(job.trace(), Target.of(place), keep_history=True)
