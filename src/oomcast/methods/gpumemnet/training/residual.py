"""The better design, fitted and judged: log(measured / simulated) by its quantiles, given what the simulator found.

Judged with whole architectures and model families left out. Linear models, other trees and networks are fitted to the
same folds, so that the choice can be checked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import BadInput
from ....estimation import group_curve, leave_group_out
from ..artifact import Domain, ResidualModel
from ..features import SimulatorFeatures
from ..networks.trees import QuantileTrees, TreeSettings, fit_quantile_trees
from .rows import SimulatedRow

__all__ = [
    "LEARNERS",
    "Kept",
    "Summary",
    "fit_residual",
    "keep_groups_out",
    "keep_rows_out",
    "least_groups",
    "summarise",
]

LEVELS = (0.1, 0.5, 0.9)
"""The spread is what lies between the outer two; the curve over groups left out says how far to trust it."""
_CURVE_LEVELS = tuple(level / 200 for level in (2, 3, 4, 5, *range(6, 195, 4), 195, 196, 197, 198))
_COVERAGE = 0.95
_TREES = TreeSettings()
_LEAST_SPREAD = 0.01
_WIDER = 2.0
Floats = NDArray[np.float64]
Learner = Callable[[Floats, Floats, Floats, int], Callable[[Floats], Floats]]


@dataclass(frozen=True)
class Kept:
    """For every row, what a model that had not seen its part said of it."""

    medians: Mapping[str, Floats]
    """log(measured / simulated), by learner."""
    spreads: Floats
    """Of the shipped design."""


@dataclass(frozen=True)
class Summary:
    """An estimator on the rows of one data set."""

    estimator: str
    data: str
    rows: int
    mre: float
    p90: float
    under: float
    """The share of estimates below the truth."""
    classes: Mapping[int, float]
    """Accuracy by width in MiB; runs out of memory are of the class above the device."""
    judged_on: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _trees(x: Floats, y: Floats, weights: Floats, seed: int) -> Callable[[Floats], Floats]:
    fitted = fit_quantile_trees(x, y, weights, LEVELS, replace(_TREES, seed=seed))
    return lambda rows: np.asarray(fitted.predict(rows), dtype=np.float64)


def _linear(x: Floats, y: Floats, weights: Floats, seed: int) -> Callable[[Floats], Floats]:
    from sklearn.linear_model import QuantileRegressor

    mean, scale = _scaling(x)
    model = QuantileRegressor(quantile=0.5, alpha=1e-3, solver="highs").fit((_logs(x) - mean) / scale, y, weights)
    return lambda rows: np.asarray(model.predict((_logs(rows) - mean) / scale))


def _boosted_trees(x: Floats, y: Floats, weights: Floats, seed: int) -> Callable[[Floats], Floats]:
    from sklearn.ensemble import GradientBoostingRegressor

    model = GradientBoostingRegressor(loss="huber", learning_rate=0.05, subsample=0.7, random_state=seed)
    model.fit(x, y, weights)
    return lambda rows: np.asarray(model.predict(rows))


def _network(x: Floats, y: Floats, weights: Floats, seed: int) -> Callable[[Floats], Floats]:
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    mean, scale = _scaling(x)
    unit = max(float(np.abs(y).mean()), 1e-6)
    model = MLPRegressor(hidden_layer_sizes=(32, 16), alpha=1e-2, early_stopping=True, max_iter=300, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit((_logs(x) - mean) / scale, y / unit)
    return lambda rows: np.asarray(model.predict((_logs(rows) - mean) / scale)) * unit


LEARNERS: Mapping[str, Learner] = {
    "quantile trees": _trees,
    "linear": _linear,
    "boosted trees": _boosted_trees,
    "network": _network,
}
"""The first is the one that ships."""


def keep_groups_out(
    rows: Sequence[SimulatedRow], folds: int, seed: int, learners: Sequence[str], on_fold: Callable[[], None]
) -> Kept:
    """Whole architectures and families are left out together; so are an architecture's MLPs and CNNs."""
    groups = sorted({row.group for row in rows})
    order = np.random.default_rng(seed).permutation(len(groups))
    part = {groups[place]: number % folds for number, place in enumerate(order)}
    return _keep_out(rows, [part[row.group] for row in rows], seed, learners, on_fold)


def keep_rows_out(
    rows: Sequence[SimulatedRow], folds: int, seed: int, learners: Sequence[str], on_fold: Callable[[], None]
) -> Kept:
    """Random rows, as GPUMemNet judges."""
    parts = np.random.default_rng(seed).permutation(len(rows)) % folds
    return _keep_out(rows, parts.tolist(), seed, learners, on_fold)


