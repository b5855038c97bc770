"""The runs behind the documented figures of testing-based estimation: they are here, and the fits come out of them."""

from __future__ import annotations

import pytest

from lab.benchmarks.tbem import CAMPAIGNS, LEAST_CHECKS, MOST_ERROR, MOST_RUNS, fitted, pooled
from lab.benchmarks.tbem_designs import designed, place_of, pool_cases
from oomcast.methods.tbem import read_campaign, refit


@pytest.mark.parametrize("name", ["own_torch", "own_keras"])
def test_a_campaign_on_an_own_job_file_is_within_three_percent_of_others(name: str) -> None:
    file = CAMPAIGNS / f"{name}.toml"
    gap = fitted(read_campaign(file), file)
    assert len(gap.runs) <= MOST_RUNS
    assert len(gap.checks) >= LEAST_CHECKS
    assert gap.mape(gap.checks).gap <= MOST_ERROR
    assert gap.graph == gap.framework, "SGV is from the framework's own graph"


@pytest.mark.parametrize("name", ["own_script", "own_torch"])
def test_the_pool_of_designs_is_whole_and_a_design_of_it_errs_little(name: str) -> None:
    file = CAMPAIGNS / f"{name}.toml"
    campaign = read_campaign(file)
    pool = pooled(fitted(campaign, file), file)
    measured = {place_of(pool.factors, row.parameters) for row in pool.rows}
    assert {place_of(pool.factors, case.parameters) for case in pool_cases(campaign)} <= measured
    runs = designed(pool, pool.runs, 11)
    assert len({row.key for row in runs}) == 11
    assert refit(pool, runs, "bayesian").mape(pool.checks).gap < 0.01
