"""The space that networks are drawn from, and the drawing: evenly over every feature, and over the expected memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import qmc

from ....errors import BadInput, UnknownName
from ....units import format_bytes
from .network import ARCHITECTURES, KINDS, Network, size_of

__all__ = [
    "ACTIVATION_NAMES",
    "SPACE",
    "Choice",
    "Feature",
    "Range",
    "Stratum",
    "draw_networks",
    "make_network",
    "strata",
    "value_of",
]

ACTIVATION_NAMES = (
    "relu",
    "leaky_relu",
    "prelu",
    "elu",
    "selu",
    "gelu",
    "tanh",
    "swish",
    "softplus",
    "mish",
    "identity",
)


@dataclass(frozen=True)
class Range:
    """Whole numbers from `low` to `high`, `step` apart, each as likely as the others."""

    name: str
    low: int
    high: int
    step: int = 1

    @property
    def count(self) -> int:
        return (self.high - self.low) // self.step + 1

    def at(self, place: float) -> int:
        """The value at a place from 0 to 1, without 1."""
        return self.low + self.step * int(place * self.count)

    def place(self, value: int) -> float:
        """The middle of the places, from 0 to 1, at which the feature has this value."""
        return ((value - self.low) / self.step + 0.5) / self.count


@dataclass(frozen=True)
class Choice:
    """Values without an order that matters, each as likely as the others."""

    name: str
    values: tuple[Any, ...]

    @property
    def count(self) -> int:
        return len(self.values)

    def at(self, place: float) -> Any:
        return self.values[int(place * self.count)]

    def place(self, value: Any) -> float:
        return (self.values.index(value) + 0.5) / self.count


Feature = Range | Choice
_DROPOUT_RATES = (0.1, 0.2, 0.3, 0.4, 0.5)
_COMMON: tuple[Feature, ...] = (
    Choice("activation", ACTIVATION_NAMES),
    Choice("batch_norm", (False, True)),
    Choice("dropout", (False, True)),
    Range("output_size", 2, 1024),
)
SPACE: Mapping[str, tuple[Feature, ...]] = {
    "mlp": (
        *_COMMON,
        Range("input_size", 4, 4096),
        Range("depth", 1, 12),
        Range("width", 4, 8192),
        Range("batch_size", 4, 1024),
    ),
    "cnn": (
        *_COMMON,
        Choice("channels", (1, 3)),
        Range("input_size", 16, 226),
        Range("depth", 1, 30),
        Range("width", 16, 512),
        Range("batch_size", 2, 64),
    ),
    "transformer": (
        *_COMMON,
        Range("input_size", 16, 512),
        Range("depth", 1, 12),
        Range("width", 64, 1024, 64),
        Range("hidden", 64, 4096),
        Choice("heads", (2, 4, 8, 16)),
        Range("vocabulary", 1000, 100_000),
        Range("batch_size", 2, 128),
    ),
}
"""What the settings of GPUMemNet's generators allow (itu-rad/GPUMemNet, commit f01eb05, NeuroNetGen_scripts:
parameters.yaml of MLP and CNN), and more: wider and narrower layers, smaller images, one channel, few classes."""


@dataclass(frozen=True)
class Stratum:
    """A part of the space that gets its own share of the rows."""

    kind: str
    architecture: str

    @property
    def name(self) -> str:
        return f"{self.kind} {self.architecture}"


def strata(kinds: Iterable[str] = (), architectures: Iterable[str] = ()) -> tuple[Stratum, ...]:
    """Every kind with every architecture; all of them where none is named."""
    chosen_kinds = _known("kind of network", kinds, KINDS)
    chosen = _known("architecture", architectures, ARCHITECTURES)
    return tuple(Stratum(kind, architecture) for architecture in chosen for kind in chosen_kinds)


def _known(what: str, names: Iterable[str], known: Sequence[str]) -> tuple[str, ...]:
    wanted = tuple(names)
    for name in wanted:
        if name not in known:
            raise UnknownName(what, name, known, f"There are {', '.join(known)}.")
    if len(set(wanted)) < len(wanted):
        raise BadInput(f"each {what} can be named once, not {' '.join(wanted)}.")
    return tuple(name for name in known if name in wanted) if wanted else tuple(known)


def make_network(stratum: Stratum, places: Sequence[float]) -> Network:
    """The network at a point of the unit cube: one place for each feature, and one for the rate of dropout."""
    *of_features, of_rate = places
    features = SPACE[stratum.kind]
    values: dict[str, Any] = {
        feature.name: feature.at(place) for feature, place in zip(features, of_features, strict=True)
    }
    rate = _DROPOUT_RATES[int(of_rate * len(_DROPOUT_RATES))]
    values["dropout"] = rate if values["dropout"] else None
    return Network(stratum.kind, stratum.architecture, **values)


def value_of(network: Network, feature: Feature) -> Any:
    """The value of a feature as it is spread: of dropout, whether there is any."""
    value = getattr(network, feature.name)
    return value is not None if feature.name == "dropout" else value


_CANDIDATES_PER_ROW, _ENOUGH_PER_ROW = 32, 8
_LEAST_CANDIDATES, _MOST_CANDIDATES = 1 << 9, 1 << 16
_MOST_CELLS = 16
_ROWS_PER_CELL = 3
_CORNERS = 0.03
"""The share of a stratum's candidates that lies beyond the rest: corners of its cube, too few to spread rows there."""


