"""Equations of the Timeline's figures, learnt from one family of networks and judged on another; PyTorch on a CPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from oomcast.errors import BadInput
from oomcast.methods.equations import (
    EquationRow,
    MemoryEquation,
    RunsOrigin,
    equation_rows,
    fit_equation_to,
    measured_runs,
    read_equation,
    write_equation,
)
from oomcast.methods.measure import Measurement, Selection, Store

__all__ = ["FAMILIES", "Carried", "carry"]

FAMILIES = {"VGG": ("vgg", "vgg-torch-cpu"), "U-Net 2D": ("unet", "unet-torch-cpu"), "U-Net 3D": ("unet3d", None)}
"""The store and the campaign of each."""
_LEARNT_FROM = (("VGG",), ("U-Net 2D",), ("VGG", "U-Net 2D"), ("U-Net 3D",))


@dataclass(frozen=True)
class Carried:
    """What was learnt from some families says of each family."""

    learnt_from: tuple[str, ...]
    equation: str
    errors: dict[str, float]
    """By family; of those learnt from, each run by a fit without it."""
    constant_errors: dict[str, float]
    """The same of the tensors' bytes and a constant, which needs no search."""
    by_parameters: float | None
    """Kept-out error of an equation of the raw parameters, which knows one template only; None where they are words."""


def carry(folder: Path, tell: Callable[[str, int, int], None]) -> list[Carried]:
    runs: dict[str, list[Measurement]] = {}
    rows: dict[str, tuple[EquationRow, ...]] = {}
    for family, (store, campaign) in FAMILIES.items():
        with Store.open(folder / f"{store}.db") as opened:
            runs[family] = measured_runs([opened], Selection(campaign=campaign))
        kept = folder / f"{store}.timeline.json"
        before = read_equation(kept) if kept.exists() else None

        def traced(done: int, total: int, family: str = family) -> None:
            tell(f"timelines of {family}", done, total)

        rows[family] = equation_rows(runs[family], "timeline", before, traced)
        write_equation(_fit(rows[family], runs[family], "timeline"), kept)
    return [_carried(families, rows, runs) for families in _LEARNT_FROM]


def _carried(
    families: tuple[str, ...], rows: dict[str, tuple[EquationRow, ...]], runs: dict[str, list[Measurement]]
) -> Carried:
    own = [row for family in families for row in rows[family]]
    fitted = _fit(own, [run for family in families for run in runs[family]], "timeline")
    errors = {family: fitted.mape(rows[family]) for family in rows if family not in families}
    place = 0
    for family in families:
        ratios = fitted.ratios[place : place + len(rows[family])]
        errors[family] = statistics.fmean(abs(1 / ratio - 1) for ratio in ratios)
        place += len(rows[family])
    constant = statistics.median(row.measured - row.figures["tensors"] for row in own)
    return Carried(
        families,
        fitted.equation.text(),
        errors,
        {family: _constant_error(rows[family], constant) for family in rows},
        _by_parameters(own, [run for family in families for run in runs[family]]),
    )


def _constant_error(rows: Sequence[EquationRow], constant: float) -> float:
    return statistics.fmean(abs((row.figures["tensors"] + constant) / row.measured - 1) for row in rows)


def _by_parameters(rows: Sequence[EquationRow], runs: Sequence[Measurement]) -> float | None:
    try:
        return _fit(rows, runs, "parameters").kept_out_error
    except BadInput:
        return None


def _fit(rows: Sequence[EquationRow], runs: Sequence[Measurement], features: str) -> MemoryEquation:
    return fit_equation_to(rows, RunsOrigin.of(runs), stores=[], features=features)
