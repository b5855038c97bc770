"""The interval from the errors of measured runs, so that it holds for model families that were never seen."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import BadInput
from ..estimate import Interval
from ..learn import group_quantile, group_range, leave_group_out
from ._cases import Case
from ._metrics import Judged

__all__ = ["FittedInterval", "fit_interval", "write_interval"]


@dataclass(frozen=True)
class FittedInterval:
    interval: Interval
    one_sided: float
    """Times the estimate: will not be exceeded with the same coverage."""
    exceeded: float
    """The share of rows above `one_sided`, each family judged by a bound made from the others."""
    headroom: float
    """The mean of that bound over the truth, less 1."""
    rows: int
    families: int


def fit_interval(
    pairs: Sequence[tuple[Case, Judged]], coverage: float = 0.95, label: str = "accuracy"
) -> FittedInterval:
    """From estimates beside their truths; families of different data sets are different families."""
    known = [(f"{case.data}/{case.family}", one.truth / one.estimate, one) for case, one in pairs if one.truth]
    if not known:
        raise BadInput("an interval needs rows with a measured figure, and there is none.")
    families = [family for family, _, _ in known]
    ratios = [ratio for _, ratio, _ in known]
    lower, upper = group_range(ratios, families, coverage)
    one_sided = group_quantile(ratios, families, coverage)
    count = len(set(families))
    if not all(math.isfinite(bound) for bound in (lower, upper, one_sided)):
        needed = math.ceil((1 + coverage) / (1 - coverage))
        raise BadInput(f"{count} model families are too few for an interval of {coverage:.0%}: {needed} are needed.")
    left_out = leave_group_out(ratios, families, coverage)
    finite = [(bound, ratio) for bound, ratio in zip(left_out.bounds, ratios, strict=True) if math.isfinite(bound)]
    data = ", ".join(sorted({case.data for case, _ in pairs}))
    return FittedInterval(
        interval=Interval(
            id=f"{label}-{len(known)}",
            coverage=coverage,
            lower=round(lower, 4),
            upper=round(upper, 4),
            provenance=f"truth / estimate of {len(known)} runs in {count} model families ({data}), grouped conformal",
        ),
        one_sided=round(one_sided, 4),
        exceeded=1 - left_out.covered,
        headroom=sum(bound / ratio - 1 for bound, ratio in finite) / len(finite) if finite else math.inf,
        rows=len(known),
        families=count,
    )


def write_interval(fitted: FittedInterval, path: Path) -> None:
    """In the form that `oomcast.estimate` reads."""
    interval = fitted.interval
    content = {
        "id": interval.id,
        "coverage": interval.coverage,
        "lower": interval.lower,
        "upper": interval.upper,
        "provenance": interval.provenance,
    }
    try:
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write the interval to {path}: {error.strerror or error}.") from error
