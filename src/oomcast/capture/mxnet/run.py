"""The Trace of an MXNet job: training steps as people write them with Gluon's Trainer, or as `mx.mod.Module` does.

The optimizer counts by what it keeps for each weight, and by what an update takes while it runs.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import mxnet as mx

from ...errors import BadInput, OomcastError
from ...spec import OPTIMIZER_KINDS, Precision, Workload, missing_optimizer
from ...trace import Category, Phase, Trace, TraceBuilder
from ..job_files import JobFunctions, job_functions
from ..only_torch import refuse_options_of_torch
from ..tensors import Tensor
from .models import Step, batch_forms, gluon_step, load_model, symbol_step
from .parts import Part, cached_op, executor, imperative
from .virtual import Calls, virtual

__all__ = ["BY_NAME", "Optimizer", "capture_here", "follow", "optimizer_of", "traced"]

_ITEMSIZES = {"float64": 8, "int64": 8, "float16": 2, "int16": 2, "uint8": 1, "int8": 1, "bool": 1}


def follow(
    step: Step,
    optimizer: Optimizer,
    calls: Calls,
    workload: Workload,
    *,
    on_gpu: bool,
    assumptions: Iterable[str] = (),
) -> Trace:
    """Weights and their gradients are there from the start, optimizer state from the first update on."""
    record = TraceBuilder()
    weights = {name: _tensor(*step.forms[name]) for name in step.trained}
    for name in (*step.trained, *step.states):
        category = Category.PARAMETER if name in weights else Category.BUFFER
        _array(record, _tensor(*step.forms[name]), category, "Parameter", name)
    for name, tensor in weights.items():
        _array(record, tensor, Category.GRADIENT, "Parameter.grad", name)
    parts = _parts(step, calls, on_gpu=on_gpu)
    batch: list[int | None] = []
    if step.engine == "executor":  # batches are copied into the arrays that it is bound to
        _batch(record, step)
    for number in range(workload.steps):
        for _ in range(workload.accumulation):
            if step.engine != "executor":
                record.enter(Phase.INPUT, number)
                new = _batch(record, step)
                for block in batch:
                    record.free(block)
                batch = new
            record.enter(Phase.FORWARD, number)
            for part in parts:
                part.forward(record)
            record.enter(Phase.BACKWARD, number)
            for part in reversed(parts):
                part.backward(record)
            for part in parts:
                part.finish(record)
        record.enter(Phase.OPTIMIZER, number)
        for name, tensor in weights.items():
            if number == 0:
                for state in optimizer.states(tensor):
                    _array(record, state, Category.OPTIMIZER_STATE, optimizer.name, name)
            scratch = optimizer.scratch(tensor)
            record.free(record.allocate(scratch, Category.TEMPORARY, f"{optimizer.name}: while it runs", name))
    record.note_all(step.unsupported, assumptions)
    versions = {"python": platform.python_version(), "mxnet": mx.__version__}
    return record.trace(versions, workload.as_dict())


def _parts(step: Step, calls: Calls, *, on_gpu: bool) -> list[Part]:
    """In the order of the forward pass; the backward pass goes the other way."""
    if step.engine == "executor":
        return [executor(step.net, step.trained, on_gpu=on_gpu)]
    if step.loss is None:
        whole = imperative(step.net, step.trained, on_gpu=on_gpu, held=step.held, order=calls.order, views=calls.views)
        return [whole]
    net = cached_op(step.net, step.trained, on_gpu=on_gpu, static=step.engine == "static")
    read = [name for name in step.between if name in step.loss.gradients]
    loss = imperative(
        step.loss, read, on_gpu=on_gpu, held=step.loss.outputs, hands_on=True, order=calls.order, views=calls.views
    )
    return [net, loss]


def _batch(record: TraceBuilder, step: Step) -> list[int | None]:
    return [_array(record, _tensor(*step.forms[name]), Category.INPUT, "batch", name) for name in step.inputs]


def _array(record: TraceBuilder, tensor: Tensor, category: Category, operator: str, module: str) -> int | None:
    return record.allocate(tensor.nbytes, category, operator, module, "", tensor.shape, tensor.dtype)


def _tensor(shape: tuple[int, ...], dtype: str) -> Tensor:
    return Tensor(tuple(shape), dtype, _ITEMSIZES.get(dtype, 4))


_ENGINES = {
    "hybridized": "the block is hybridized: MXNet plans the memory of its graph",
    "static": "the block is hybridized with static_alloc: what its graph once took stays taken",
    "imperative": (
        "the block is not hybridized: it runs operator by operator, as its code calls them; net.hybridize() in model() "
        "would be followed"
    ),
    "executor": "the Symbol is trained as mx.mod.Module does, with a graph that is bound once",
}
_REAL_WEIGHTS = "the model was built with real weights, since its code needs their values"


def capture_here(workload: Workload, *, on_gpu: bool = True) -> Trace:
    """The Trace of a workload, captured in this process; with `on_gpu` false, as the step would run on a CPU."""
    _check_options(workload)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return traced(job_functions(workload), workload, on_gpu=on_gpu)


def traced(job: JobFunctions, workload: Workload, *, on_gpu: bool) -> Trace:
    """First without weights. Code that needs their values gets real ones."""
    assumptions: list[str] = []
    try:
        step, optimizer, calls = _composed(job, workload, with_weights=False)
    except (OomcastError, SystemExit, KeyboardInterrupt):
        raise
    except Exception:
        step, optimizer, calls = _composed(job, workload, with_weights=True)
        assumptions.append(_REAL_WEIGHTS)
    told = [_ENGINES[step.engine], *assumptions]
    return follow(step, optimizer, calls, workload, on_gpu=on_gpu, assumptions=told)


def _composed(job: JobFunctions, workload: Workload, *, with_weights: bool) -> tuple[Step, Optimizer, Calls]:
    with virtual(with_weights=with_weights) as calls:
        model = load_model(job, workload)
        batch = batch_forms(job.batch(), workload)
        if isinstance(model, mx.sym.Symbol):
            if job.loss is not None:
                raise BadInput(f"a Symbol ends in its own loss; leave loss() out of {workload.job.name}.")
            step, params = symbol_step(model, batch, workload), None
        else:
            step, params = gluon_step(model, job, batch, workload), model.collect_params()
        return step, optimizer_of(job, params, workload), calls


def _check_options(workload: Workload) -> None:
    refuse_options_of_torch(workload, "MXNet")
    refused: list[tuple[Any, str]] = [
        (workload.checkpointing, "--checkpointing is not followed for MXNet, whose blocks have no such switch."),
        (
            workload.precision not in (Precision.FP32, Precision.TF32),
            "--precision is not followed for MXNet; cast the block in model() (net.cast('float16')) and the batch.",
        ),
    ]
    for given, sentence in refused:
        if given:
            raise BadInput(sentence)


BY_NAME: dict[str, tuple[str, dict[str, float]]] = {
    name: (kind.class_name.lower(), kind.options)
    for name, kind in OPTIMIZER_KINDS.items()
    if kind.library == "torch" and name not in ("adamw", "adafactor")
}
"""Name → MXNet's name and options; MXNet 1.9 has no AdamW and no Adafactor among its optimizers."""
_WEIGHTS_IN_UPDATE = {"AdaGrad": 4, "AdaDelta": 3, "Adamax": 4, "Nadam": 8, "LAMB": 1, "SGLD": 3, "DCASGD": 5}
"""Optimizers that are written in Python → the most arrays of the weight's size while one is updated; as measured on
MXNet 1.9.1. The others are one kernel each."""


