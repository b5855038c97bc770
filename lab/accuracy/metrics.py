"""How well an estimator does on a data set: the figures of the field, from pairs of estimate and truth."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from oomcast.estimation import Doubt

__all__ = ["Judged", "Score", "constants", "quantile", "score"]


@dataclass(frozen=True)
class Judged:
    """One estimate beside its truth; bytes. Without a truth, only the call counts."""

    estimate: int
    truth: int | None
    low: int | None
    high: int | None
    bound: int | None
    """Will not be exceeded, at the interval's coverage: the one-sided upper bound."""
    call: bool
    """Whether the estimator says that the job runs."""
    ran: bool
    seconds: float
    doubt: Doubt | None = None
    """What of the job drives its error."""
    device_total: int | None = None
    """The estimate of all that the process holds, whatever was measured of it."""

    @property
    def error(self) -> float:
        """Relative; below 0 for an under-estimate."""
        if self.truth is None:
            raise ValueError("only the boundary is known")
        return self.estimate / self.truth - 1


@dataclass(frozen=True)
class Score:
    """Shares are between 0 and 1; None where no row tells."""

    estimator: str
    data: str
    rows: int
    failed: int
    """Rows without an estimate."""
    mre: float | None
    """Median |estimate − truth| / truth."""
    p90: float | None
    under: float | None
    """Share of estimates below the truth."""
    covered: float | None
    """Share of truths between low and high."""
    exceeded: float | None
    """Share of truths above the one-sided upper bound."""
    headroom: float | None
    """Mean of that bound / truth − 1."""
    runs_right: float | None
    """Share of the jobs that ran and were said to run."""
    ooms_right: float | None
    runs: int
    ooms: int
    seconds: float | None
    """Median for one estimate, its capture included."""


def score(estimator: str, data: str, judged: Sequence[Judged], failed: int = 0) -> Score:
    known = [row for row in judged if row.truth is not None]
    between = [row.low <= row.truth <= row.high for row in known if None not in (row.low, row.high)]  # type: ignore[operator]
    bounded = [row.bound / row.truth for row in known if row.bound is not None]  # type: ignore[operator]
    errors = [abs(row.error) for row in known]
    ran = [row.call for row in judged if row.ran]
    oom = [not row.call for row in judged if not row.ran]
    return Score(
        estimator=estimator,
        data=data,
        rows=len(judged),
        failed=failed,
        mre=statistics.median(errors) if errors else None,
        p90=quantile(errors, 0.9) if errors else None,
        under=_mean(row.error < 0 for row in known),
        covered=_mean(between),
        exceeded=_mean(ratio < 1 for ratio in bounded),
        headroom=_mean(ratio - 1 for ratio in bounded),
        runs_right=_mean(ran),
        ooms_right=_mean(oom),
        runs=len(ran),
        ooms=len(oom),
        seconds=statistics.median(row.seconds for row in judged) if judged else None,
    )


def constants(differences: Sequence[float | None], families: Sequence[Hashable]) -> list[float | None]:
    """For each row the median difference of all other families; None where no other family tells one."""
    found: dict[Hashable, float | None] = {}
    for family in dict.fromkeys(families):
        others = [d for d, other in zip(differences, families, strict=True) if other != family and d is not None]
        found[family] = statistics.median(others) if others else None
    return [found[family] for family in families]


def quantile(values: Iterable[float], share: float) -> float:
    """Linear between the two nearest values."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None
