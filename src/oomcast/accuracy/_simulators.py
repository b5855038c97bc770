"""Ways to turn a case's Trace into bytes: the product's own, and variants that tell what each rule brings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from ..devices import context_bytes, find_gpu, find_stack
from ..estimate import Target
from ..estimate._simulator import estimate_trace
from ..simulate import DeviceFacts, WorkspaceTable, simulate
from ..simulate.cudnn import Source, convolution_rules, has_batch_norm, has_convolutions, with_benchmark
from ..trace import Category, Trace
from ._cases import Case, Measure

__all__ = ["SIMULATORS", "Prediction", "value_of"]


@dataclass(frozen=True)
class Prediction:
    """All that a simulation says of a case. Bytes."""

    allocated: int
    reserved: int
    context: int
    fits: bool
    workspace: int
    """Workspace in use at the peak."""
    cache: int
    """Reserved and not allocated, at the peaks."""
    largest: str
    """The category that takes most at the peak."""
    unsupported: int


def value_of(prediction: Prediction, measure: Measure) -> int:
    """The figure that is to be compared with the measured one."""
    if measure is Measure.ALLOCATED:
        return prediction.allocated
    if measure is Measure.RESERVED:
        return prediction.reserved
    return prediction.reserved + prediction.context


def _product(case: Case, trace: Trace) -> Prediction:
    """What `oomcast estimate` answers to somebody who says how the job sets `cudnn.benchmark`."""
    target = Target.create(case.gpu, case.stack, cudnn_benchmark=case.cudnn_benchmark)
    found = estimate_trace(trace, target)
    context = found.breakdown["context"] + case.more_context
    tensors = {category.value: found.breakdown[category.value] for category in Category}
    return Prediction(
        allocated=found.peak_allocated,
        reserved=found.peak_reserved,
        context=context,
        fits=found.fits,
        workspace=tensors[Category.WORKSPACE.value],
        cache=found.peak_reserved - found.peak_allocated,
        largest=max(tensors, key=lambda name: tensors[name]),
        unsupported=sum(found.unsupported.values()),
    )


def _variant(case: Case, trace: Trace, source: Source, benchmark: bool) -> Prediction:
    """With convolution workspaces by `source`, and the timing runs of `cudnn.benchmark` where the case has them."""
    gpu, stack = find_gpu(case.gpu), find_stack(case.stack)
    benchmark = benchmark and case.cudnn_benchmark
    rules = WorkspaceTable(DeviceFacts(gpu.compute_capability, stack.torch_from))
    if source != "none":
        rules = rules.with_rules(
            convolution_rules(gpu, stack.cudnn, allow_tf32=case.allow_tf32, benchmark=benchmark, source=source)
        )
    if benchmark:
        trace = with_benchmark(trace)
    context = context_bytes(gpu, stack, convolutions=has_convolutions(trace), batch_norm=has_batch_norm(trace))
    context += case.more_context
    capacity = max(gpu.usable_memory - context, 0)
    limited = simulate(trace, capacity=capacity, workspace=rules, device_total=gpu.total_memory)
    timeline = limited if limited.ran else simulate(trace, workspace=rules, device_total=gpu.total_memory)
    return Prediction(
        allocated=timeline.peak_allocated,
        reserved=timeline.peak_reserved,
        context=context,
        fits=limited.ran,
        workspace=timeline.breakdown.get(Category.WORKSPACE.value, 0),
        cache=timeline.peak_reserved - timeline.peak_allocated,
        largest=max(timeline.breakdown, key=lambda name: timeline.breakdown[name], default=""),
        unsupported=sum(trace.unsupported.values()) + sum(timeline.kernels_without_rule.values()),
    )


def _learned(case: Case, trace: Trace, name: str) -> Prediction:
    from ..estimate.learned import TRACE_ESTIMATORS

    found = TRACE_ESTIMATORS[name](trace, Target.create(case.gpu, case.stack, cudnn_benchmark=case.cudnn_benchmark))
    own = {category: held for category, held in found.breakdown.items() if category != "context"}
    return Prediction(
        allocated=found.peak_allocated,
        reserved=found.peak_reserved,
        context=found.breakdown["context"],
        fits=found.fits,
        workspace=own.get(Category.WORKSPACE.value, 0),
        cache=found.peak_reserved - found.peak_allocated,
        largest=max(own, key=lambda category: own[category], default=""),
        unsupported=sum(found.unsupported.values()),
    )


SIMULATORS: Mapping[str, Callable[[Case, Trace], Prediction]] = {
    "simulator": _product,
    "no-workspace": partial(_variant, source="none", benchmark=False),
    "table": partial(_variant, source="table", benchmark=False),
    "table-benchmark": partial(_variant, source="table", benchmark=True),
    "cudnn": partial(_variant, source="cudnn", benchmark=False),
    "cudnn-benchmark": partial(_variant, source="cudnn", benchmark=True),
    **{name: partial(_learned, name=name) for name in ("gpumemnet-mlp", "gpumemnet-transformer", "learned")},
}
