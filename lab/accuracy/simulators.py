"""Ways to turn a case's Trace into bytes: the product's estimators, and its simulator with other answers for cuDNN."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from oomcast.estimation import Estimate, Target, estimate_trace, find_estimator
from oomcast.simulate.cudnn import Source
from oomcast.trace import Category, Trace

from .cases import MOMENTS, Case, Measure
from .moments import allocated_at

__all__ = ["SIMULATORS", "Prediction", "value_of"]

LEARNED = ("gpumemnet-mlp", "gpumemnet-transformer", "learned")
_NOT_HELD_BY_TENSORS = ("context", "calibrated", "allocator_cache")


@dataclass(frozen=True)
class Prediction:
    """What an estimator says of a case. Bytes."""

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
    """Operators and kernels whose memory is not known."""
    least_reserved: int
    most_reserved: int
    """The same as `reserved`, save where batches differ and come in other orders."""
    doubt: Sequence[int] | None = None
    """The fields of `Doubt`; None where no interval of measured runs stands behind the answer."""


def value_of(prediction: Prediction, measure: Measure) -> int:
    """The figure that is to be compared with the measured one."""
    if measure is Measure.ALLOCATED or measure in MOMENTS:
        return prediction.allocated
    if measure is Measure.RESERVED:
        return prediction.reserved
    return prediction.reserved + prediction.context


def _simulator(case: Case, trace: Trace) -> Prediction:
    """What `oomcast estimate` answers to somebody who says how the job sets `cudnn.benchmark`."""
    prediction = _prediction(estimate_trace(trace, case.target), case.more_context)
    if case.measure not in MOMENTS:
        return prediction
    return dataclasses.replace(prediction, allocated=allocated_at(trace, case.target, case.measure))


def _learned(case: Case, trace: Trace, name: str) -> Prediction:
    """These learnt device totals as they were measured: what the campaign's processes hold is in them already."""
    return _prediction(find_estimator(name).estimate_trace(trace, case.target))


def _variant(case: Case, trace: Trace, source: Source, benchmark: bool) -> Prediction:
    """The simulator with other answers for convolution workspaces: what does each of these rules bring?

    `benchmark`: with cuDNN's timing runs, where the case has them.
    """
    place = dataclasses.replace(case.spec.place, cudnn_benchmark=benchmark and case.cudnn_benchmark)
    return _prediction(estimate_trace(trace, Target.of(place), convolutions=source), case.more_context)


def _prediction(estimate: Estimate, more_context: int = 0) -> Prediction:
    least, most = estimate.reserved_in_orders or (estimate.peak_reserved, estimate.peak_reserved)
    basis = estimate.interval_basis
    tensors = {name: held for name, held in estimate.breakdown.items() if name not in _NOT_HELD_BY_TENSORS}
    return Prediction(
        allocated=estimate.peak_allocated,
        reserved=estimate.peak_reserved,
        context=estimate.breakdown["context"] + more_context,
        fits=estimate.fits,
        workspace=tensors.get(Category.WORKSPACE.value, 0),
        cache=estimate.peak_reserved - estimate.peak_allocated,
        largest=max(tensors, key=lambda name: tensors[name], default=""),
        unsupported=sum(estimate.unsupported.values()),
        least_reserved=least,
        most_reserved=most,
        doubt=None if basis is None or basis.doubt is None else list(dataclasses.astuple(basis.doubt)),
    )


SIMULATORS: Mapping[str, Callable[[Case, Trace], Prediction]] = {
    "simulator": _simulator,
    "no-workspace": partial(_variant, source="none", benchmark=False),
    "table": partial(_variant, source="table", benchmark=False),
    "table-benchmark": partial(_variant, source="table", benchmark=True),
    "cudnn": partial(_variant, source="cudnn", benchmark=False),
    "cudnn-benchmark": partial(_variant, source="cudnn", benchmark=True),
    **{name: partial(_learned, name=name) for name in LEARNED},
}
