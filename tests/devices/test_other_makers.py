"""Accelerators of other makers, and cards told by their figures: found, told to be unmeasured, and with wide bounds."""

from __future__ import annotations

import pytest

import oomcast
from oomcast.devices import all_gpus, context_figure, find_gpu, other_gpus, stack_of
from oomcast.errors import BadInput, UnknownName
from oomcast.units import GiB, MiB


@pytest.mark.parametrize("gpu", other_gpus(), ids=lambda gpu: gpu.name)
def test_every_one_is_found_and_says_what_it_rests_on(gpu: oomcast.devices.Gpu) -> None:
    assert gpu.maker is not None
    assert all(find_gpu(name) == gpu for name in (gpu.name, gpu.driver_name, *gpu.aliases))
    assert gpu.memory_gib * GiB * 0.6 < gpu.total_memory <= gpu.memory_gib * GiB
    assert len(gpu.source) > 20
    assert "{" not in gpu.maker.unknown
    figure = context_figure(gpu, stack_of(None, "torch"))
    assert figure.low < figure.typical < figure.high
    assert gpu not in all_gpus()


def test_reported_totals_are_those_of_the_logs() -> None:
    assert find_gpu("MI300X").total_memory == 196592 * MiB
    assert find_gpu("Intel Data Center GPU Max 1550").total_memory == 65520 * MiB
    assert find_gpu("mac-16gb").total_memory == pytest.approx(18.13 / 1.7 * GiB, rel=1e-3)


def test_the_answer_is_wider_and_says_why() -> None:
    measured = oomcast.estimate("zoo:mlp", batch_size=64, device="a100-80gb")
    other = oomcast.estimate("zoo:mlp", batch_size=64, device="mi300x")

    assert other.peak_reserved == measured.peak_reserved
    assert other.breakdown["context"] == 350 * MiB
    assert other.high - other.device_total > 3 * (measured.high - measured.device_total) * 350 / 600
    assert other.high >= other.device_total + 150 * MiB
    assert any("no run on AMD Instinct MI300X" in sentence for sentence in other.assumptions)
    assert not any("no run on" in sentence for sentence in measured.assumptions)


def test_estimators_that_learnt_from_runs_refuse_them() -> None:
    with pytest.raises(BadInput, match=r"gpumemnet-mlp rests on runs on NVIDIA's cards"):
        oomcast.estimate("zoo:mlp", batch_size=64, device="mi300x", estimator="gpumemnet-mlp")


def test_a_card_by_its_figures_is_of_its_architecture() -> None:
    card = find_gpu("custom:capability=8.9,memory=20GiB,multiprocessors=100")

    assert (card.sm, card.total_memory, card.multiprocessors) == ("sm_89", 20 * GiB, 100)
    assert find_gpu("custom:memory=20GiB, capability=9.0").sm == "sm_90"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("custom:capability=8.8,memory=20GiB", "nothing is known of the capability '8.8'"),
        ("custom:memory=20GiB", "needs its capability and its memory"),
        ("custom:capability=8.9,memory=20GiB,cores=3", "'cores' is not a figure"),
        ("custom:capability=8.9,memory=much", "much"),
        ("custom:capability=8.9,memory=8GiB,multiprocessors=many", "multiprocessors must be a whole number"),
    ],
)
def test_wrong_figures_are_told(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        find_gpu(text)


def test_names_nearby_are_offered() -> None:
    with pytest.raises(UnknownName, match="mi300x"):
        find_gpu("mi300y")
