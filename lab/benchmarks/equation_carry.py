"""Equations of the Timeline's figures, learnt from one family of networks and judged on another; PyTorch on a CPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from oomcast.errors import BadInput
from oomcast.methods.equations import EquationRow, MemoryEquation, RunsOrigin, fit_equation_to

from .equation_runs import Runs, read_runs

__all__ = ["FAMILIES", "Carried", "carry"]

FAMILIES = {"VGG": "vgg", "U-Net 3D": "unet3d"}
"""The table of the runs of each."""
_LEARNT_FROM = (("VGG",), ("U-Net 3D",), ("VGG", "U-Net 3D"))


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


def carry(tell: Callable[[str, int, int], None]) -> list[Carried]:
    runs = {family: read_runs(name) for family, name in FAMILIES.items()}
    carried = []
    for number, families in enumerate(_LEARNT_FROM):
        tell(" and ".join(families), number, len(_LEARNT_FROM))
        carried.append(_carried(families, runs))
    return carried


def _carried(families: tuple[str, ...], runs: dict[str, Runs]) -> Carried:
    rows = {family: found.rows for family, found in runs.items()}
    own, origin = [row for family in families for row in rows[family]], runs[families[0]].origin
    fitted = _fit(own, origin, "timeline")
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
        _by_parameters(own, origin),
    )


def _constant_error(rows: Sequence[EquationRow], constant: float) -> float:
    return statistics.fmean(abs((row.figures["tensors"] + constant) / row.measured - 1) for row in rows)


def _by_parameters(rows: Sequence[EquationRow], origin: RunsOrigin) -> float | None:
    plain = [replace(row, figures={}) for row in rows]
    try:
        return _fit(plain, origin, "parameters").kept_out_error
    except BadInput:
        return None


def _fit(rows: Sequence[EquationRow], origin: RunsOrigin, features: str) -> MemoryEquation:
    return fit_equation_to(rows, origin, stores=[], features=features)
