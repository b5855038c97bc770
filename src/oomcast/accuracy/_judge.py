"""From results to what is scored: each estimator's figure beside the truth, with one constant per campaign or without."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ..devices import find_gpu
from ._baselines import BASELINES, linear_fit
from ._cases import Measure
from ._metrics import Judged, Score, constants, score
from ._run import LINEAR_FIT, Result
from ._simulators import SIMULATORS, Prediction, value_of

__all__ = ["CONSTANT", "judge", "judged_rows"]

CONSTANT = " + constant"
"""Behind an estimator's name: with the context replaced by one constant per campaign, from the other families."""


def judge(data: str, results: Sequence[Result], estimators: Sequence[str]) -> list[Score]:
    """The scores of each estimator on one data set; simulators with the catalogue's context, and with a constant."""
    scores = []
    for name in _named(estimators):
        rows = judged_rows(results, name)
        if any(row is not None for row in rows):
            known = [row for row in rows if row is not None]
            scores.append(score(name, data, known, failed=len(rows) - len(known)))
    return scores


def judged_rows(results: Sequence[Result], estimator: str) -> list[Judged | None]:
    """By result; None where this estimator has no answer."""
    if estimator == LINEAR_FIT:
        return _by_linear_fit(results)
    if estimator in BASELINES:
        return [_by_baseline(result, estimator) for result in results]
    if estimator.endswith(CONSTANT):
        return _with_constant(results, estimator.removesuffix(CONSTANT))
    return [_by_simulator(result, estimator, None) for result in results]


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
    # The interval is a pair of ratios, so it goes along with whatever figure is judged.
    total = prediction.reserved + prediction.context
    return Judged(
        estimate=estimate,
        truth=case.measured,
        low=round(estimate * prediction.low / total),
        high=round(estimate * prediction.high / total),
        call=prediction.fits,
        ran=case.ran,
        seconds=result.capture_seconds + timed.seconds,
    )


def _with_constant(results: Sequence[Result], name: str) -> list[Judged | None]:
    campaigns: dict[str, list[int]] = defaultdict(list)
    for index, result in enumerate(results):
        if _tells_context(result, name):
            campaigns[result.case.campaign].append(index)
    contexts: dict[int, int] = {}
    for members in campaigns.values():
        differences = [_difference(results[i], name) for i in members]
        found = constants(differences, [results[i].case.family for i in members])
        contexts.update({i: round(c) for i, c in zip(members, found, strict=True) if c is not None})
    return [_by_simulator(r, name, contexts[i]) if i in contexts else None for i, r in enumerate(results)]


def _tells_context(result: Result, name: str) -> bool:
    return name in result.answers and result.case.measure is Measure.DEVICE_TOTAL and result.case.measured is not None


def _difference(result: Result, name: str) -> float:
    prediction: Prediction = result.answers[name].prediction
    assert result.case.measured is not None
    return result.case.measured - prediction.reserved


def _by_baseline(result: Result, name: str) -> Judged | None:
    if result.features is None:
        return None
    value = BASELINES[name](result.features, result.case.workload.batch_size)
    return _plain(result, value)


def _by_linear_fit(results: Sequence[Result]) -> list[Judged | None]:
    known = [i for i, r in enumerate(results) if r.features is not None and r.case.measured is not None]
    features = [f for f in (results[i].features for i in known) if f is not None]
    truths = [t for t in (results[i].case.measured for i in known) if t is not None]
    found = linear_fit(features, truths, [results[i].case.family for i in known])
    rows: list[Judged | None] = [None] * len(results)
    for i, value in zip(known, found, strict=True):
        rows[i] = None if value is None else _plain(results[i], value)
    return rows


def _plain(result: Result, value: int) -> Judged:
    fits = value <= find_gpu(result.case.gpu).usable_memory
    return Judged(value, result.case.measured, None, None, fits, result.case.ran, result.capture_seconds)
