"""Bayesian designs beside orthogonal arrays, several of each, on the same real runs.

One array and one design prove little: which rows an array has depends on the order in which levels are written, and a
run may be disturbed. So a pool of each workload was measured in one go: the rows of several arrays (the levels in other
orders) and the configurations kept aside. From its pool every array and every design is put together again, and all are
judged on the same configurations that none of them has.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from oomcast.methods.measure import CaseSpec
from oomcast.methods.tbem import Campaign, Factor, Gap, GapRow, most_telling, plan_campaign, refit

from .report import Bar, Outcome

__all__ = ["SHARE_OF_RUNS", "designed", "judge_designs", "place_of", "pool_cases"]

ARRAYS = 4
DESIGNS = 10
SHARE_OF_RUNS = 0.7
LEAST_WORKLOADS = 3
POOL_SHARE = 0.75
"""Of the pool, drawn anew for each design: what it may choose from."""


def pool_cases(campaign: Campaign) -> list[CaseSpec]:
    """All cases of the pool, in the order in which they are measured: a drift of the machine meets all alike."""
    rows = {case.key: case for array in _arrays(campaign) for case in array}
    grid = random.Random(99).sample(list(rows.values()), len(rows))
    aside = [case for case in plan_campaign(campaign).cases if case.role == "held_out"]
    return [case for pair in itertools.zip_longest(grid, aside) for case in pair if case is not None]


def place_of(factors: Sequence[Factor], parameters: Mapping[str, Any]) -> tuple[Any, ...]:
    """By which a case is known on every machine; its key also tells the folder of its job file."""
    return tuple(parameters[factor.name] for factor in factors)


def _arrays(campaign: Campaign) -> list[list[CaseSpec]]:
    """The same array of the levels in other orders; the first is the campaign's own."""
    found = []
    for number in range(ARRAYS):
        order = random.Random(number)
        factors = tuple(
            Factor(factor.name, tuple(order.sample(factor.levels, len(factor.levels))) if number else factor.levels)
            for factor in campaign.factors
        )
        found.append(list(plan_campaign(dataclasses.replace(campaign, factors=factors, held_out=0)).cases))
    return found


def designed(gap: Gap, pool: Sequence[GapRow], most: int) -> list[GapRow]:
    """The runs that a Bayesian design makes. It starts with the smallest, the largest and a middle case."""
    by_size = sorted(pool, key=lambda row: row.static.total)
    runs = [by_size[0], by_size[-1], by_size[len(by_size) // 2]]
    while len(runs) < most:
        rest = [row for row in pool if row not in runs]
        measured = [(row.parameters, row.static, row.measured) for row in runs]
        runs.append(rest[most_telling(gap.factors, measured, [(row.parameters, row.static) for row in rest])])
    return runs


def judge_designs(campaigns: dict[str, Campaign], pools: dict[str, Gap]) -> Outcome:
    """For each pool: the error of every array by the papers' polynomials, and of every design by its own model."""
    rows, bars = [], []
    reached = 0
    for name, pool in pools.items():
        known = {place_of(pool.factors, row.parameters): row for row in pool.runs}
        places = [[place_of(pool.factors, case.parameters) for case in array] for array in _arrays(campaigns[name])]
        arrays = [[known[place] for place in array] for array in places if known.keys() >= set(array)]
        most = int(SHARE_OF_RUNS * len(arrays[0]))
        designs = []
        for seed in range(DESIGNS):
            offered = random.Random(seed).sample(list(pool.runs), round(POOL_SHARE * len(pool.runs)))
            designs.append(designed(pool, offered, most))
        error = {
            "arrays": [refit(pool, runs).mape(pool.checks).gap for runs in arrays],
            "averaged": [refit(pool, runs, "bayesian").mape(pool.checks).gap for runs in arrays],
            "designs": [refit(pool, runs, "bayesian").mape(pool.checks).gap for runs in designs],
            "drawn": [
                refit(pool, random.Random(seed).sample(list(pool.runs), most)).mape(pool.checks).gap
                for seed in range(DESIGNS)
            ],
        }
        counts = (f"{len(arrays)} × {len(arrays[0])}", str(most), str(len(pool.checks)))
        rows.append((pool.campaign, *counts, *(_spread(errors) for errors in error.values())))
        designs_mean, arrays_mean = mean(error["designs"]), mean(error["arrays"])
        what = f"{pool.campaign}: {DESIGNS} designs of {most} runs err no more than {len(arrays)} arrays"
        told = f"{100 * designs_mean:.2f} %, arrays {100 * arrays_mean:.2f} %"
        reached += designs_mean <= arrays_mean
        bars.append(Bar(what, told, None))
    if len(pools) >= LEAST_WORKLOADS:
        what = f"designs of {SHARE_OF_RUNS:.0%} of an array's runs reach its error on {LEAST_WORKLOADS} workloads"
        bars.append(Bar(what, f"{reached} of {len(pools)}", reached >= LEAST_WORKLOADS))
    columns = (
        "campaign",
        "arrays × runs",
        "design's runs",
        "others",
        "arrays",
        "the same, averaged polynomials",
        f"{DESIGNS} designs",
        f"{DESIGNS} × as many runs drawn at random",
    )
    return Outcome("Bayesian designs beside orthogonal arrays: mean error (least to most)", columns, rows, bars)


def _spread(errors: Sequence[float]) -> str:
    return f"{100 * mean(errors):.2f} % ({100 * min(errors):.2f} to {100 * max(errors):.2f})"
