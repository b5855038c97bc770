"""The Trace of a traced step: variables are made, batches come, the step runs some times."""

from __future__ import annotations

from collections.abc import Iterable

from oomcast.trace import Category, Phase, Trace

from ._executor import Executor
from ._graph import OutputSpec, compile_graph
from ._memory import Memory, Value
from ._operators import Operators, Variable
from ._step import TracedStep

__all__ = ["follow"]


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
    graph = compile_graph(step.graph, step.optimizer_scope)
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
        spec = OutputSpec(tuple(tensor.shape.as_list()), tensor.dtype.name, tensor.dtype.size)
        value = Value(spec.shape or (), spec.dtype, spec.itemsize)
        value.buffer = memory.new(value.shape, value.dtype, value.itemsize, "capture", "", Category.BUFFER)
        memory.hold(value)
        by_argument[id(tensor)] = value
    for number in range(steps):
        memory.enter(Phase.INPUT, number)
        batch = []
        for spec in step.batch:
            value = Value(tuple(spec.shape.as_list()), spec.dtype.name, spec.dtype.size)
            if not executor.on_host(value.dtype, value.shape):
                value.buffer = memory.new(value.shape, value.dtype, value.itemsize, "input", "", Category.INPUT)
            memory.hold(value)
            batch.append(value)
        memory.enter(Phase.FORWARD, number)
        places = iter(batch)
        arguments = [by_argument[id(t)] if id(t) in by_argument else next(places) for t in step.graph.inputs]
        for value in arguments:
            memory.hold(value)
        for result in executor.run(graph, arguments, outermost=True):
            memory.drop(result)
        for value in batch:
            memory.drop(value)
    return memory.trace(
        unsupported=dict(executor.unsupported),
        assumptions=(*assumptions, *executor.assumptions),
        versions=versions,
        workload=workload,
    )
