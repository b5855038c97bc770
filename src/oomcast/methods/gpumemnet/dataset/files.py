"""Data sets as files: Parquet, or CSV with its metadata in a file beside it. Written whole or not at all."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oomcast.errors import BadInput, UnreadableFile
from oomcast.files import atomic_path, write_atomically

from .rows import COLUMNS, Column, Dataset, Row, flatten, unflatten

__all__ = ["check_path", "metadata_path", "read_dataset", "read_metadata", "write_dataset"]

_KEY = b"oomcast.dataset"
_SUFFIXES = (".parquet", ".csv")
_EMPTY_TEXT = ""
csv.field_size_limit(1 << 27)


def check_path(path: Path) -> None:
    """Raises BadInput where a file cannot be written under this name: asked before hours of work, not after."""
    if path.suffix not in _SUFFIXES:
        raise BadInput(f"a data set is a file that ends in {' or '.join(_SUFFIXES)}, not {path.name!r}.")
    if path.suffix == ".parquet":
        _arrow()
    if path.is_dir():
        raise BadInput(f"{path} is a folder; name a file in it.")
    if not path.parent.is_dir():
        raise BadInput(f"there is no folder {path.parent} for {path.name}; make it first.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise BadInput(f"cannot write {path}: the folder {path.parent} cannot be written to.")


def write_dataset(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    """Write a data set as Parquet or CSV, as the file's ending says."""
    path = Path(path)
    check_path(path)
    if not dataset.rows:
        raise BadInput(f"there are no rows to write to {path}.")
    if path.suffix == ".parquet":
        with atomic_path(path) as part:
            _write_parquet(dataset, part)
        return
    write_atomically(metadata_path(path), (json.dumps(dict(dataset.metadata), indent=2) + "\n").encode())
    with atomic_path(path) as part:
        _write_csv(dataset, part)


def read_dataset(path: str | os.PathLike[str]) -> Dataset:
    path = Path(path)
    rows = [_row(flat, path, number) for number, flat in enumerate(_read(path), start=1)]
    if not rows:
        raise UnreadableFile(f"{path} has no rows.")
    return Dataset(tuple(rows), read_metadata(path))


def read_metadata(path: Path) -> dict[str, Any]:
    """What was written about a data set, without its rows; empty where a CSV file has lost the file beside it."""
    try:
        if path.suffix == ".parquet":
            text = (_open_parquet(path).schema_arrow.metadata or {}).get(_KEY, b"{}").decode()
        else:
            text = metadata_path(path).read_text(encoding="utf-8")
        metadata = json.loads(text)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"cannot read the metadata of {path}: {error}.") from None
    if not isinstance(metadata, dict):
        raise UnreadableFile(f"the metadata of {path} is not that of a data set.")
    return metadata


def metadata_path(path: Path) -> Path:
    """Where the metadata of a CSV file is kept."""
    return path.with_name(f"{path.name}.meta.json")


def _read(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.suffix not in _SUFFIXES:
        raise BadInput(f"a data set is a file that ends in {' or '.join(_SUFFIXES)}, not {path.name!r}.")
    if not path.is_file():
        raise BadInput(f"there is no file {path}.")
    return _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)


def _row(flat: Mapping[str, Any], path: Path, number: int) -> Row:
    try:
        return unflatten(flat)
    except (TypeError, ValueError, KeyError) as error:
        raise UnreadableFile(f"{path}, row {number}: {error}.") from None


def _check_columns(names: list[str], path: Path) -> None:
    missing = [column.name for column in COLUMNS if not column.derived and column.name not in names]
    if missing:
        named = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        raise UnreadableFile(
            f"{path} is not a data set of this version of oomcast: the column{'s' if missing[1:] else ''} {named} "
            f"{'are' if missing[1:] else 'is'} missing. Only files that oomcast dataset build wrote are read."
        )


# Parquet


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise BadInput(
            "Parquet files need the package pyarrow; install it with: pip install 'oomcast[dataset]', or write a .csv."
        ) from None
    return pyarrow


