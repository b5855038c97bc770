"""A fitted campaign as a file: readable JSON with a version, every measured row in it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ..design import Factor, Value
from ..errors import BadInput, UnreadableFile
from ..learn import PolynomialRegression
from ._gap import FEATURES, Gap, GapRow
from ._static_value import StaticValue

__all__ = ["GAP_SCHEMA", "read_gap", "write_gap"]

GAP_SCHEMA = 1
_KIND = "oomcast gap"
_LARGEST = 256 << 20


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
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        part.write_text(json.dumps(plain, indent=1), encoding="utf-8")
        os.replace(part, target)
    except OSError as error:
        raise BadInput(f"cannot write {target}: {error.strerror or error}.") from None
    return target


def read_gap(path: str | os.PathLike[str]) -> Gap:
    """What `write_gap` wrote; anything else is told with the file's name."""
    source = Path(path)
    try:
        if source.stat().st_size > _LARGEST:
            raise UnreadableFile(f"{source} is too large to be a fitted campaign.")
        plain = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(f"{source} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise UnreadableFile(f"{source} is not a file of oomcast campaign fit.") from None
    if not isinstance(plain, dict) or plain.get("kind") != _KIND:
        raise UnreadableFile(f"{source} is not a file of oomcast campaign fit.")
    if plain.get("schema") != GAP_SCHEMA:
        raise UnreadableFile(
            f"{source} has schema {plain.get('schema')!r}, this oomcast reads {GAP_SCHEMA}; fit the campaign again."
        )
    try:
        return _gap(plain)
    except (KeyError, TypeError, ValueError, AttributeError, BadInput) as error:
        raise UnreadableFile(f"{source} is damaged ({error}); fit the campaign again.") from None


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
