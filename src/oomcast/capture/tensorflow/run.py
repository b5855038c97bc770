"""From a Keras job to its Trace: its step is planned by XLA, or traced and followed as TensorFlow itself runs it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import platform
import warnings
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from ...errors import BadInput
from ...spec import JobPhase, Spec, Workload
from ...trace import Category, Phase, Trace
from ...units import format_bytes
from ..explain import first_sentence
from ..frameworks import check_framework
from ..job_files import JobFunctions, job_functions
from ..keras_models import POLICIES, outputs_are_kept, refuse_options
from ..xla.other_frameworks import compiler_may_be_there
from ..xla.plan import BY_LIBRARY, Compiled, NotAsked
from ..xla.schedule import Schedule, as_evaluation, play
from .by_xla import ask_xla
from .executor import Executor
from .graph import OutputSpec, compile_graph
from .memory import Memory, Value
from .mirrored import in_place_of_gpus, scope_of, strategy_of
from .modules import Module
from .operators import Operators, Variable
from .step import TracedStep, batch_form, choosing_as_on_a_gpu, compiled, own_step, trace_step

__all__ = ["capture_here", "follow"]


def follow(
    step: TracedStep,
    steps: int,
    *,
    on_gpu: bool = True,
    versions: dict[str, str],
    workload: dict[str, object],
    assumptions: Iterable[str] = (),
) -> Trace:
    """Run the step `steps` times. With `on_gpu`, only what lies in the GPU's memory is counted."""
    memory = Memory()
    executor = Executor(memory, Operators(), on_gpu=on_gpu)
    graph = compile_graph(step.graph, step.optimizer_scope, step.mirrors)
    by_argument: dict[int, Value] = {}
    for variable in step.variables:
        value = Value(variable.shape, variable.dtype.name, variable.dtype.size)
        if not executor.on_host(value.dtype, value.shape):
            value.buffer = memory.new(
                value.shape, value.dtype, value.itemsize, "variable", variable.name, variable.category
            )
        memory.hold(value)
        if variable.handle is not None:
            by_argument[id(variable.handle)] = Value(
                (), "resource", 0, payload=Variable(variable.name, value, variable.category)
            )
    for tensor in step.captures:
        if tensor.dtype == tf.resource:  # the order of collective operators
            by_argument[id(tensor)] = Value((), "resource", 0)
            continue
        spec = OutputSpec(tuple(tensor.shape.as_list()), tensor.dtype.name, tensor.dtype.size)
        value = Value(spec.shape or (), spec.dtype, spec.itemsize)
        value.buffer = memory.new(value.shape, value.dtype, value.itemsize, "capture", "", Category.BUFFER)
        memory.hold(value)
        by_argument[id(tensor)] = value
    kept: list[Value] = []
    for number in range(steps):
        memory.enter(Phase.INPUT, number)
        batch = []
        for spec in step.batch:
            value = Value(tuple(spec.shape.as_list()), spec.dtype.name, spec.dtype.size)
            if not executor.on_host(value.dtype, value.shape):
                value.buffer = memory.new(value.shape, value.dtype, value.itemsize, "input", "", Category.INPUT)
            memory.hold(value)
            batch.append(value)
        memory.enter(Phase.EVALUATION if step.evaluates else Phase.FORWARD, number)
        # The batch comes first; what nobody made are other GPUs' variables, and numbers that a strategy gives.
        others = [by_argument.get(id(tensor), Value((), "resource", 0)) for tensor in step.graph.inputs[len(batch) :]]
        arguments = [*batch, *others]
        for value in arguments:
            memory.hold(value)
        results = executor.run(graph, arguments, outermost=not step.evaluates)
        for value in (*results, *batch) if not step.evaluates else (*kept, *batch):
            memory.drop(value)
        kept = results  # an output lives until the next one takes its name
    memory.note_all(executor.unsupported, (*assumptions, *executor.assumptions))
    return memory.trace(versions, workload)


_GROWING = (
    "TensorFlow takes nearly all of a card at its start unless memory growth is on (TF_FORCE_GPU_ALLOW_GROWTH=true); "
    "the figures are those of a pool that grows with the job"
)


