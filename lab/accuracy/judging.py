"""From results to what is scored: each estimator's figure beside the truth, with a constant per campaign or without."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from oomcast.estimation import Doubt, load_interval

from .baselines import BASELINES, linear_fit
from .cases import Case, Measure
from .formulas import FORMULAS, transformer_of
from .metrics import Judged, Score, constants, score
from .running import LINEAR_FIT, MEM_TRACKER, Result
from .simulators import SIMULATORS, Prediction, value_of

__all__ = ["CONSTANT", "judge", "judge_parts", "judged_pairs", "judged_rows"]

CONSTANT = " + constant"
"""Behind an estimator's name: with the context replaced by one constant per campaign, from the other families."""


def judge(data: str, results: Sequence[Result], estimators: Sequence[str]) -> list[Score]:
    """The scores of each estimator on one data set; simulators with the catalogue's context, and with a constant."""
    return judge_parts(results, estimators, lambda result: data)


def judge_parts(results: Sequence[Result], estimators: Sequence[str], part_of: Callable[[Result], str]) -> list[Score]:
    """The same by parts, such as campaigns. What is fitted is fitted on all of them, families left out."""
    judged = {name: judged_rows(results, name) for name in _named(estimators)}
    scores = []
    for part in sorted({part_of(result) for result in results}):
        for name, rows in judged.items():
            own = [row for row, result in zip(rows, results, strict=True) if part_of(result) == part]
            known = [row for row in own if row is not None]
            if known:
                scores.append(score(name, part, known, failed=len(own) - len(known)))
    return scores


def judged_rows(results: Sequence[Result], estimator: str) -> list[Judged | None]:
    """By result; None where this estimator has no answer."""
    if estimator == LINEAR_FIT:
        return _by_linear_fit(results)
    if estimator == MEM_TRACKER:
        return [_by_mem_tracker(result) for result in results]
    if estimator in FORMULAS:
        return [_by_formula(result, estimator) for result in results]
    if estimator in BASELINES:
        return [_by_baseline(result, estimator) for result in results]
    if estimator.endswith(CONSTANT):
        return _with_constant(results, estimator.removesuffix(CONSTANT))
    return [_by_simulator(result, estimator, None) for result in results]


def judged_pairs(results: Sequence[Result], estimator: str) -> list[tuple[Case, Judged]]:
    """The cases that this estimator answered, each with its judgement."""
    rows = judged_rows(results, estimator)
    return [(result.case, row) for result, row in zip(results, rows, strict=True) if row is not None]


def _named(estimators: Sequence[str]) -> list[str]:
    names = []
    for name in estimators:
        names.append(name)
        if name in SIMULATORS:
            names.append(name + CONSTANT)
    return names


def _by_simulator(result: Result, name: str, context: int | None) -> Judged | None:
    timed = result.answers.get(name)
    if timed is None:
        return None
    prediction, case = timed.prediction, result.case
    own = value_of(prediction, case.measure)
    estimate = own if context is None or case.measure is not Measure.DEVICE_TOTAL else prediction.reserved + context
    total = prediction.reserved + (prediction.context if context is None else context)
    doubt = None if prediction.doubt is None else Doubt(*prediction.doubt)
    interval = load_interval(calibrated=context is not None).for_job(doubt, total)
    least = most = estimate
    if case.measure in (Measure.RESERVED, Measure.DEVICE_TOTAL):
        least -= prediction.reserved - prediction.least_reserved
        most += prediction.most_reserved - prediction.reserved
    low, high = interval.around(least, 0)[0], interval.around(most, 0)[1]
    return Judged(
        estimate=estimate,
        truth=case.measured,
        low=low,
        high=high,
        bound=interval.not_exceeded(most),
        call=prediction.fits,
        ran=case.ran,
        seconds=result.capture_seconds + timed.seconds,
        doubt=doubt,
        device_total=total,
    )


def _with_constant(results: Sequence[Result], name: str) -> list[Judged | None]:
    """Rows whose figure is not a device total have no context to replace, and no place here."""
    campaigns: dict[str, list[int]] = defaultdict(list)
    for index, result in enumerate(results):
        if name in result.answers and result.case.measure is Measure.DEVICE_TOTAL:
            campaigns[result.case.campaign].append(index)
    rows: list[Judged | None] = [None] * len(results)
    for members in campaigns.values():
        differences = [_difference(results[i], name) for i in members]
        found = constants(differences, [results[i].case.family for i in members])
        for i, constant in zip(members, found, strict=True):
            rows[i] = None if constant is None else _by_simulator(results[i], name, round(constant))
    return rows


def _difference(result: Result, name: str) -> float | None:
    """What the process held beside the allocator; unknown for one that failed."""
    prediction: Prediction = result.answers[name].prediction
    return None if result.case.measured is None else result.case.measured - prediction.reserved


def _by_baseline(result: Result, name: str) -> Judged | None:
    if result.features is None:
        return None
    value = BASELINES[name](result.features, result.case.workload.batch_size)
    return _plain(result, value)


def _by_formula(result: Result, name: str) -> Judged | None:
    run = transformer_of(result.case)
    value = None if run is None else FORMULAS[name](run)
    return None if value is None else _plain(result, value)


def _by_mem_tracker(result: Result) -> Judged | None:
    if result.tracked is None or result.tracked.peak is None:
        return None
    return _plain(result, result.tracked.peak, result.tracked.seconds)


def _by_linear_fit(results: Sequence[Result]) -> list[Judged | None]:
    known = [i for i, r in enumerate(results) if r.features is not None and r.case.measured is not None]
    features = [f for f in (results[i].features for i in known) if f is not None]
    truths = [t for t in (results[i].case.measured for i in known) if t is not None]
    found = linear_fit(features, truths, [results[i].case.family for i in known])
    rows: list[Judged | None] = [None] * len(results)
    for i, value in zip(known, found, strict=True):
        rows[i] = None if value is None else _plain(results[i], value)
    return rows


def _plain(result: Result, value: int, seconds: float | None = None) -> Judged:
    """A figure without an interval; the job is called to fit where the figure does."""
    return Judged(
        estimate=value,
        truth=result.case.measured,
        low=None,
        high=None,
        bound=None,
        call=value <= result.case.target.gpu.usable_memory,
        ran=result.case.ran,
        seconds=result.capture_seconds if seconds is None else seconds,
    )
