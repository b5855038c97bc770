"""Truth files: CSV, every cell checked, so that a bad one says which file, row and column."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oomcast.devices import Gpu
from oomcast.errors import BadInput
from oomcast.units import GiB, MiB, format_bytes

__all__ = ["Row", "read_rows"]

_SMALLEST = MiB
_SLACK = 1.02
"""A driver may report a little more than the nominal capacity."""


@dataclass(frozen=True)
class Row:
    """One line of a table; the header is line 1."""

    file: str
    number: int
    cells: Mapping[str, str]

    def error(self, column: str, what: str) -> BadInput:
        return BadInput(f"{self.file}, row {self.number}, column {column!r}: {what}.")

    def get(self, column: str) -> str:
        """The cell; may be empty."""
        return self.cells[column].strip()

    def text(self, column: str) -> str:
        cell = self.get(column)
        if not cell:
            raise self.error(column, "the cell is empty")
        return cell

    def number_in(self, column: str) -> float:
        cell = self.text(column)
        try:
            value = float(cell)
        except ValueError:
            raise self.error(column, f"{cell!r} is not a number") from None
        if not math.isfinite(value) or value < 0:
            raise self.error(column, f"{cell!r} is not a number of at least 0")
        return value

    def whole(self, column: str, least: int = 1) -> int:
        value = self.number_in(column)
        if value < least:
            raise self.error(column, f"{self.get(column)!r} is less than {least}")
        if value != int(value):
            raise self.error(column, f"{self.get(column)!r} is not a whole number")
        return int(value)

    def mib(self, column: str, gpu: Gpu) -> int:
        return self._bytes(column, MiB, "MiB", gpu)

    def gib(self, column: str, gpu: Gpu) -> int:
        return self._bytes(column, GiB, "GiB", gpu)

    def decimal_gb(self, column: str, gpu: Gpu) -> int:
        return self._bytes(column, 10**9, "GB", gpu)

    def one_of(self, column: str, known: Sequence[str]) -> str:
        cell = self.text(column)
        if cell not in known:
            raise self.error(column, f"{cell!r} is none of {', '.join(known)}")
        return cell

    def _bytes(self, column: str, unit: int, name: str, gpu: Gpu) -> int:
        """A figure that the GPU cannot show is in another unit."""
        size = round(self.number_in(column) * unit)
        if size > gpu.total_memory * _SLACK:
            held = format_bytes(gpu.total_memory)
            raise self.error(
                column, f"{self.get(column)} {name} is more than the {held} of a {gpu.name}: another unit?"
            )
        if size < _SMALLEST:
            raise self.error(column, f"{self.get(column)} {name} is less than any job takes: another unit?")
        return size


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a CSV file that has at least these columns."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            header = reader.fieldnames or ()
            missing = [column for column in columns if column not in header]
            if missing:
                raise BadInput(f"{path.name}, row 1: the column {missing[0]!r} is missing.")
            for number, cells in enumerate(reader, start=2):
                row = Row(path.name, number, {key: value for key, value in cells.items() if key is not None})
                for column in columns:
                    if cells[column] is None:
                        raise row.error(column, "the row ends before this cell")
                yield row
    except UnicodeDecodeError:
        raise BadInput(f"{path.name} is not text in UTF-8.") from None
    except csv.Error as error:
        raise BadInput(f"{path.name} is not a CSV file: {error}.") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}.") from error