def _schema(arrow: Any, metadata: Mapping[str, Any]) -> Any:
    layer = arrow.struct([("kind", arrow.string()), ("activations", arrow.int64()), ("parameters", arrow.int64())])
    types = {
        "text": arrow.string(),
        "whole": arrow.int64(),
        "number": arrow.float64(),
        "flag": arrow.bool_(),
        "layers": arrow.list_(layer),
    }
    described = [arrow.field(c.name, types[c.type], metadata={"meaning": c.meaning}) for c in COLUMNS]
    return arrow.schema(described, metadata={_KEY: json.dumps(dict(metadata))})


def _write_parquet(dataset: Dataset, path: Path) -> None:
    arrow = _arrow()
    flat = [flatten(row) for row in dataset.rows]
    columns: dict[str, list[Any]] = {column.name: [row[column.name] for row in flat] for column in COLUMNS}
    names = ("kind", "activations", "parameters")
    columns["layers"] = [
        None if layers is None else [dict(zip(names, layer, strict=True)) for layer in layers]
        for layers in columns["layers"]
    ]
    table = arrow.table(columns, schema=_schema(arrow, dataset.metadata))
    arrow.parquet.write_table(table, path, compression="zstd")


def _open_parquet(path: Path) -> Any:
    arrow = _arrow()
    try:
        return arrow.parquet.ParquetFile(path)
    except (arrow.ArrowException, OSError) as error:
        raise UnreadableFile(f"{path} is not a Parquet file: {str(error).splitlines()[0]}.") from None


def _read_parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    file = _open_parquet(path)
    _check_columns(file.schema_arrow.names, path)
    arrow = _arrow()
    try:
        wanted = [column.name for column in COLUMNS if not column.derived]
        table = file.read(columns=wanted).cast(arrow.schema([_schema(arrow, {}).field(name) for name in wanted]))
    except (arrow.ArrowException, OSError) as error:
        raise UnreadableFile(f"{path} cannot be read as a data set: {str(error).splitlines()[0]}.") from None
    for flat in table.to_pylist():
        layers = flat["layers"]
        listed = (
            None if layers is None else [(layer["kind"], layer["activations"], layer["parameters"]) for layer in layers]
        )
        yield {**flat, "layers": listed}


# CSV


def _write_csv(dataset: Dataset, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([column.name for column in COLUMNS])
        for row in dataset.rows:
            flat = flatten(row)
            writer.writerow([_to_cell(column, flat[column.name]) for column in COLUMNS])


def _to_cell(column: Column, value: Any) -> str:
    if value is None:
        return _EMPTY_TEXT
    if column.type == "layers":
        return json.dumps(value, separators=(",", ":"))
    return repr(value) if isinstance(value, float) else str(value)


def _read_csv(path: Path) -> Iterator[Mapping[str, Any]]:
    wanted = [column for column in COLUMNS if not column.derived]
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            _check_columns(list(reader.fieldnames or ()), path)
            for number, cells in enumerate(reader, start=2):
                yield {column.name: _from_cell(column, cells[column.name], path, number) for column in wanted}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UnreadableFile(f"{path} cannot be read as CSV: {error}.") from None


def _from_cell(column: Column, cell: str | None, path: Path, number: int) -> Any:
    try:
        if cell is None:
            raise ValueError("the row ends before this cell")
        if cell == _EMPTY_TEXT:
            return None
        return _READERS[column.type](cell)
    except ValueError as error:
        raise UnreadableFile(f"{path}, row {number}, column {column.name!r}: {error}.") from None


def _flag(cell: str) -> bool:
    if cell not in ("True", "False"):
        raise ValueError(f"{cell!r} is neither True nor False")
    return cell == "True"


def _layers(cell: str) -> list[tuple[str, int, int]]:
    layers = json.loads(cell)
    if not isinstance(layers, list):
        raise ValueError("not a list of layers")
    for layer in layers:
        if not (isinstance(layer, list) and [type(part) for part in layer] == [str, int, int]):
            raise ValueError(f"{layer!r} is not a layer: a kind, its activations and its parameters")
    return [(kind, activations, parameters) for kind, activations, parameters in layers]


_READERS: Mapping[str, Callable[[str], Any]] = {
    "text": str,
    "whole": int,
    "number": float,
    "flag": _flag,
    "layers": _layers,
}
