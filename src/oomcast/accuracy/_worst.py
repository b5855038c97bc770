"""The rows an estimator does worst on, each with a guess at why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..units import format_bytes
from ._cases import Case
from ._judge import CONSTANT, judged_rows
from ._run import Result
from ._simulators import Prediction

__all__ = ["Bad", "worst"]

_MUCH = 0.15
"""The share of the estimate from which a part is worth a word."""


@dataclass(frozen=True)
class Bad:
    case: Case
    estimate: int
    error: float
    why: str


def worst(results: Sequence[Result], estimator: str, count: int = 20) -> list[Bad]:
    """The largest relative errors first."""
    found = []
    for result, judged in zip(results, judged_rows(results, estimator), strict=True):
        if judged is None or judged.truth is None:
            continue
        timed = result.answers.get(estimator.removesuffix(CONSTANT))
        why = _guess(timed.prediction, judged.error, judged.truth - judged.estimate) if timed is not None else ""
        found.append(Bad(result.case, judged.estimate, judged.error, why))
    return sorted(found, key=lambda bad: -abs(bad.error))[:count]


def _guess(prediction: Prediction, error: float, missing: int) -> str:
    """What stands out in the estimate: not a proof."""
    reasons = []
    if prediction.unsupported:
        reasons.append(f"{prediction.unsupported} kernels without a rule")
    if prediction.workspace > _MUCH * prediction.allocated:
        reasons.append(f"{prediction.workspace / prediction.allocated:.0%} of the peak is workspace")
    if prediction.cache > _MUCH * prediction.reserved:
        reasons.append(f"{prediction.cache / prediction.reserved:.0%} of what is reserved is cache")
    if not reasons and abs(missing) < prediction.context / 2:
        reasons.append("as little as the context may vary")
    told = f"{format_bytes(abs(missing))} too {'little' if error < 0 else 'much'}, mostly {prediction.largest}"
    return "; ".join((told, *reasons))
