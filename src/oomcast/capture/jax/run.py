"""From a JAX job to its Trace: what training keeps is made, batches come, the planned step runs some times.

The plan is what XLA would run: the step's jaxpr fused, put in order and assigned to buffers.
"""

from __future__ import annotations

import platform
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import optax

from ...errors import BadInput
from ...spec import Workload
from ...trace import Category, Phase, Trace, TraceBuilder
from ..job_files import job_functions
from .buffers import Assignment, assign
from .fuse import Instruction, fuse
from .graph import Graph, Value
from .lower import lower
from .order import depth_first, greedy, post_order
from .step import TrainingStep, batch_form, training_step

__all__ = ["Plan", "capture_here", "follow", "make_plan"]


@dataclass(frozen=True)
class _Slot:
    """An argument, or a result that replaces one."""

    name: str
    category: Category
    value: Value


def follow(
    step: TrainingStep,
    steps: int,
    *,
    on_gpu: bool = True,
    versions: dict[str, str],
    workload: dict[str, object],
    assumptions: Iterable[str] = (),
) -> Trace:
    """Run the step `steps` times. Old parameters live until the new ones are there, unless they are donated."""
    traced = step.function.trace(*step.arguments)
    leaves = jax.tree_util.tree_flatten_with_path(traced.args_info)[0]
    donated = [number for number, (_, info) in enumerate(leaves) if info.donated]
    plan = make_plan(traced.jaxpr, donated, on_gpu=on_gpu)
    arguments = _slots(step.arguments, plan.graph.arguments, step.categories)
    results = _slots(traced.out_info, plan.graph.results, step.categories[:3])
    run = _Run(plan, arguments, results)
    for number in range(steps):
        run.step(number)
    run.record.note_all(plan.unsupported, assumptions)
    return run.record.trace(versions, workload)


def _slots(trees: Sequence[Any], values: Sequence[Value], categories: Sequence[Category]) -> list[_Slot]:
    """Every leaf of the trees, each of which has its category; what is beyond them is a temporary."""
    slots = []
    remaining = iter(values)
    for number, tree in enumerate(trees):
        category = categories[number] if number < len(categories) else Category.TEMPORARY
        for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]:
            slots.append(_Slot(_name(path), category, next(remaining)))
    return slots


def _name(path: Any) -> str:
    return str(jax.tree_util.keystr(path, simple=True, separator="."))