def _keep_out(
    rows: Sequence[SimulatedRow], parts: Sequence[int], seed: int, learners: Sequence[str], on_fold: Callable[[], None]
) -> Kept:
    x, y, known = _table(rows)
    medians = {name: np.zeros(len(rows)) for name in learners}
    spreads = np.full(len(rows), _LEAST_SPREAD)
    for part in sorted(set(parts)):
        out = np.array([own == part for own in parts])
        learnt = known & ~out
        if learnt.sum() < 20:
            raise BadInput(f"{int(learnt.sum())} measured runs are too few to learn from; at least 20 are needed.")
        weights = _weights([row for row, used in zip(rows, learnt, strict=True) if used])
        for name in learners:
            found = LEARNERS[name](x[learnt], y[learnt], weights, seed)(x[out])
            if found.ndim == 2:
                medians[name][out] = found[:, len(LEVELS) // 2]
                spreads[out] = np.maximum(found[:, -1] - found[:, 0], _LEAST_SPREAD)
            else:
                medians[name][out] = found
        on_fold()
    return Kept(medians, spreads)


def least_groups() -> int:
    """As many can promise the interval: one more would have to lie outside of all of them."""
    return round(2 / (1 - _COVERAGE)) - 1


def fit_residual(rows: Sequence[SimulatedRow], kept: Kept, seed: int) -> tuple[ResidualModel, dict[str, Any]]:
    """The model that ships, from all rows; its interval from the groups that were left out. And how that covers."""
    x, y, known = _table(rows)
    used = [row for row, one in zip(rows, known, strict=True) if one]
    trees: QuantileTrees = fit_quantile_trees(x[known], y[known], _weights(used), LEVELS, replace(_TREES, seed=seed))
    shipped = next(iter(LEARNERS))
    scores = ((y - kept.medians[shipped]) / kept.spreads)[known].tolist()
    groups = [row.group for row in used]
    if len(set(groups)) < least_groups():
        raise BadInput(
            f"runs of {len(set(groups))} architectures and families cannot promise an interval of {_COVERAGE:.0%}, "
            f"it takes {least_groups()}; add timm_a100_fp32.csv to the folder, or more rows of it."
        )
    curve = group_curve(scores, groups, _CURVE_LEVELS)
    covered = leave_group_out(scores, groups, _COVERAGE)
    domain = Domain(
        kinds=tuple(sorted({kind for row in used for kind in row.kinds})),
        low=tuple(map(float, x[known].min(axis=0))),
        high=tuple(map(float, x[known].max(axis=0))),
    )
    wide = _WIDER * float(np.quantile(kept.spreads[known], 0.95))
    told = {
        "rows": len(used),
        "groups": len(set(groups)),
        "not_exceeded_by_group": covered.covered_by_group,
        "not_exceeded_by_row": covered.covered,
        "mean_headroom": float(np.mean(np.exp(kept.spreads[known] * curve.at(_COVERAGE)) - 1)),
    }
    return ResidualModel(trees, domain, curve, _LEAST_SPREAD, wide), told


def summarise(
    estimator: str,
    rows: Sequence[SimulatedRow],
    estimates: Sequence[float],
    fits: Sequence[bool],
    widths: Sequence[int],
    judged_on: str,
) -> list[Summary]:
    """By data set."""
    found = []
    for data in sorted({row.data for row in rows}):
        own = [i for i, row in enumerate(rows) if row.data == data]
        pairs = [(estimates[i], row.measured) for i, row in enumerate(rows) if row.data == data and row.measured]
        errors = [abs(estimate / truth - 1) for estimate, truth in pairs]
        if not errors:
            continue
        classes = {
            width: float(np.mean([_same_class(rows[i], estimates[i], fits[i], width << 20) for i in own]))
            for width in widths
        }
        found.append(
            Summary(
                estimator=estimator,
                data=data,
                rows=len(own),
                mre=float(np.median(errors)),
                p90=float(np.quantile(errors, 0.9)),
                under=float(np.mean([estimate < truth for estimate, truth in pairs])),
                classes=classes,
                judged_on=judged_on,
            )
        )
    return found


def _same_class(row: SimulatedRow, estimate: float, fits: bool, width: int) -> bool:
    """Out of memory: the class where the device ends, and all above."""
    top = row.usable // width
    truth = top if row.measured is None else min(row.measured // width, top)
    return bool(truth == (min(int(estimate) // width, top) if fits else top))


def _table(rows: Sequence[SimulatedRow]) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Features, log ratios, and which rows have one."""
    x = np.array([row.features.values() for row in rows], dtype=np.float64)
    y = np.array([0.0 if row.measured is None else math.log(row.measured / row.simulated) for row in rows])
    return x, y, np.array([row.measured is not None for row in rows])


def _weights(rows: Sequence[SimulatedRow]) -> Floats:
    """A group of many rows counts more than one of few, but not as much more."""
    sizes = Counter((row.data, row.group) for row in rows)
    weights = np.array([1 / math.sqrt(sizes[row.data, row.group]) for row in rows])
    scaled: Floats = weights / weights.mean()
    return scaled


def _logs(x: Floats) -> Floats:
    """Bytes and counts by their logarithms; the rest are shares."""
    large = [name in ("device_total", "reserved", "depth") for name in SimulatorFeatures.names()]
    return np.where(large, np.log2(np.maximum(x, 1)), x)


def _scaling(x: Floats) -> tuple[Floats, Floats]:
    logs = _logs(x)
    return logs.mean(axis=0), np.maximum(logs.std(axis=0), 1e-6)
