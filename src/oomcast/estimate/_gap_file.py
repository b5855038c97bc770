"""A fitted campaign as a file: readable JSON with a version, every measured row in it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ..design import Factor, Value
from ..learn import PolynomialRegression
from ._fitted_file import FittedFile
from ._gap import FEATURES, Gap, GapRow
from ._static_value import StaticValue

__all__ = ["GAP_SCHEMA", "read_gap", "write_gap"]

GAP_SCHEMA = 1
_KIND = "oomcast gap"
_FILE = FittedFile(_KIND, GAP_SCHEMA, "oomcast campaign fit", "campaign")


def write_gap(gap: Gap, path: str | os.PathLike[str]) -> Path:
    """Whole or not at all: a reader never meets half a file."""
    target = Path(path)
    plain = {
        "kind": _KIND,
        "schema": GAP_SCHEMA,
        **{name: getattr(gap, name) for name in ("campaign", "template", "framework", "device", "steps", "features")},
        "factors": {factor.name: list(factor.levels) for factor in gap.factors},
        "fixed": dict(gap.fixed),
        "environment": dict(gap.environment),
        "versions": dict(gap.versions),
        "gap": {name: json.loads(model.to_json()) for name, model in gap.models.items()},
        "direct": json.loads(gap.direct.to_json()),
        "ratios": list(gap.ratios),
        "rows": [
            {
                "key": row.key,
                "role": row.role,
                "parameters": dict(row.parameters),
                "static": row.static.as_dict(),
                "measured": row.measured,
                "seconds": row.seconds,
            }
            for row in gap.rows
        ],
    }
    return _FILE.write(plain, target)


def read_gap(path: str | os.PathLike[str]) -> Gap:
    """What `write_gap` wrote; anything else is told with the file's name."""
    return _FILE.read(Path(path), _gap)


def _gap(plain: Mapping[str, Any]) -> Gap:
    models = {
        str(name): PolynomialRegression.from_json(json.dumps(model))
        for name, model in plain["gap"].items()
        if name in FEATURES
    }
    if plain["features"] not in models:
        raise ValueError("the chosen model is missing")
    return Gap(
        **{name: str(plain[name]) for name in ("campaign", "template", "framework", "device", "features")},
        steps=int(plain["steps"]),
        factors=tuple(Factor(str(name), tuple(map(_value, levels))) for name, levels in plain["factors"].items()),
        fixed={str(name): _value(value) for name, value in plain["fixed"].items()},
        environment=dict(plain["environment"]),
        versions={str(name): str(version) for name, version in plain["versions"].items()},
        rows=tuple(map(_row, plain["rows"])),
        models=models,
        direct=PolynomialRegression.from_json(json.dumps(plain["direct"])),
        ratios=tuple(map(_ratio, plain["ratios"])),
    )


def _row(plain: Mapping[str, Any]) -> GapRow:
    if plain["role"] not in ("array", "held_out", "adaptive"):
        raise ValueError(f"no role is called {plain['role']!r}")
    return GapRow(
        key=str(plain["key"]),
        role=cast(Any, plain["role"]),
        parameters={str(name): _value(value) for name, value in plain["parameters"].items()},
        static=StaticValue(**{name: _bytes(plain["static"][name]) for name in ("total", "parameters", "largest")}),
        measured=_bytes(plain["measured"]),
        seconds=float(plain["seconds"]),
    )


def _value(value: Any) -> Value:
    if not isinstance(value, (int, float, str, bool)):
        raise TypeError(f"{value!r} is no value of a parameter")
    return value


def _bytes(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is no number of bytes")
    return value


def _ratio(value: Any) -> float:
    ratio = float(value)
    if not (math.isfinite(ratio) and ratio > 0):
        raise ValueError(f"{value!r} is no ratio")
    return ratio
