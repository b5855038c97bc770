"""GPUMemNet's estimators, fitted, on every run that the simulator was judged on: bytes from classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..estimate.learned._artifact import ClassModel
from ..estimate.learned._classes import classes_of
from ._train_residual import Summary, summarise
from ._train_rows import REAL, SimulatedRow

__all__ = ["judge_class_models"]


def judge_class_models(
    models: Mapping[str, Mapping[str, ClassModel]], rows: Sequence[SimulatedRow], widths: Sequence[int]
) -> list[Summary]:
    """On named models, none of which they learnt from."""
    found = []
    for estimator, by_kind in models.items():
        own = [row for row in rows if row.data in REAL and row.kind in by_kind]
        chosen = [classes_of(by_kind[row.kind], row.layers)[0] for row in own]
        edges = [
            float((one.chosen + 1) * one.width + _shift(by_kind[row.kind], row))
            for one, row in zip(chosen, own, strict=True)
        ]
        fits = [one.above(row.usable) <= 0.5 for one, row in zip(chosen, own, strict=True)]
        found += summarise(estimator, own, edges, fits, widths, "named models, none learnt from")
    return found


def _shift(model: ClassModel, row: SimulatedRow) -> int:
    """The context of the run's own machine in place of the one that was learnt with."""
    return round(row.features.context * row.simulated) - model.context
