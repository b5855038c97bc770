"""Samples as plain tables, CSV or Parquet: runs that were measured elsewhere, and runs of campaigns for other tools.

A column for each parameter, one for what was measured (`peak_bytes`), and where they are known the template, framework,
version, device, its memory in bytes and the number of steps of the runs.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import BadInput, UnreadableFile
from ...files import atomic_path
from ..tbem import TRACE_FEATURES
from .memory_equation import UNKNOWN, EquationRow, RunsOrigin

__all__ = ["SUFFIXES", "TARGET", "is_table", "read_samples", "read_table", "write_samples", "write_table"]

SUFFIXES = (".csv", ".parquet")
TARGET = "peak_bytes"
_ORIGIN = ("key", "campaign", "template", "framework", "version", "device", "machine_memory", "steps")


def is_table(place: str) -> bool:
    return Path(place).suffix in SUFFIXES


def read_table(path: Path) -> list[dict[str, Any]]:
    """The rows, numbers as numbers; empty cells are left out."""
    if not path.is_file():
        raise BadInput(f"there is no table {path}.")
    try:
        plain = _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
    except (UnicodeDecodeError, csv.Error, OSError, ValueError) as error:
        raise UnreadableFile(f"cannot read {path} as a table: {error}.") from None
    rows = [{name: value for name, value in row.items() if value not in (None, "")} for row in plain]
    if not rows:
        raise UnreadableFile(f"{path} has no rows.")
    return rows


def _read_csv(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.DictReader(lines)
        rows = list(reader)
    if reader.fieldnames is None or len(set(reader.fieldnames)) < len(reader.fieldnames):
        raise ValueError("its columns need names of their own, in the first line")
    if any(None in row or None in row.values() for row in rows):
        raise ValueError("a line has not as many cells as the first one")
    return [{name: _value(text) for name, text in row.items()} for row in rows]


def _value(text: str) -> Any:
    try:
        found = json.loads(text.strip().lower())
    except ValueError:
        return text.strip()
    return found if isinstance(found, (int, float)) else text.strip()


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    try:
        return list(parquet.read_table(path).to_pylist())
    except arrow.ArrowException as error:
        raise ValueError(str(error).splitlines()[0]) from None


def write_table(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Whole or not at all; a column for each name that any row has."""
    if path.suffix not in SUFFIXES:
        raise BadInput(f"a table is a file that ends in {' or '.join(SUFFIXES)}, not {path.name!r}.")
    if path.is_dir() or not path.parent.is_dir():
        raise BadInput(f"cannot write {path}: name a file in a folder that is there.")
    names = list(dict.fromkeys(name for row in rows for name in row))
    with atomic_path(path) as part:
        if path.suffix == ".parquet":
            import pyarrow as arrow
            import pyarrow.parquet as parquet

            parquet.write_table(
                arrow.Table.from_pylist([{name: row.get(name) for name in names} for row in rows]), part
            )
            return
        with Path(part).open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, names)
            writer.writeheader()
            writer.writerows([{n: json.dumps(v) if isinstance(v, bool) else v for n, v in row.items()} for row in rows])


def read_samples(path: Path, target: str | None = None) -> tuple[tuple[EquationRow, ...], RunsOrigin]:
    """The runs of a table; `target` names the column of what was measured, in bytes."""
    plain = read_table(path)
    wanted = target or TARGET
    samples = []
    for number, row in enumerate(plain, 1):
        measured = row.get(wanted)
        if isinstance(measured, bool) or not isinstance(measured, (int, float)) or not measured > 0:
            columns = ", ".join(name for name in row if name not in _ORIGIN)
            raise BadInput(
                f"row {number} of {path} has no {wanted} above 0 (bytes); --target names the column that was measured, "
                f"one of {columns}."
            )
        values = {name: value for name, value in row.items() if name != wanted and name not in _ORIGIN}
        figures = {name: float(values.pop(f"{name}_bytes")) for name in TRACE_FEATURES if f"{name}_bytes" in values}
        samples.append(
            EquationRow(
                str(row.get("key", number)), str(row.get("template", path.stem)), values, figures, round(measured)
            )
        )
    return tuple(samples), _origin(plain, path)


def _origin(plain: Sequence[Mapping[str, Any]], path: Path) -> RunsOrigin:
    def one_of(name: str, otherwise: Any) -> Any:
        seen = {row.get(name, otherwise) for row in plain}
        if len(seen) > 1:
            raise BadInput(
                f"the runs of {path} are of different {name}s ({', '.join(map(str, seen))}); take one of them."
            )
        return seen.pop()

    campaigns = sorted({str(row["campaign"]) for row in plain if "campaign" in row})
    framework, version = one_of("framework", UNKNOWN), one_of("version", "")
    return RunsOrigin(
        campaigns=tuple(campaigns),
        framework=str(framework),
        device=str(one_of("device", UNKNOWN)),
        steps=int(one_of("steps", 2)),
        environment={"framework": str(framework), "version": str(version), "memory": int(one_of("machine_memory", 0))},
    )


def write_samples(rows: Sequence[EquationRow], origin: RunsOrigin, path: Path) -> None:
    """What `read_samples` reads; the Timeline's figures, where there are any, as NAME_bytes."""
    told = {
        "framework": origin.framework,
        "version": str(origin.environment.get("version", "")),
        "device": origin.device,
        "machine_memory": origin.environment.get("memory"),
        "steps": origin.steps,
    }
    write_table(
        [
            {
                "key": row.key,
                "template": row.template,
                **told,
                **row.parameters,
                **{f"{name}_bytes": value for name, value in row.figures.items()},
                TARGET: row.measured,
            }
            for row in rows
        ],
        path,
    )
