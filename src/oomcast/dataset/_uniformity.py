"""How evenly a data set's features came out, measured against what was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import qmc

from ._network import Network
from ._space import SPACE, Choice, value_of

__all__ = ["uniformity_of"]

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
    """From the even distribution on 0 to 1."""
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
