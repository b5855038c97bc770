"""From the results of all data sets to the report: whole sets, their parts, the worst rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .cases import CaseSet
from .features import kind_of
from .judging import judge, judge_parts
from .metrics import Score
from .rendering import Report
from .running import Result
from .worst_rows import worst

__all__ = ["make_report"]


def make_report(
    sets: Sequence[CaseSet],
    results: Mapping[str, Sequence[Result]],
    estimators: Sequence[str],
    *,
    worst_rows: int = 20,
    families: bool = False,
) -> Report:
    """`families`: also the first estimator on every family of models."""
    everything = [result for found in results.values() for result in found]
    return Report(
        sets=tuple(sets),
        scores=tuple(score for name, found in results.items() for score in judge(name, found, estimators)),
        campaigns=tuple(score for found in results.values() for score in _by_campaign(found, estimators)),
        kinds=tuple(score for found in results.values() for score in _by_kind(found, estimators)),
        families=tuple(score for found in results.values() if families for score in _by_family(found, estimators[0])),
        bad=tuple(worst(everything, estimators[0], worst_rows)),
        failed=tuple((result.case.data, result.error) for result in everything if result.error),
    )


def _by_campaign(results: Sequence[Result], estimators: Sequence[str]) -> list[Score]:
    if len({result.case.campaign for result in results}) < 2:
        return []
    return judge_parts(results, estimators, lambda result: f"{result.case.data} {result.case.campaign}")


def _by_kind(results: Sequence[Result], estimators: Sequence[str]) -> list[Score]:
    """Only where a set has transformers and convolutional models side by side, many of them."""
    found = {_kind(result) for result in results}
    if not {"transformer", "convolutional"} <= found or len({result.case.family for result in results}) < 10:
        return []
    return judge_parts(results, estimators, lambda result: f"{result.case.data} {_kind(result)}")


def _by_family(results: Sequence[Result], estimator: str) -> list[Score]:
    scores = judge_parts(results, [estimator], lambda result: f"{result.case.data} {result.case.family}")
    return [score for score in scores if score.estimator == estimator]


def _kind(result: Result) -> str:
    return "not captured" if result.features is None else kind_of(result.features)
