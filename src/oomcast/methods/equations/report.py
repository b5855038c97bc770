"""Fitted equations in the terminal: the equation itself, how good it is, and the front it was chosen from."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...units import format_bytes
from ..tbem import duration, percent
from .memory_equation import UNKNOWN

if TYPE_CHECKING:
    from .comparison import Comparison
    from .memory_equation import MemoryEquation, Prediction

__all__ = [
    "comparison_as_json",
    "equation_as_json",
    "prediction_as_json",
    "render_comparison",
    "render_equation",
    "render_equation_forms",
    "render_prediction",
]


def render_equation(fitted: MemoryEquation) -> RenderableType:
    """The equation and its errors."""
    where = "a table of runs"
    if fitted.framework != UNKNOWN:
        where = f"{fitted.framework} {fitted.environment.get('version', '')} on {fitted.device}"
    ranges = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in fitted.ranges.items())
    checks = f"; {percent(fitted.mape(fitted.checks))} on {len(fitted.checks)} runs kept out" if fitted.checks else ""
    return Group(
        Text(f"{', '.join(fitted.templates)}: {where}", style="bold"),
        Text(f"memory = {fitted.equation.text('bytes')}", overflow="fold"),
        Text(
            f"Mean absolute error {percent(fitted.training_error)} on the {len(fitted.learnt)} runs it was fitted to, "
            f"{percent(fitted.kept_out_error)} on each by a fit without it{checks}."
        ),
        *(
            Text(
                f"On the {errors.runs} runs {what}: median {percent(errors.median)}, worst {percent(errors.worst)}, "
                f"root mean squared error {format_bytes(round(errors.rmse))}, R² {errors.r2:.5f}."
            )
            for what, errors in (
                ("it was fitted to", fitted.errors(fitted.learnt)),
                ("kept out", fitted.errors(fitted.checks)),
            )
            if errors is not None
        ),
        Text(f"Samples: {ranges}. Search: {duration(fitted.seconds)}, seed {fitted.search.get('seed')}.", style="dim"),
    )


def render_equation_forms(fitted: MemoryEquation) -> RenderableType:
    """For papers and programs: LaTeX, Python, and all equations that no other betters."""
    front = Table(box=None, pad_edge=False, title="Pareto front", title_justify="left")
    front.add_column("Size", justify="right")
    front.add_column("Error", justify="right")
    front.add_column("memory in bytes", overflow="fold")
    for equation in fitted.front:
        front.add_row(str(equation.size), f"{100 * equation.error:.2f} %", equation.text())
    return Group(
        Text("LaTeX", style="bold"),
        Text(fitted.equation.latex(), overflow="fold"),
        Text("Python", style="bold"),
        Text(fitted.equation.python().rstrip(), overflow="fold"),
        front,
    )


def render_prediction(predicted: Prediction) -> RenderableType:
    lines = [
        Text(
            f"{format_bytes(predicted.total)} ({100 * predicted.coverage:.4g}% interval {format_bytes(predicted.low)} "
            f"to {format_bytes(predicted.high)}; will not exceed {format_bytes(predicted.will_not_exceed)})",
            style="bold",
        )
    ]
    if predicted.distance > 0:
        lines.append(
            Text(
                f"Extrapolated: outside the hull of the samples by {predicted.distance:.2g} of their ranges; the "
                "interval is wider for that.",
                style="yellow",
            )
        )
    return Group(*lines)


def equation_as_json(fitted: MemoryEquation) -> dict[str, Any]:
    """Plain data for `json.dumps`; errors as shares."""
    return {
        "templates": list(fitted.templates),
        "framework": fitted.framework,
        "device": fitted.device,
        "text": fitted.equation.text(),
        "latex": fitted.equation.latex(),
        "python": fitted.equation.python(),
        "names": list(fitted.names),
        "ranges": {name: list(ends) for name, ends in fitted.ranges.items()},
        "fixed": dict(fitted.fixed),
        "runs": len(fitted.learnt),
        "errors": {
            "training": fitted.training_error,
            "each_by_a_fit_without_it": fitted.kept_out_error,
            "kept_out": fitted.mape(fitted.checks) if fitted.checks else None,
        },
        "metrics": {
            name: None if (errors := fitted.errors(rows)) is None else asdict(errors)
            for name, rows in (("training", fitted.learnt), ("kept_out", fitted.checks))
        },
        "seconds": fitted.seconds,
        "search": dict(fitted.search),
        "front": [
            {"size": equation.size, "error": equation.error, "text": equation.text()} for equation in fitted.front
        ],
    }


def prediction_as_json(predicted: Prediction) -> dict[str, Any]:
    return {
        "total": predicted.total,
        "low": predicted.low,
        "high": predicted.high,
        "coverage": predicted.coverage,
        "will_not_exceed": predicted.will_not_exceed,
        "extrapolated": predicted.distance > 0,
        "distance": predicted.distance,
    }


def render_comparison(found: Comparison, runs: int) -> RenderableType:
    table = Table(box=None, pad_edge=False, title=f"{runs} runs, errors on those kept out", title_justify="left")
    table.add_column("Method")
    for name in ("Splits", "Median error", "Worst", "RMSE", "CPU seconds"):
        table.add_column(name, justify="right")
    for method in sorted(found.splits, key=found.median):
        table.add_row(
            method,
            str(len(found.splits[method])),
            percent(found.median(method)),
            percent(found.worst(method)),
            format_bytes(round(found.rmse(method))),
            f"{found.seconds(method):.1f}",
        )
    return Group(table, *(Text(f"{method} is left out: {why}.") for method, why in found.left_out.items()))


def comparison_as_json(found: Comparison) -> dict[str, Any]:
    return {
        method: {
            "median_error": found.median(method),
            "worst_error": found.worst(method),
            "rmse": found.rmse(method),
            "seconds": found.seconds(method),
            "splits": [vars(split) for split in splits],
        }
        for method, splits in found.splits.items()
    }
