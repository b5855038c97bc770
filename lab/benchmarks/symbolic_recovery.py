"""`python -m lab bench symbolic_recovery`: are known functions found again from noisy samples?

Nine functions, each from ten draws of 40 samples with 2 % noise; found again means the same products of powers and no
others. Six further functions, on which nothing was tuned, are shown below them. Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oomcast.methods.equations.symbolic import Equation, SymbolicRegression

from .report import Bar, Outcome, console, print_outcome

ROWS = 40
NOISE = 0.02
LEAST_FOUND = 0.8


@dataclass(frozen=True)
class Known:
    """A sum of products over variables, each drawn from its own values."""

    name: str
    terms: tuple[tuple[float, dict[str, int]], ...]
    values: dict[str, tuple[float, ...]]

    def response(self, columns: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        rows = len(next(iter(columns.values())))
        total = np.zeros(rows)
        for coefficient, powers in self.terms:
            factors = [columns[name] ** power for name, power in powers.items()]
            total += coefficient * np.prod([np.ones(rows), *factors], axis=0)
        return total

    def samples(self, seed: int, rows: int = ROWS) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        rng = np.random.default_rng(seed)
        columns = {name: rng.choice(np.array(values), rows) for name, values in self.values.items()}
        noisy = self.response(columns) * (1 + NOISE * rng.standard_normal(rows))
        return np.column_stack(list(columns.values())), noisy

    def is_form_of(self, equation: Equation) -> bool:
        found = equation.terms
        wanted = {tuple(sorted(powers.items())) for _, powers in self.terms}
        return found is not None and {tuple(sorted(powers.items())) for _, powers in found} == wanted


def _span(low: int, high: int, step: int = 1) -> tuple[float, ...]:
    return tuple(float(value) for value in range(low, high + 1, step))


_BATCHES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)

NINE = (
    Known("a*x*y", ((3.5, {"x": 1, "y": 1}),), {"x": _span(1, 64), "y": _span(8, 256, 8)}),
    Known(
        "a*b*e^3 + c",
        ((3000.0, {"b": 1, "e": 3}), (4.8e8, {})),
        {"b": _BATCHES, "e": _span(16, 128, 16)},
    ),
    Known("a*x^2 + c", ((12.0, {"x": 2}), (500.0, {})), {"x": _span(1, 40)}),
    Known("a*x^3 + b*x", ((0.5, {"x": 3}), (30.0, {"x": 1})), {"x": _span(1, 20)}),
    Known(
        "a*x*y + b*x + c",
        ((2.0, {"x": 1, "y": 1}), (300.0, {"x": 1}), (4000.0, {})),
        {"x": _span(1, 128), "y": _span(16, 512, 16)},
    ),
    Known(
        "a*b*e^3 + c*e^3 + d",
        ((3000.0, {"b": 1, "e": 3}), (9000.0, {"e": 3}), (4.8e8, {})),
        {"b": _BATCHES, "e": _span(16, 128, 16)},
    ),
    Known(
        "a*x*y*z", ((0.7, {"x": 1, "y": 1, "z": 1}),), {"x": _span(1, 16), "y": _span(2, 64, 2), "z": _span(10, 100)}
    ),
    Known(
        "a*x*y^2 + b*z + c",
        ((0.5, {"x": 1, "y": 2}), (40.0, {"z": 1}), (900.0, {})),
        {"x": _span(1, 12), "y": _span(1, 30), "z": _span(1, 100)},
    ),
    Known(
        "a*b*s^2 + c*b*s + d",
        ((8.0, {"b": 1, "s": 2}), (4000.0, {"b": 1, "s": 1}), (3e6, {})),
        {"b": _span(1, 32), "s": _span(64, 1024, 64)},
    ),
)

OTHERS = (
    Known("a*x + c", ((7.0, {"x": 1}), (60.0, {})), {"x": _span(1, 50)}),
    Known(
        "a*x^2*y + b*y^3 + c",
        ((2.0, {"x": 2, "y": 1}), (1.0, {"y": 3}), (3000.0, {})),
        {"x": _span(1, 30), "y": _span(1, 30)},
    ),
    Known(
        "a*x*y + b*y*z + c*x*z",
        ((1.0, {"x": 1, "y": 1}), (2.0, {"y": 1, "z": 1}), (3.0, {"x": 1, "z": 1})),
        {"x": _span(1, 40), "y": _span(1, 40), "z": _span(1, 40)},
    ),
    Known(
        "a*x^3 + b*y^2 + c",
        ((1.5, {"x": 3}), (9.0, {"y": 2}), (2500.0, {})),
        {"x": _span(1, 20), "y": _span(1, 40)},
    ),
    Known(
        "a*b*e^2 + c*b*e^3 + d",
        ((20000.0, {"b": 1, "e": 2}), (400.0, {"b": 1, "e": 3}), (5e7, {})),
        {"b": _BATCHES, "e": _span(8, 160, 8)},
    ),
    Known(
        "a*m*n + b*m^2 + c*n",
        ((2.0, {"m": 1, "n": 1}), (1.0, {"m": 2}), (50.0, {"n": 1})),
        {"m": _span(4, 128, 4), "n": _span(1, 100)},
    ),
)


def recovered(
    known: Known, seeds: int, learner: Callable[[int], SymbolicRegression]
) -> tuple[int, list[str], float, float]:
    """How often the form is found, what was found instead, the median error against the true function, the seconds."""
    found, misses, errors, started = 0, [], [], time.perf_counter()
    for seed in range(seeds):
        x, y = known.samples(seed)
        model = learner(seed).fit(x, y, names=list(known.values))
        grid, _ = known.samples(seed + 1000)
        truth = known.response(dict(zip(known.values, grid.T, strict=True)))
        errors.append(float(np.abs(model.predict(grid) / truth - 1).mean()))
        if known.is_form_of(model.equation_):
            found += 1
        else:
            misses.append(model.equation_.text())
    return found, misses, float(np.median(errors)), (time.perf_counter() - started) / seeds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab bench symbolic_recovery", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--engine", default="operon")
    parser.add_argument("--population", type=int, default=300)
    parser.add_argument("--generations", type=int, default=150)
    parser.add_argument("--misses", action="store_true", help="show what was found instead")
    given = parser.parse_args()

    def learner(seed: int) -> SymbolicRegression:
        return SymbolicRegression(given.engine, given.population, given.generations, seed=seed)

    rows, bars = [], []
    for known in (*NINE, *OTHERS):
        found, misses, error, seconds = recovered(known, given.seeds, learner)
        rows.append(
            [
                known.name,
                "nine" if known in NINE else "others",
                f"{found}/{given.seeds}",
                f"{error:.2%}",
                f"{seconds:.2f}",
            ]
        )
        if known in NINE:
            bars.append(Bar(known.name, f"found in {found} of {given.seeds}", found >= LEAST_FOUND * given.seeds))
        if given.misses:
            for miss in misses:
                console.print(f"{known.name}: {miss}", markup=False)
    outcome = Outcome(
        f"Known functions from {ROWS} samples with {NOISE:.0%} noise ({given.engine})",
        ["function", "set", "found", "error against the truth (median MAPE)", "seconds per fit"],
        rows,
        bars,
    )
    print_outcome(outcome)
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    sys.exit(main())
