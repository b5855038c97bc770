"""The interval of one job: wide where its figure hangs on much that is not sure, narrow where it does not."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import oomcast
from oomcast.advise.pack.demand import Demand
from oomcast.devices import context_figure, find_gpu, find_stack
from oomcast.estimation import Doubt, DoubtWeights, Estimate, IntervalBasis, load_interval
from oomcast.units import GiB

INTERVAL = load_interval()
sizes = st.integers(0, 40 * GiB)
totals = st.integers(GiB, 80 * GiB)


def ask(job: Any, **options: Any) -> Estimate:
    return oomcast.estimate(job, **{"batch_size": 8, "device": "a100-40gb", **options})


@pytest.fixture(scope="module")
def dense() -> Estimate:
    """A network of matrix products."""
    job = SimpleNamespace(
        model=lambda: nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10)),
        batch=lambda n: (torch.randn(n, 4096), torch.randint(0, 10, (n,))),
    )
    return ask(job)


@pytest.fixture(scope="module")
def convolutional() -> Estimate:
    return ask("zoo:resnet50", batch_size=64)


def basis_of(estimate: Estimate) -> IntervalBasis:
    assert estimate.interval_basis is not None
    return estimate.interval_basis


def relative_width(estimate: Estimate) -> float:
    return (estimate.high - estimate.low) / estimate.device_total


def test_matrix_products_are_known_more_surely_than_convolutions(dense: Estimate, convolutional: Estimate) -> None:
    assert relative_width(dense) < 0.06
    assert relative_width(convolutional) > 2 * relative_width(dense)
    doubt = basis_of(convolutional).doubt
    assert doubt is not None
    assert doubt.cache == convolutional.peak_reserved - convolutional.peak_allocated
    assert doubt.workspace > 0 == basis_of(dense).doubt.workspace  # type: ignore[union-attr]


def test_the_basis_of_an_answer_gives_its_bounds(dense: Estimate, convolutional: Estimate) -> None:
    for answer in (dense, convolutional):
        interval = basis_of(answer).interval
        assert answer.will_not_exceed == interval.not_exceeded(answer.device_total)
        assert answer.high == interval.around(answer.device_total, 0)[1]
        assert answer.p_oom == interval.chance_above(answer.least_capacity, answer.device_usable)
        assert answer.provenance["interval"] == interval.id


def test_sharing_a_card_draws_from_the_jobs_own_distribution(dense: Estimate, convolutional: Estimate) -> None:
    for answer in (dense, convolutional):
        assert Demand.from_estimate(answer).ratios == basis_of(answer).interval.curve


def test_cards_of_other_makers_are_wider_everywhere() -> None:
    """Sharing and plans took the curve of measured cards for them."""
    job = SimpleNamespace(
        model=lambda: nn.Linear(512, 10), batch=lambda n: (torch.randn(n, 512), torch.randint(0, 10, (n,)))
    )
    here, there = ask(job, device="a100-40gb"), ask(job, device="mi300x")
    assert basis_of(there).other_cards > 1 == basis_of(here).other_cards
    own, others = Demand.from_estimate(here).ratios, Demand.from_estimate(there).ratios
    assert others.at(0.95) - 1 > 2 * (own.at(0.95) - 1)


@given(sizes, sizes, totals, sizes, sizes)
def test_more_of_what_is_not_sure_is_wider(cache: int, workspace: int, total: int, more: int, larger: int) -> None:
    less = INTERVAL.for_job(Doubt(cache, workspace), total)
    wider = INTERVAL.for_job(Doubt(cache + more, workspace + larger), total)
    assert wider.upper_one_sided >= less.upper_one_sided >= 1
    assert wider.lower <= less.lower <= 1


def test_a_context_that_was_not_measured_has_the_range_of_the_catalogue() -> None:
    """Of a small job it is nearly all; a large one hardly notices, and a calibrated one has none of it."""
    place = {"device": "rtx-3090", "environment": "torch-2.8-cu128"}
    job = SimpleNamespace(
        model=lambda: nn.Linear(64, 10), batch=lambda n: (torch.randn(n, 64), torch.randint(0, 10, (n,)))
    )
    figure = context_figure(find_gpu("rtx-3090"), find_stack("torch-2.8-cu128"))
    assert figure.basis == "reported"
    beyond = figure.high - figure.typical
    small = ask(job, **place)
    assert basis_of(small).doubt == Doubt(basis_of(small).doubt.cache, 0, beyond)  # type: ignore[union-attr]
    assert small.high - small.device_total > 0.95 * beyond
    assert basis_of(ask(job, device="a100-40gb", environment="torch-2.8-cu128")).doubt.context == 0  # type: ignore[union-attr]
    large = INTERVAL.for_job(Doubt(GiB, 0, beyond), 20 * GiB)
    assert large.upper_one_sided - INTERVAL.for_job(Doubt(GiB, 0), 20 * GiB).upper_one_sided < 0.006


def test_the_job_in_the_middle_has_the_interval_of_the_file() -> None:
    """So has one whose allocator no run was measured of."""
    weights = dataclasses.replace(INTERVAL.weights, base=0.01, cache=0.2, workspace=0.5, middle=0.035)
    middle = dataclasses.replace(INTERVAL, weights=weights)
    assert middle.for_job(Doubt(GiB, GiB // 10), 10 * GiB) == middle
    assert INTERVAL.for_job(None, GiB) == INTERVAL


@pytest.mark.parametrize("wrong", [{"base": 0.0}, {"cache": -0.1}, {"workspace": -1.0}, {"middle": 0.0}])
def test_weights_that_make_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        DoubtWeights(**{"base": 0.01, "cache": 0.1, "workspace": 0.1, "middle": 0.02, **wrong})
