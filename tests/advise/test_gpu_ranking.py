"""All cards from the smallest; the one that is named was captured itself and is enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import oomcast
from oomcast.advise import Price, rank_gpus, read_prices, shipped_prices
from oomcast.devices import all_gpus, find_gpu
from oomcast.errors import BadInput, UnreadableFile

CARDS = tuple(map(find_gpu, ("gtx-1060-3gb", "gtx-1080", "rtx-3060", "rtx-3090", "t4", "a100-40gb")))


def test_the_smallest_and_the_cheapest_that_are_enough(job: str) -> None:
    prices = {
        "rtx-3090": Price("rtx-3090", 0.5, "USD", "", "", ""),
        "a100-40gb": Price("a100-40gb", 0.4, "USD", "", "", ""),
        "gtx-1060-3gb": Price("gtx-1060-3gb", 0.01, "USD", "", "", ""),
    }
    ranking = rank_gpus(job, batch_size=250_000, steps=2, gpus=CARDS, prices=prices)
    assert [choice.gpu.usable_memory for choice in ranking.choices] == sorted(gpu.usable_memory for gpu in CARDS)
    by_name = {choice.gpu.name: choice for choice in ranking.choices}
    assert not by_name["gtx-1060-3gb"].enough
    assert ranking.smallest is not None
    assert ranking.cheapest == "a100-40gb"
    for name in (ranking.smallest, ranking.cheapest):
        choice = by_name[name]
        assert choice.own_capture
        own = oomcast.estimate(job, batch_size=250_000, steps=2, device=name)
        assert (choice.needed, choice.device_total, choice.p_oom) == (own.least_capacity, own.device_total, own.p_oom)
        assert choice.headroom == choice.gpu.usable_memory - own.least_capacity
    smaller = [c for c in ranking.choices if c.gpu.usable_memory < by_name[ranking.smallest].gpu.usable_memory]
    assert not any(choice.enough for choice in smaller)


def test_cards_of_one_kind_are_near_their_own_estimates(job: str) -> None:
    ranking = rank_gpus(job, batch_size=250_000, steps=2, gpus=CARDS, prices={})
    for choice in ranking.choices:
        own = oomcast.estimate(job, batch_size=250_000, steps=2, device=choice.gpu.name)
        assert choice.needed == pytest.approx(own.least_capacity, rel=0.02)
    assert ranking.cheapest is None


@pytest.mark.parametrize(
    ("name", "settings", "captured"),
    [
        # Without attention, one capture tells of all; the smallest card, which is named, has its own.
        ("zoo:resnet18", {}, {"rtx-3060", "h100-80gb"}),
        ("zoo:vit_t_16", {}, {"rtx-3060", "h100-80gb"}),  # in fp32 the memory-efficient kernel, on all of them
        ("zoo:vit_t_16", {"precision": "amp-fp16"}, {"rtx-3060", "h100-80gb", "t4"}),
    ],
)
def test_one_capture_for_each_kind_of_attention(name: str, settings: dict[str, Any], captured: set[str]) -> None:
    cards = tuple(map(find_gpu, ("t4", "rtx-3060", "h100-80gb")))
    ranking = rank_gpus(name, batch_size=8, steps=1, gpus=cards, prices={}, **settings)
    assert ranking.smallest == "rtx-3060"
    assert {choice.gpu.name for choice in ranking.choices if choice.own_capture} == captured
    assert ranking.captures == len(captured)
    for choice in ranking.choices:
        alone = oomcast.estimate(name, batch_size=8, steps=1, device=choice.gpu.name, **settings)
        assert choice.needed == pytest.approx(alone.least_capacity, rel=0.02)


def test_cards_that_the_software_does_not_run_on_are_left_out() -> None:
    ranking = rank_gpus("zoo:mlp", batch_size=8, steps=1, environment="torch-2.13-cu130", prices={})
    assert "gtx-1080" in ranking.not_supported
    assert "rtx-3060" not in ranking.not_supported
    assert {choice.gpu.name for choice in ranking.choices}.isdisjoint(ranking.not_supported)
    assert len(ranking.choices) + len(ranking.not_supported) == len(all_gpus())


def test_the_shipped_prices_are_of_known_cards_and_dated() -> None:
    prices = shipped_prices()
    assert len(prices) >= 25
    assert all(price.per_hour > 0 and price.as_of and price.provider for price in prices.values())
    assert prices["rtx-a6000"].provider == "RunPod"  # the cheaper of two rows


def test_a_users_prices(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("gpu,price_per_hour\nA100,2.5\nrtx 3090,0.4\n")
    assert {name: price.per_hour for name, price in read_prices(path).items()} == {"a100-40gb": 2.5, "rtx-3090": 0.4}


@pytest.mark.parametrize(
    ("text", "error", "sentence"),
    [
        ("gpu;price\n", UnreadableFile, "has no column gpu"),
        ("gpu,price_per_hour\na100,cheap\n", BadInput, "line 2: 'cheap' is not a price"),
        ("gpu,price_per_hour\na100,-1\n", BadInput, "is not a price"),
        ("gpu,price_per_hour\na10o,1\n", BadInput, "line 2: unknown device"),
        ("gpu,price_per_hour,currency\na100,1,USD\na100,1,EUR\n", BadInput, "cannot be compared"),
    ],
)
def test_mistakes_in_prices(tmp_path: Path, text: str, error: type[Exception], sentence: str) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(text)
    with pytest.raises(error, match=sentence):
        read_prices(path)


def test_files_that_are_no_prices(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="cannot read"):
        read_prices(tmp_path / "none.csv")
    path = tmp_path / "prices.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnreadableFile, match="UTF-8"):
        read_prices(path)
