"""A fitted equation as a file: readable JSON with a version, every run in it; nothing of it is executed when read."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import UnreadableFile
from ..fitted_file import FittedFile
from ..tbem import Value
from .memory_equation import EQUATION_FEATURES, EquationRow, MemoryEquation
from .symbolic import Equation

__all__ = ["EQUATION_SCHEMA", "read_equation", "write_equation"]

EQUATION_SCHEMA = 1
_KIND = "oomcast equation"
_FILE = FittedFile(_KIND, EQUATION_SCHEMA, "oomcast equation fit", "equation")


def write_equation(fitted: MemoryEquation, path: str | os.PathLike[str]) -> Path:
    """Write it to a file, which is replaced in one step: a reader never meets half of it."""
    target = Path(path)
    plain = {
        "kind": _KIND,
        "schema": EQUATION_SCHEMA,
        "memory": f"{fitted.equation.text()} bytes",
        "errors": {
            "training": fitted.training_error,
            "each run by a fit without it": fitted.kept_out_error,
            "runs kept out": fitted.mape(fitted.checks) if fitted.checks else None,
        },
        "ranges": {name: list(ends) for name, ends in fitted.ranges.items()},
        "templates": list(fitted.templates),
        "campaigns": list(fitted.campaigns),
        "stores": list(fitted.stores),
        "framework": fitted.framework,
        "device": fitted.device,
        "features": fitted.features,
        "steps": fitted.steps,
        "fixed": dict(fitted.fixed),
        "environment": dict(fitted.environment),
        "versions": dict(fitted.versions),
        "search": dict(fitted.search),
        "seconds": fitted.seconds,
        "equation": fitted.equation.to_json(),
        "front": [equation.to_json() for equation in fitted.front],
        "ratios": list(fitted.ratios),
        "beyond": fitted.beyond,
        "rows": [
            {
                "key": row.key,
                "template": row.template,
                "parameters": dict(row.parameters),
                "figures": dict(row.figures),
                "measured": row.measured,
                "kept_out": row.kept_out,
            }
            for row in fitted.rows
        ],
    }
    return _FILE.write(plain, target)


def read_equation(path: str | os.PathLike[str]) -> MemoryEquation:
    """Read what `write_equation` wrote; a file that is damaged or of another kind raises UnreadableFile."""
    fitted = _FILE.read(Path(path), _equation)
    writer = fitted.versions.get("oomcast")
    if writer == "0.1.0" and fitted.device == "cpu" and fitted.features != "parameters":
        raise UnreadableFile(
            f"{path} was fitted by oomcast 0.1.0 to timelines that had temporaries which a CPU does not hold; fit the "
            "equation again."
        )
    return fitted


def _equation(plain: Mapping[str, Any]) -> MemoryEquation:
    if plain["features"] not in EQUATION_FEATURES:
        raise ValueError(f"no kind of features is called {plain['features']!r}")
    rows = tuple(map(_row, plain["rows"]))
    ratios = tuple(_positive(ratio) for ratio in plain["ratios"])
    if len(ratios) != sum(not row.kept_out for row in rows):
        raise ValueError("there is not one ratio for each run")
    equation = Equation.from_json(plain["equation"])
    front = tuple(map(Equation.from_json, plain["front"]))
    if any(simpler.names != equation.names for simpler in front):
        raise ValueError("the equations have different variables")
    return MemoryEquation(
        templates=tuple(map(str, plain["templates"])),
        campaigns=tuple(map(str, plain["campaigns"])),
        stores=tuple(map(str, plain["stores"])),
        framework=str(plain["framework"]),
        device=str(plain["device"]),
        features=str(plain["features"]),
        steps=int(plain["steps"]),
        fixed={str(name): _value(value) for name, value in plain["fixed"].items()},
        environment=dict(plain["environment"]),
        versions={str(name): str(version) for name, version in plain["versions"].items()},
        rows=rows,
        equation=equation,
        front=front,
        ratios=ratios,
        beyond=_positive(plain["beyond"], least=0.0),
        search=dict(plain["search"]),
        seconds=float(plain["seconds"]),
    )


def _row(plain: Mapping[str, Any]) -> EquationRow:
    measured, kept_out = plain["measured"], plain["kept_out"]
    if isinstance(measured, bool) or not isinstance(measured, int) or not 0 < measured < 1 << 62:
        raise ValueError(f"{measured!r} is no number of bytes")
    if not isinstance(kept_out, bool):
        raise TypeError(f"{kept_out!r} is neither true nor false")
    return EquationRow(
        key=str(plain["key"]),
        template=str(plain["template"]),
        parameters={str(name): _value(value) for name, value in plain["parameters"].items()},
        figures={str(name): float(value) for name, value in plain["figures"].items()},
        measured=measured,
        kept_out=kept_out,
    )


def _value(value: Any) -> Value:
    if not isinstance(value, (int, float, str, bool)):
        raise TypeError(f"{value!r} is no value of a parameter")
    return value


def _positive(value: Any, least: float = math.ulp(0.0)) -> float:
    number = float(value)
    if not math.isfinite(number) or number < least:
        raise ValueError(f"{value!r} cannot be")
    return number
