"""A data set in words: how many rows, how evenly they are spread, what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..units import format_bytes
from ._rows import Dataset

__all__ = ["render"]


def render(dataset: Dataset) -> Group:
    parts: list[RenderableType] = [_strata(dataset)]
    uniformity = dataset.metadata.get("uniformity")
    if uniformity:
        parts += [_features(uniformity["kinds"]), _together(uniformity["kinds"]), _peaks(uniformity["kinds"])]
    for word in ("failed", "skipped"):
        parts += _left_out(dataset.metadata.get(word) or {}, word)
    return Group(*parts)


def _strata(dataset: Dataset) -> Table:
    kinds = list(dict.fromkeys(row.network.kind for row in dataset.rows))
    counts = Counter((row.network.architecture, row.network.kind) for row in dataset.rows)
    table = Table(title=f"{len(dataset.rows):,} rows, of which oom: {_oom(dataset):,}", title_justify="left")
    table.add_column("architecture")
    for kind in kinds:
        table.add_column(kind, justify="right")
    for architecture in dict.fromkeys(row.network.architecture for row in dataset.rows):
        table.add_row(architecture, *(f"{counts[architecture, kind]:,}" for kind in kinds))
    return table


def _oom(dataset: Dataset) -> int:
    return sum(row.label.outcome == "oom" for row in dataset.rows)


def _features(kinds: Mapping[str, Any]) -> Table:
    table = Table(title="distance of each feature from an even spread", title_justify="left")
    table.add_column("feature")
    for kind in kinds:
        table.add_column(kind, justify="right")
    for name in dict.fromkeys(name for kind in kinds.values() for name in kind["features"]):
        table.add_row(name, *(_distance(kind["features"].get(name)) for kind in kinds.values()))
    table.caption = (
        "ranges: Kolmogorov-Smirnov distance, 0 to 1; choices: rarest and commonest value, 1.00 is its share"
    )
    table.caption_justify = "left"
    return table


def _distance(found: Mapping[str, float] | None) -> str:
    if found is None:
        return ""
    return f"{found['ks']:.3f}" if "ks" in found else f"{found['fewest']:.2f} to {found['most']:.2f}"


def _together(kinds: Mapping[str, Any]) -> Text:
    lines = []
    for kind, found in kinds.items():
        own, random = found["discrepancy"], found["random"]
        line = f"{kind}: discrepancy of all ranges together {own:.3g}, of random draws {random:.3g}"
        if found["correlation"]:
            first, second = found["correlation"]["features"]
            line += f"; strongest rank correlation {found['correlation']['rank']:+.2f} ({first}, {second})"
        lines.append(line)
    return Text("\n".join(lines))


def _peaks(kinds: Mapping[str, Any]) -> Table:
    table = Table(title="labels: bytes on the device", title_justify="left")
    for heading in ("stratum", "least", "median", "most", "distance from even"):
        table.add_column(heading, justify="left" if heading == "stratum" else "right")
    for kind, found in kinds.items():
        for architecture, spread in found["label"].items():
            sizes = (format_bytes(spread[name]) for name in ("least", "median", "most"))
            table.add_row(f"{kind} {architecture}", *sizes, f"{spread['ks']:.3f}")
    return table


def _left_out(found: Mapping[str, str], word: str) -> list[RenderableType]:
    if not found:
        return []
    name, reason = next(iter(found.items()))
    return [Text(f"{len(found):,} {word}, such as {name}: {reason}")]
