"""From a JAX job to its Trace: XLA's plan of its step, asked of XLA itself or modelled, and played some times.

The model is the step's jaxpr fused, put in order and assigned to buffers.
"""

from __future__ import annotations

import contextlib
import platform
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import optax

from ...devices import Gpu, find_gpu
from ...errors import BadInput
from ...spec import JobPhase, Spec
from ...trace import Category, Phase, Trace
from ..job_files import job_functions
from ..only_torch import refuse_options_of_torch
from ..xla.plan import NotAsked
from ..xla.schedule import Held, Ran, Schedule, Slot, as_evaluation, category_of, play
from ..xla.target import in_place_of_devices, mesh_devices
from .ask_xla import ask_xla
from .buffers import Assignment, Temporary, assign
from .fuse import Instruction, fuse
from .graph import Graph, Value
from .lower import Need, lower
from .order import depth_first, greedy, post_order
from .pmap import refused_where_it_is_called
from .step import TrainingStep, batch_form, job_step, named_leaves

__all__ = ["Plan", "capture_here", "follow", "make_plan", "modelled"]


def follow(
    step: TrainingStep,
    steps: int,
    *,
    gpu: Gpu | None = None,
    devices: int = 1,
    on_gpu: bool = True,
    versions: dict[str, str],
    workload: dict[str, object],
    assumptions: Iterable[str] = (),
) -> Trace:
    """The Trace of one device. XLA's compiler is asked where it is installed and `gpu` is told, else modelled."""
    told = ask_xla(step, gpu, devices) if gpu is not None else NotAsked("")
    if isinstance(told, NotAsked):
        schedule, unsupported = modelled(step, on_gpu=on_gpu)
        notes = [f"XLA's plan is modelled: {told.reason}"] if told.reason else []
    else:
        schedule, unsupported, notes = told.schedule, Counter[str](), list(told.notes)
    if step.evaluates:
        schedule = as_evaluation(schedule)
    record = play(schedule, steps)
    record.plan_is_modelled = isinstance(told, NotAsked)
    record.note_all(unsupported, [*notes, *assumptions])
    return record.trace(versions, workload)


def modelled(step: TrainingStep, *, on_gpu: bool) -> tuple[Schedule, Counter[str]]:
    """What XLA would run, by the model of this room; and the instructions that it does not know."""
    traced = step.function.trace(*step.arguments)
    leaves = jax.tree_util.tree_flatten_with_path(traced.args_info)[0]
    donated = [number for number, (_, info) in enumerate(leaves) if info.donated]
    plan = make_plan(traced.jaxpr, donated, on_gpu=on_gpu)
    graph, assignment = plan.graph, plan.assignment
    arguments = named_leaves(step.arguments, step.categories)
    results = named_leaves(traced.out_info, step.kept)
    phases = [graph.nodes[instruction.node].place.phase for instruction in plan.order]
    read_by_optimizer = {
        value
        for instruction, phase in zip(plan.order, phases, strict=True)
        if phase is Phase.OPTIMIZER
        for value in instruction.operands
    }

    def slot(name: str, category: Category, value: Value, *, is_donated: bool = False) -> Slot:
        form = graph.form(value)
        return Slot(name, category, form.nbytes, form.shape, form.dtype, is_donated)

    def held(temporary: Temporary) -> Held:
        form = graph.form(temporary.value)
        made, last = phases[temporary.first], phases[min(temporary.last, len(phases) - 1)]
        category = category_of(made, last, optimizer_reads=temporary.value in read_by_optimizer)
        return Held(temporary.nbytes, temporary.first, temporary.last, category, form.shape, form.dtype)

    schedule = Schedule(
        [
            slot(name, category, value, is_donated=number in donated)
            for number, ((name, category, _), value) in enumerate(zip(arguments, graph.arguments, strict=True))
        ],
        [
            slot(name, category, value)
            for (name, category, _), value in zip(results, graph.results, strict=True)
            if value in assignment.own_results
        ],
        [
            Ran(node.op, node.place, node.kernel, assignment.scratch.get(position, 0))
            for position, node in enumerate(graph.nodes[instruction.node] for instruction in plan.order)
        ],
        [held(temporary) for temporary in assignment.temporaries],
        assignment.arena,
    )
    return schedule, plan.unsupported


_POOL = (
    "JAX takes 75 % of a card at its start (XLA_PYTHON_CLIENT_PREALLOCATE=false makes its pool grow with the job); "
    "what the job needs is told apart from that"
)
_NOT_DONATED = (
    "The step does not donate its arguments, so that old and new parameters and optimizer state are held at once; "
    "donate = True in the job file stands for jax.jit(step, donate_argnums=…)"
)


def capture_here(spec: Spec) -> Trace:
    """The Trace of a workload on its GPU, captured in this process."""
    workload, machines = spec.workload, spec.place.machines
    gpu = find_gpu(machines.gpu)
    refuse_options_of_torch(workload, "JAX")
    if workload.checkpointing:
        raise BadInput(
            "--checkpointing is not followed for JAX; use jax.checkpoint or flax's nn.remat in the job file."
        )
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(refused_where_it_is_called())
        if machines.world_size > 1:
            devices = mesh_devices(gpu, machines.world_size)
            if isinstance(devices, NotAsked):
                raise BadInput(f"several GPUs need XLA's own compiler: {devices.reason}.")
            stack.enter_context(in_place_of_devices(devices))
        job = job_functions(workload, (JobPhase.TRAINING, JobPhase.EVAL, JobPhase.INFERENCE))
        step = job_step(job, batch_form(job.batch(), workload), workload)
        versions = {"python": platform.python_version(), "jax": jax.__version__, "optax": optax.__version__}
        return follow(
            step,
            workload.steps,
            gpu=gpu,
            devices=machines.world_size,
            versions={**versions, **step.versions},
            workload=workload.as_dict(),
            assumptions=[_POOL, *step.notes, *([] if step.donates or step.evaluates else [_NOT_DONATED])],
        )


@dataclass(frozen=True)
class Plan:
    graph: Graph
    order: Sequence[Instruction]
    assignment: Assignment
    unsupported: Counter[str]


def make_plan(closed: Any, donated: Sequence[int] = (), *, on_gpu: bool = True) -> Plan:
    """For a GPU, the best of XLA's three orders, as its default scheduler has it; for a CPU, depth first."""
    graph, unsupported = lower(closed, on_gpu=on_gpu, need_of=lambda body: _need_of(body, on_gpu))
    order, assignment = _arranged(graph, donated, on_gpu)
    return Plan(graph, order, assignment, unsupported)


def _need_of(body: Graph, on_gpu: bool) -> Need:
    _, assignment = _arranged(body, (), on_gpu)
    return Need(assignment.arena, assignment.outputs)


def _arranged(graph: Graph, donated: Sequence[int], on_gpu: bool) -> tuple[list[Instruction], Assignment]:
    instructions = fuse(graph, on_gpu=on_gpu)
    found = []
    for arrange in (greedy, depth_first, post_order) if on_gpu else (depth_first,):
        order = arrange(graph, instructions)
        found.append((order, assign(graph, order, donated=donated)))
    return min(found, key=lambda pair: pair[1].arena + pair[1].outputs)
