"""The rows an estimator does worst on, each with a guess at why: from its own figures and those of rows like it."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oomcast.devices import find_stack
from oomcast.units import format_bytes

from .cases import Case, Measure
from .features import MOST_STEM_CONVOLUTIONS
from .judging import CONSTANT, judged_rows
from .metrics import Judged
from .running import Result
from .simulators import Prediction

__all__ = ["Bad", "worst"]

_HALF = 0.5
"""What is at least so much of the error may be its cause."""
_NEAR = 0.2
_NEARLY_FULL = 0.93
_SMALL_CONTEXT = 0.9
_OLD = 2023
_MOST = 3
"""Reasons to tell, the most likely first."""


@dataclass(frozen=True)
class Bad:
    case: Case
    estimate: int
    error: float
    why: str


@dataclass(frozen=True)
class _Miss:
    """A row with what the estimate lacks: below 0 where it is too high."""

    result: Result
    judged: Judged
    prediction: Prediction | None
    missing: int

    @property
    def model(self) -> tuple[str, str, str]:
        """The same for the same model in the same campaign."""
        case = self.result.case
        return case.campaign, case.workload.job.reference, repr(case.workload.job.target)

    @property
    def batch_size(self) -> int:
        return self.result.case.workload.batch_size


def worst(results: Sequence[Result], estimator: str, count: int = 20) -> list[Bad]:
    """The largest relative errors first."""
    misses = list(_misses(results, estimator))
    siblings, offsets = defaultdict(list), defaultdict(list)
    for miss in misses:
        siblings[miss.model].append(miss)
        offsets[miss.result.case.campaign].append(miss.missing)
    bad = []
    for miss in sorted(misses, key=lambda miss: -abs(miss.judged.error))[:count]:
        others = [other for other in siblings[miss.model] if other.batch_size != miss.batch_size]
        campaign = offsets[miss.result.case.campaign]
        # Not of a campaign of one or two: the row itself would be its own explanation.
        offset = statistics.median(campaign) if len(campaign) >= 5 else None
        reasons = list(_reasons(miss, others, offset))
        bad.append(Bad(miss.result.case, miss.judged.estimate, miss.judged.error, _sentence(miss, reasons)))
    return bad


def _misses(results: Sequence[Result], estimator: str) -> Iterator[_Miss]:
    name = estimator.removesuffix(CONSTANT)
    for result, judged in zip(results, judged_rows(results, estimator), strict=True):
        if judged is not None and judged.truth is not None:
            timed = result.answers.get(name)
            prediction = timed.prediction if timed is not None else None
            yield _Miss(result, judged, prediction, judged.truth - judged.estimate)


def _sentence(miss: _Miss, reasons: Sequence[str]) -> str:
    much = f"{format_bytes(abs(miss.missing))} too {'little' if miss.missing > 0 else 'much'}"
    return "; ".join((much, *(reasons[:_MOST] or ["nothing in its figures stands out"])))


def _reasons(miss: _Miss, others: Sequence[_Miss], offset: float | None) -> Iterator[str]:
    yield from _doubts_about_the_run(miss, others)
    if offset is not None and abs(miss.missing - offset) < _NEAR * abs(miss.missing):
        yield "the whole campaign is off by as much: its context"
    yield from _growth(miss, others)
    if miss.prediction is not None:
        yield from _parts(miss, miss.prediction)
    features = miss.result.features
    if features is not None and _is_old(miss.result.case):
        yield f"measured with {miss.result.case.stack}, captured with the libraries of today"


def _doubts_about_the_run(miss: _Miss, others: Sequence[_Miss]) -> Iterator[str]:
    case, truth = miss.result.case, miss.judged.truth or 0
    usable = case.target.gpu.usable_memory
    if miss.judged.estimate > usable:
        yield f"it needs more than the {format_bytes(usable)} of the GPU: a failed run?"
    elif truth < _least(miss):
        yield f"less than the {format_bytes(_least(miss))} of context, weights and what forward keeps: a failed run?"
    elif truth > _NEARLY_FULL * usable:
        yield "measured near the limit of the GPU, where the cache is released"
    right = [other for other in others if abs(other.judged.error) < _NEAR * abs(miss.judged.error)]
    if others and len(right) == len(others):
        batches = ", ".join(str(other.batch_size) for other in right)
        yield f"the same model is right at batch {batches}: this figure is out of line"


def _least(miss: _Miss) -> int:
    """What is held when backward begins, with a context that may be somewhat smaller than the catalogue's."""
    features, prediction = miss.result.features, miss.prediction
    if features is None or prediction is None:
        return 0
    context = prediction.context if miss.result.case.measure is Measure.DEVICE_TOTAL else 0
    return features.parameter_bytes + features.kept + round(_SMALL_CONTEXT * context)


def _growth(miss: _Miss, others: Sequence[_Miss]) -> Iterator[str]:
    """Errors that follow the batch are made of activations or workspace, others of what does not depend on it."""
    rates = [other.missing / miss.missing for other in others if miss.missing]
    sizes = [other.batch_size / miss.batch_size for other in others if miss.missing]
    if not rates:
        return
    if all(abs(rate - share) < _NEAR for rate, share in zip(rates, sizes, strict=True)):
        yield "in proportion to the batch"
    elif all(abs(rate - 1) < _NEAR for rate in rates):
        yield "the same at every batch size"


def _parts(miss: _Miss, prediction: Prediction) -> Iterator[str]:
    """Parts of the estimate that may be wrong by as much."""
    error, features = abs(miss.missing), miss.result.features
    if miss.missing > 0 and prediction.unsupported:
        yield f"{prediction.unsupported} kernels without a rule for their workspace"
    if miss.missing < 0 and prediction.workspace > _HALF * error:
        yield f"{format_bytes(prediction.workspace)} are kernels' workspace at the peak"
    elif miss.missing > 0 and features is not None and features.convolutions > MOST_STEM_CONVOLUTIONS:
        timed = "timed by cudnn.benchmark, " if miss.result.case.cudnn_benchmark else ""
        workspace = format_bytes(prediction.workspace)
        yield f"{features.convolutions} convolutions, {timed}with only {workspace} of workspace at the peak"
    if miss.missing < 0 and prediction.cache > _HALF * error:
        yield f"{format_bytes(prediction.cache)} are reserved and not in use: the allocator's order of blocks"
    if miss.result.case.measure is Measure.DEVICE_TOTAL and error < _HALF * prediction.context:
        yield f"less than half of the context ({format_bytes(prediction.context)})"


def _is_old(case: Case) -> bool:
    """torch changed what it keeps for backward, and libraries how they write attention."""
    return find_stack(case.stack).year < _OLD
