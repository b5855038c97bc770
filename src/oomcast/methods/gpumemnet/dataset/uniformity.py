"""How evenly the networks of a data set are spread over their features and their memory, in figures and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from scipy.stats import qmc

from ....units import format_bytes
from .network import Network
from .rows import Dataset
from .sampling import SPACE, Choice, value_of

__all__ = ["render", "uniformity_of"]

_RANDOM_DRAWS = 8
_MOST_FOR_DISCREPANCY = 2000


def uniformity_of(networks: Sequence[Network], labels: Sequence[int | None]) -> dict[str, Any]:
    """Plain JSON data: counts of strata, then for each kind its features, their joint discrepancy and the label.

    `ks`: the largest distance between the values' distribution and the even one over the feature's whole range, 0 to 1.
    `fewest` and `most`: members of the rarest and the commonest value of a choice, over what an even share would be.
    `discrepancy`: centred L2, of all ranges together; `random` is the mean of independent draws of the same size.
    `correlation`: the largest rank correlation between two ranges: what even margins had to pay.
    """
    counts = Counter(f"{network.kind} {network.architecture}" for network in networks)
    kinds = [kind for kind in SPACE if any(network.kind == kind for network in networks)]
    return {"strata": dict(counts), "kinds": {kind: _of_kind(kind, networks, labels) for kind in kinds}}


def _of_kind(kind: str, networks: Sequence[Network], labels: Sequence[int | None]) -> dict[str, Any]:
    members = [network for network in networks if network.kind == kind]
    own = [label for network, label in zip(networks, labels, strict=True) if network.kind == kind]
    features: dict[str, dict[str, float]] = {}
    columns = {}
    for feature in SPACE[kind]:
        values = [value_of(network, feature) for network in members]
        places = np.array([feature.place(value) for value in values])
        if isinstance(feature, Choice):
            tally = Counter(values)
            share = len(values) / feature.count
            features[feature.name] = {
                "fewest": round(min(tally[value] for value in feature.values) / share, 3),
                "most": round(max(tally.values()) / share, 3),
            }
        else:
            columns[feature.name] = places
            features[feature.name] = {"ks": round(ks_distance(places), 3)}
    joint = np.stack(list(columns.values()), axis=1)
    by_architecture = {
        architecture: [
            label for network, label in zip(members, own, strict=True) if network.architecture == architecture and label
        ]
        for architecture in dict.fromkeys(network.architecture for network in members)
    }
    return {
        "rows": len(members),
        "features": features,
        **_discrepancy(joint),
        "correlation": _strongest_correlation(joint, list(columns)),
        "label": {name: _spread(found) for name, found in by_architecture.items() if found},
    }


def ks_distance(places: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """The Kolmogorov-Smirnov distance of some places from an even spread over 0 to 1."""
    ordered = np.sort(places)
    steps = np.arange(len(ordered) + 1) / len(ordered)
    return float(max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))


def _spread(labels: Sequence[int]) -> Mapping[str, Any]:
    """Against an even spread from the least to the most of these."""
    values = np.array(labels, dtype=float)
    low, high = values.min(), values.max()
    places = (values - low) / max(high - low, 1.0)
    return {"least": int(low), "median": int(np.median(values)), "most": int(high), "ks": round(ks_distance(places), 3)}


def _discrepancy(joint: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
    joint = joint[:_MOST_FOR_DISCREPANCY]
    random = np.random.default_rng(0)
    draws = [qmc.discrepancy(random.random(joint.shape)) for _ in range(_RANDOM_DRAWS)]
    return {"discrepancy": float(f"{qmc.discrepancy(joint):.3g}"), "random": float(f"{np.mean(draws):.3g}")}


def _strongest_correlation(joint: np.ndarray[Any, np.dtype[np.float64]], names: Sequence[str]) -> dict[str, Any]:
    if len(joint) < 3:
        return {}
    with np.errstate(invalid="ignore", divide="ignore"):
        matrix = np.nan_to_num(np.corrcoef(joint.argsort(axis=0).argsort(axis=0), rowvar=False))
    np.fill_diagonal(matrix, 0.0)
    first, second = np.unravel_index(np.abs(matrix).argmax(), matrix.shape)
    return {"features": [names[first], names[second]], "rank": round(float(matrix[first, second]), 3)}


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


def _distance(spread: Mapping[str, float] | None) -> str:
    if spread is None:
        return ""
    return f"{spread['ks']:.3f}" if "ks" in spread else f"{spread['fewest']:.2f} to {spread['most']:.2f}"


def _together(kinds: Mapping[str, Any]) -> Text:
    lines = []
    for kind, figures in kinds.items():
        own, random = figures["discrepancy"], figures["random"]
        line = f"{kind}: discrepancy of all ranges together {own:.3g}, of random draws {random:.3g}"
        if figures["correlation"]:
            first, second = figures["correlation"]["features"]
            line += f"; strongest rank correlation {figures['correlation']['rank']:+.2f} ({first}, {second})"
        lines.append(line)
    return Text("\n".join(lines))


def _peaks(kinds: Mapping[str, Any]) -> Table:
    table = Table(title="labels: bytes on the device", title_justify="left")
    for heading in ("stratum", "least", "median", "most", "distance from even"):
        table.add_column(heading, justify="left" if heading == "stratum" else "right")
    for kind, figures in kinds.items():
        for architecture, spread in figures["label"].items():
            sizes = (format_bytes(spread[name]) for name in ("least", "median", "most"))
            table.add_row(f"{kind} {architecture}", *sizes, f"{spread['ks']:.3f}")
    return table


def _left_out(reasons: Mapping[str, str], word: str) -> list[RenderableType]:
    if not reasons:
        return []
    name, reason = next(iter(reasons.items()))
    return [Text(f"{len(reasons):,} {word}, such as {name}: {reason}")]
