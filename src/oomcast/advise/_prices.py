"""What GPUs cost per hour: a CSV that the user can edit, or the list prices that ship (`prices.csv`, each cited)."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ..devices import find_gpu
from ..errors import BadInput, UnreadableFile

__all__ = ["Price", "read_prices", "shipped_prices"]

_COLUMNS = ("gpu", "price_per_hour")
_FILE = "prices.csv"
_LARGEST = 1 << 20


@dataclass(frozen=True)
class Price:
    """Of one GPU for one hour."""

    gpu: str
    per_hour: float
    currency: str
    provider: str
    instance: str
    as_of: str


def shipped_prices() -> Mapping[str, Price]:
    """On-demand list prices of single GPUs; they are dated and will have changed."""
    text = resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    return _cheapest(text, _FILE)


def read_prices(path: str | os.PathLike[str]) -> Mapping[str, Price]:
    """GPU → its cheapest row. Columns: gpu, price_per_hour; and if wanted currency, provider, instance, as_of."""
    source = Path(path)
    try:
        with source.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise UnreadableFile(f"cannot read {source}: {error.strerror or error}.") from error
    if len(data) > _LARGEST:
        raise UnreadableFile(f"{source} is too large for a list of prices.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{source} is not a CSV file in UTF-8.") from error
    return _cheapest(text, str(source))


def _cheapest(text: str, name: str) -> Mapping[str, Price]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        missing = [column for column in _COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise UnreadableFile(f"{name} has no column {missing[0]}; prices need {' and '.join(_COLUMNS)}.")
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise UnreadableFile(f"{name} is not a CSV file: {error}.") from error
    found: dict[str, Price] = {}
    for line, row in rows:
        price = _price(row, f"{name}, line {line}")
        known = found.get(price.gpu)
        if known is not None and known.currency != price.currency:
            raise BadInput(f"{name}, line {line}: prices in {price.currency} and {known.currency} cannot be compared.")
        if known is None or price.per_hour < known.per_hour:
            found[price.gpu] = price
    return found


def _price(row: Mapping[str, str | None], where: str) -> Price:
    told = (row.get("price_per_hour") or "").strip()
    try:
        per_hour = float(told)
    except ValueError:
        per_hour = math.nan
    if not math.isfinite(per_hour) or per_hour < 0:
        raise BadInput(f"{where}: {told!r} is not a price per hour; write a number like 1.59.")
    try:
        gpu = find_gpu((row.get("gpu") or "").strip())
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None
    rest = {name: (row.get(name) or "").strip() for name in ("currency", "provider", "instance", "as_of")}
    return Price(gpu.name, per_hour, rest["currency"] or "USD", rest["provider"], rest["instance"], rest["as_of"])
