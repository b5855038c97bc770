"""The figures of the white paper, from the runs here: SVG files beside docs/equations.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from oomcast.methods.equations import MemoryEquation
from oomcast.methods.equations.analytic import ANALYTIC
from oomcast.methods.equations.baselines import BASELINES
from oomcast.methods.equations.comparison import PUBLISHED, SYMBOLIC
from oomcast.report.charts import bars

from ..panels import Curve, Panel, panels
from .equation_runs import Study

__all__ = ["draw"]

GIB = 2**30
_TICKS = (32, 48, 64, 96, 128, 160)
_X, _Y = "image edge, voxels", "peak memory, GiB"
_BETWEEN = 24
"""Points of a model's curve."""


def draw(folder: Path, shown: Mapping[str, tuple[Study, MemoryEquation]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    analytic = ANALYTIC["analytic, rebuilt"]
    figures = {
        "equations-memory": _panels(
            "Memory of a 3D U-Net in training", {name: (study, None) for name, (study, _) in shown.items()}, ""
        ),
        "equations-analytic": _panels(
            "The analytic model, rebuilt, against measured peaks",
            {name: (study, analytic) for name, (study, _) in shown.items()},
            "lines: model, dots: measured",
        ),
        "equations-symbolic": _panels(
            "The symbolic model against measured peaks",
            {name: (study, _by(fitted)) for name, (study, fitted) in shown.items()},
            "lines: model, dots: measured",
        ),
    }
    for name, (study, _) in shown.items():
        methods = (SYMBOLIC, PUBLISHED, *BASELINES)
        figures[f"equations-errors-{name.lower()}"] = bars(
            f"{name}: median test error by method",
            [(method, study.median(method)) for method in methods if method in study.splits],
            lambda share: f"{100 * share:.2f} %",
        )
    for name, text in figures.items():
        (folder / f"{name}.svg").write_text(text + "\n", encoding="utf-8")


def _by(fitted: MemoryEquation) -> Callable[[int, int], float]:
    return lambda edge, batch_size: fitted.at({"edge": edge, "batch_size": batch_size})


def _panels(title: str, shown: Mapping[str, tuple[Study, Callable[[int, int], float] | None]], note: str) -> str:
    drawn = []
    for name, (study, model) in shown.items():
        curves = []
        places = [(int(row.parameters["batch_size"]), float(row.parameters["edge"]), row) for row in study.runs.rows]
        for batch_size in sorted({size for size, _, _ in places}):
            dots = sorted((edge, row.measured / GIB) for size, edge, row in places if size == batch_size)
            line = dots
            if model is not None:
                low, high = dots[0][0], dots[-1][0]
                edges = {round(low + (high - low) * step / _BETWEEN) for step in range(_BETWEEN + 1)}
                line = [(float(edge), model(edge, batch_size) / GIB) for edge in sorted(edges)]
            curves.append(Curve(f"batch {batch_size}", line, dots))
        drawn.append(Panel(name, curves))
    return panels(title, drawn, x=_X, y=_Y, x_ticks=_TICKS, note=note)