@dataclass(frozen=True)
class Optimizer:
    rule: Any
    """MXNet's own."""

    @property
    def name(self) -> str:
        return type(self.rule).__name__

    def states(self, weight: Tensor) -> list[Tensor]:
        """What is kept for a weight: asked of the optimizer for a weight of that rank with two of everything."""
        shape = (2,) * len(weight.shape)
        given = mx.nd.zeros(shape, dtype=weight.dtype)
        return [
            Tensor(
                tuple(full if extent == 2 else extent for full, extent in zip(weight.shape, state.shape, strict=False)),
                "float32" if state.dtype.__name__ == "float32" else weight.dtype,
                4 if state.dtype.__name__ == "float32" else weight.itemsize,
            )
            for state in _arrays(self.rule.create_state_multi_precision(0, given))
        ]

    def scratch(self, weight: Tensor) -> int:
        return _WEIGHTS_IN_UPDATE.get(self.name, 0) * weight.nbytes


def optimizer_of(job: JobFunctions, params: Any, workload: Workload) -> Optimizer:
    """The one that was asked for, else the job's, else Adam."""
    if workload.optimizer is not None:
        if workload.optimizer not in BY_NAME:
            raise missing_optimizer("MXNet", workload.optimizer, BY_NAME)
        name, options = BY_NAME[workload.optimizer]
        return Optimizer(mx.optimizer.create(name, **options))
    if job.optimizer is None:
        return Optimizer(mx.optimizer.create("adam"))
    found = job.optimizer(params)
    if isinstance(found, mx.gluon.Trainer):
        found = found._optimizer
    elif isinstance(found, str):
        found = mx.optimizer.create(found)
    if not isinstance(found, mx.optimizer.Optimizer):
        raise BadInput(
            f"optimizer() in {workload.job.name} returned {type(found).__name__}; return a gluon.Trainer, an "
            "mx.optimizer.Optimizer or its name."
        )
    return Optimizer(found)


def _arrays(state: Any) -> Iterator[Any]:
    if isinstance(state, (list, tuple)):
        for part in state:
            yield from _arrays(part)
    elif isinstance(state, mx.nd.NDArray):
        yield state
