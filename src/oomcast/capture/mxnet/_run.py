"""The Trace of an MXNet job: training steps as people write them with Gluon's Trainer, or as `mx.mod.Module` does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomcast.trace import Category, Phase, Trace

from .._record import Record
from ._graph import Tensor
from ._models import Step
from ._optimizers import Optimizer
from ._parts import Part, cached_op, executor, imperative
from ._virtual import Calls

__all__ = ["follow"]

_ITEMSIZES = {"float64": 8, "int64": 8, "float16": 2, "int16": 2, "uint8": 1, "int8": 1, "bool": 1}


def follow(
    step: Step,
    optimizer: Optimizer,
    steps: int,
    calls: Calls,
    *,
    on_gpu: bool,
    accumulation: int = 1,
    versions: dict[str, str],
    workload: dict[str, Any],
    assumptions: Iterable[str] = (),
) -> Trace:
    """Weights and their gradients are there from the start, optimizer state from the first update on."""
    record = Record()
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
    for number in range(steps):
        for _ in range(accumulation):
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
    return record.trace(
        unsupported=dict(step.unsupported), assumptions=tuple(assumptions), versions=versions, workload=workload
    )


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


def _batch(record: Record, step: Step) -> list[int | None]:
    return [_array(record, _tensor(*step.forms[name]), Category.INPUT, "batch", name) for name in step.inputs]


def _array(record: Record, tensor: Tensor, category: Category, operator: str, module: str) -> int | None:
    return record.allocate(tensor.nbytes, category, operator, module, "", tensor.shape, tensor.dtype)


def _tensor(shape: tuple[int, ...], dtype: str) -> Tensor:
    return Tensor(tuple(shape), dtype, _ITEMSIZES.get(dtype, 4))