class _Run:
    def __init__(self, plan: Plan, arguments: list[_Slot], results: list[_Slot]) -> None:
        self.record = TraceBuilder()
        self._plan = plan
        self._inputs = [slot for slot in arguments if slot.category is Category.INPUT]
        self._results = results
        self._categories = _categories(plan)
        self._made_at: dict[int, list[int]] = {}
        self._dies_at: dict[int, list[int]] = {}
        for number, temporary in enumerate(plan.assignment.temporaries):
            self._made_at.setdefault(temporary.first, []).append(number)
            self._dies_at.setdefault(temporary.last, []).append(number)
        positions = [plan.graph.nodes[i.node].place.phase for i in plan.order]
        backward = [position for position, phase in enumerate(positions) if phase is Phase.BACKWARD]
        self._backward = range(backward[0], backward[-1] + 1) if backward else range(0)
        self._kept = [self._allocate(slot) for slot in arguments if slot.category is not Category.INPUT]

    def step(self, number: int) -> None:
        record, assignment = self.record, self._plan.assignment
        record.enter(Phase.INPUT, number)
        batch = [self._allocate(slot) for slot in self._inputs]
        record.enter(Phase.FORWARD, number)
        outputs = [self._allocate(slot) for slot in self._results if slot.value in assignment.own_results]
        gaps = record.allocate(assignment.arena - self._highest(), Category.TEMPORARY, "XLA: gaps between temporaries")
        self._instructions(number)
        record.free(gaps)
        if assignment.own_results:
            # The caller's names now stand for what the step returned.
            for block in self._kept:
                record.free(block)
            self._kept = outputs
        for block in batch:
            record.free(block)

    def _instructions(self, number: int) -> None:
        record, plan = self.record, self._plan
        blocks: dict[int, int | None] = {}
        for position, instruction in enumerate(plan.order):
            node = plan.graph.nodes[instruction.node]
            if position in self._backward:
                record.enter(Phase.BACKWARD, number)
            elif self._backward and position >= self._backward.stop:
                record.enter(Phase.OPTIMIZER, number)
            for made in self._made_at.get(position, ()):
                temporary = plan.assignment.temporaries[made]
                form = plan.graph.form(temporary.value)
                blocks[made] = record.allocate(
                    temporary.nbytes,
                    self._categories[made],
                    node.op,
                    node.place.module,
                    node.place.source,
                    form.shape,
                    form.dtype,
                    node.place.phase,
                )
            if node.kernel is not None:
                record.kernel(node.kernel)
            scratch = record.allocate(
                plan.assignment.scratch.get(position, 0),
                Category.TEMPORARY,
                f"{node.op}: while it runs",
                node.place.module,
                node.place.source,
            )
            record.free(scratch)
            for gone in self._dies_at.get(position, ()):
                record.free(blocks.pop(gone))
        for block in blocks.values():
            record.free(block)

    def _allocate(self, slot: _Slot) -> int | None:
        form = self._plan.graph.form(slot.value)
        operator = "argument" if slot.category is Category.INPUT else "array"
        return self.record.allocate(form.nbytes, slot.category, operator, slot.name, "", form.shape, form.dtype)

    def _highest(self) -> int:
        """The most that temporaries hold at a time."""
        live = highest = 0
        for position in range(len(self._plan.order)):
            live += sum(self._plan.assignment.temporaries[made].nbytes for made in self._made_at.get(position, ()))
            highest = max(highest, live + self._plan.assignment.scratch.get(position, 0))
            live -= sum(self._plan.assignment.temporaries[gone].nbytes for gone in self._dies_at.get(position, ()))
        return min(highest, self._plan.assignment.arena)


def _categories(plan: Plan) -> list[Category]:
    """What the forward pass leaves for the backward one is an activation, what the optimizer reads a gradient."""
    graph = plan.graph
    phases = [graph.nodes[instruction.node].place.phase for instruction in plan.order]
    read_by_optimizer = {
        value
        for instruction, phase in zip(plan.order, phases, strict=True)
        if phase is Phase.OPTIMIZER
        for value in instruction.operands
    }
    categories = []
    for temporary in plan.assignment.temporaries:
        made = phases[temporary.first]
        last = phases[min(temporary.last, len(phases) - 1)]
        if made is Phase.FORWARD:
            categories.append(Category.ACTIVATION if last is not Phase.FORWARD else Category.TEMPORARY)
        elif made is Phase.BACKWARD and temporary.value in read_by_optimizer:
            categories.append(Category.GRADIENT)
        else:
            categories.append(Category.TEMPORARY)
    return categories


_POOL = (
    "JAX takes 75 % of a card at its start (XLA_PYTHON_CLIENT_PREALLOCATE=false makes its pool grow with the job); "
    "what the job needs is told apart from that"
)
_NOT_DONATED = (
    "The step does not donate its arguments, so that old and new parameters and optimizer state are held at once; "
    "donate = True in the job file stands for jax.jit(step, donate_argnums=…)"
)


def capture_here(workload: Workload, *, on_gpu: bool = True) -> Trace:
    """The Trace of a workload, captured in this process; with `on_gpu` false, as XLA compiles it for a CPU."""
    if workload.checkpointing:
        raise BadInput(
            "--checkpointing is not followed for JAX; use jax.checkpoint or flax's nn.remat in the job file."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        job = job_functions(workload)
        step = training_step(job, batch_form(job.batch(), workload), workload)
        return follow(
            step,
            workload.steps,
            on_gpu=on_gpu,
            versions={"python": platform.python_version(), "jax": jax.__version__, "optax": optax.__version__},
            workload=workload.as_dict(),
            assumptions=[_POOL, *([] if job.donate else [_NOT_DONATED])] if on_gpu else [],
        )


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
