"""Which networks to label: each stratum's share, chosen from a low-discrepancy sequence so that every feature, and the
memory that is expected, is spread evenly.

A scrambled Sobol sequence fills the unit cube of a stratum's features with many more candidates than rows. Those that
are expected to hold more than `most_bytes` are left out, and so are the largest few of the rest. Then rows are taken
one by one, each time the candidate whose cells are emptiest: a cell is an interval of a range, a value of a choice, or
an interval of the expected bytes, from the least to the most that the candidates reach. So the margins are uniform as
far as candidates exist, also where the networks that were left out would have bent them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import qmc

from ..errors import BadInput
from ..units import format_bytes
from ._network import Network, size_of
from ._space import SPACE, Stratum, make_network, value_of

__all__ = ["draw_networks"]

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