def draw_networks(
    strata: Sequence[Stratum],
    rows: int,
    most_bytes: int,
    seed: int = 0,
    *,
    even_peaks: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Network]:
    """`rows` networks, the strata in turn, so that every beginning of the list is spread evenly too.

    Without `even_peaks` only the features are spread, and corners stay in.
    """
    if rows < 1:
        raise BadInput(f"a data set needs at least 1 row, not {rows}.")
    shares = [rows // len(strata) + (index < rows % len(strata)) for index in range(len(strata))]
    drawn = []
    for index, (stratum, share) in enumerate(zip(strata, shares, strict=True)):
        progress(index, len(strata))
        drawn.append(_draw(stratum, share, most_bytes, seed + 7919 * index, even_peaks) if share else [])
    return [networks[turn] for turn in range(max(shares)) for networks in drawn if turn < len(networks)]


def _draw(stratum: Stratum, rows: int, most_bytes: int, seed: int, even_peaks: bool) -> list[Network]:
    networks, expected = _candidates(stratum, rows, most_bytes, seed, _CORNERS if even_peaks else 0.0)
    cells = _cells(stratum, networks, expected, rows)
    return [networks[index] for index in _balanced(cells if even_peaks else cells[:, :-1], rows)]


def _candidates(
    stratum: Stratum, rows: int, most_bytes: int, seed: int, corners: float
) -> tuple[list[Network], np.ndarray[Any, np.dtype[np.float64]]]:
    wanted = min(max(rows * _CANDIDATES_PER_ROW, _LEAST_CANDIDATES), _MOST_CANDIDATES)
    sequence = qmc.Sobol(len(SPACE[stratum.kind]) + 1, scramble=True, seed=seed)
    kept: dict[Network, int] = {}
    power = (wanted - 1).bit_length()
    while sequence.num_generated < _MOST_CANDIDATES and len(kept) < _ENOUGH_PER_ROW * rows:
        # A Sobol sequence is even after each power of two: it doubles.
        for point in sequence.random_base2(power):
            network = make_network(stratum, point.tolist())
            expected = size_of(network).expected_bytes(network.batch_size)
            if expected <= most_bytes:
                kept[network] = expected
        power = sequence.num_generated.bit_length() - 1
    expected_bytes = np.array(list(kept.values()), dtype=float)
    inner = expected_bytes <= np.quantile(expected_bytes, 1 - corners) if kept else np.zeros(0, dtype=bool)
    if inner.sum() < rows:
        raise BadInput(
            f"only {inner.sum()} different networks of the kind {stratum.name} were found that are expected to stay "
            f"below {format_bytes(most_bytes)}, not {rows}; ask for fewer rows or for more memory."
        )
    return [network for network, keep in zip(kept, inner, strict=True) if keep], expected_bytes[inner]


def _cells(
    stratum: Stratum, networks: Sequence[Network], expected: np.ndarray[Any, np.dtype[np.float64]], rows: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """For every candidate, its cell in each margin; the last margin is the expected memory."""
    intervals = min(max(rows // _ROWS_PER_CELL, 2), _MOST_CELLS)
    margins = []
    for feature in SPACE[stratum.kind]:
        places = np.array([feature.place(value_of(network, feature)) for network in networks])
        count = feature.count if feature.count <= _MOST_CELLS else intervals
        margins.append((places * count).astype(int))
    share = (expected - expected.min()) / max(expected.max() - expected.min(), 1.0)
    margins.append(np.minimum(share * intervals, intervals - 1).astype(int))
    return np.stack(margins, axis=1)


def _balanced(cells: np.ndarray[Any, np.dtype[np.int64]], rows: int) -> list[int]:
    """Candidates one by one, each the one that adds least to the chi-squared distance from even margins."""
    margins = cells.shape[1]
    counts = cells.max(axis=0) + 1
    # All margins' cells in one row of costs: what one more member of a cell would add.
    offsets = np.concatenate([[0], np.cumsum(counts)[:-1]])
    flat = cells + offsets
    expected = np.repeat(rows / counts, counts)
    cost = (1 - 2 * expected) / expected
    total = cost[flat].sum(axis=1)
    chosen = []
    for _ in range(rows):
        best = int(total.argmin())
        chosen.append(best)
        step = np.zeros_like(cost)
        step[flat[best]] = 2 / expected[flat[best]]
        for margin in range(margins):
            total += step[flat[:, margin]]
        total[best] = np.inf
    return chosen