def capture_here(spec: Spec, *, on_gpu: bool = True) -> Trace:
    """The Trace of a workload, captured in this process; with `on_gpu` false, as the step would run on a CPU."""
    workload = spec.workload
    refuse_options(workload, "TensorFlow")
    assumptions: list[str] = [*([_GROWING] if on_gpu else []), *outputs_are_kept(workload.phase)]
    versions = {"python": platform.python_version(), "tensorflow": tf.__version__, "keras": keras.__version__}
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        if on_gpu:
            stack.enter_context(choosing_as_on_a_gpu())
        machines = spec.place.machines
        if machines.world_size > 1:
            in_place_of_gpus(machines)
            assumptions.append(_REPLICAS)
        job = job_functions(workload, (JobPhase.TRAINING, JobPhase.EVAL, JobPhase.INFERENCE))
        batch = batch_form(job.batch(), workload)
        if workload.phase is JobPhase.INFERENCE and isinstance(batch, tuple):
            batch = batch[:1]
        building = _Building(job, batch, workload, machines.world_size)
        step, compiles = building.described()
        if compiles:
            planned = building.planned_by_xla(step, spec.place.machines.gpu)
            if not isinstance(planned, NotAsked):
                schedule, told = planned
                if step.evaluates:
                    schedule = as_evaluation(schedule)
                record = play(schedule, workload.steps)
                record.note_all(
                    {}, [*assumptions, *building.notes, _asked(told), *([BY_LIBRARY] if told.by_library else [])]
                )
                return record.trace(versions, workload.as_dict())
            building.notes.append(f"{_NOT_COMPILED}: {planned.reason}")
        trace = follow(
            step,
            workload.steps,
            on_gpu=on_gpu,
            versions=versions,
            workload=workload.as_dict(),
            assumptions=[*assumptions, *building.notes],
        )
        return dataclasses.replace(trace, plan_is_modelled=compiles)


_REPLICAS = (
    "One replica of MirroredStrategy is followed, with a batch of batch(batch_size) for each GPU: fit() divides the "
    "batch that it is given over them"
)
_NOT_COMPILED = (
    "Keras compiles the step with XLA on a GPU unless the model is compiled with jit_compile=False; what was followed "
    "is TensorFlow's own executor, which fuses less and mostly holds more"
)
_MOST_WEIGHTS = 4 << 30
"""Bytes of variables that are made on this machine so that TensorFlow writes its program."""


def _asked(told: Compiled) -> str:
    return (
        f"Keras compiles the step with XLA on a GPU: XLA itself (that of {told.version}) planned it; what it would "
        "find out by running kernels on the card (which algorithms win) is not in it"
    )


class _Mirrored(Exception):
    """The model is one of several replicas, and is traced with real weights."""


class _Building:
    """The job's model, built and traced as often as it is needed; `notes` say what had to be assumed."""

    def __init__(self, job: JobFunctions, batch: Any, workload: Workload, gpus: int) -> None:
        self._job, self._batch, self._workload, self._gpus = job, batch, workload, gpus
        self.notes: list[str] = []

    def described(self) -> tuple[TracedStep, bool]:
        """The step, and whether Keras has XLA compile it.

        Under a graph the model's weights are only described. Code that needs their values gets real ones.
        """
        keras.utils.clear_session()  # not within the graph, where it fails
        try:
            with tf.Graph().as_default():
                return self._traced(by_xla=False)
        except (BadInput, SystemExit, KeyboardInterrupt):
            raise
        except Exception as error:
            keras.utils.clear_session()  # layers of a second building have the names of the first
            why = "it is mirrored" if isinstance(error, _Mirrored) else "its code needs their values"
            self.notes = [f"The model was built with real weights, since {why}"]
            return self._traced(by_xla=False)

    def planned_by_xla(self, step: TracedStep, gpu: str) -> tuple[Schedule, Compiled] | NotAsked:
        if not compiler_may_be_there():
            return NotAsked("XLA's compiler for GPUs is not installed (pip install 'oomcast[jax-gpu]')")
        nbytes = sum(math.prod(variable.shape) * variable.dtype.size for variable in step.variables)
        if nbytes > _MOST_WEIGHTS:
            return NotAsked(f"its variables ({format_bytes(nbytes)}) would have to be made on this machine for that")
        keras.utils.clear_session()
        try:
            compiled_step, _ = self._traced(by_xla=True)
        except Exception as error:
            return NotAsked(f"its step cannot be traced for XLA ({first_sentence(error)})")
        return ask_xla(compiled_step, gpu)

    def _traced(self, *, by_xla: bool) -> tuple[TracedStep, bool]:
        keras.config.set_dtype_policy(POLICIES.get(self._workload.precision, "float32"))
        model = self._job.model()
        check_framework(model, "tensorflow")
        phase = self._workload.phase
        if isinstance(model, tf.Module) and not isinstance(model, keras.Model):
            module = Module(model, self._job, self._batch, self._workload)
            self.notes.append(module.note)
            return trace_step(module, self._batch, phase=phase), False
        if not isinstance(model, keras.Model):
            raise BadInput(
                f"model() in {self._workload.job.name} returned {type(model).__name__}; return a keras.Model or a "
                "tf.Module."
            )
        strategy = strategy_of(model, self._gpus, self._workload.job.name)
        if strategy is not None and not tf.executing_eagerly():
            raise _Mirrored  # described weights would be summed otherwise than between GPUs
        with scope_of(strategy):
            compiles = compiled(model, self._job, self._batch, self._workload)
            step = own_step(model, self._job.loss, phase)
            return trace_step(model, self._batch, step, by_xla=by_xla, phase=phase), compiles
