"""Tensor by tensor the drawing is what the allocator did: at each moment its bands are what is in use."""

from __future__ import annotations

from collections import Counter

import pytest
from estimate_builder import Job, estimated, training
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast.report.curve import BOTTOM_UP, CATEGORIES, curve_of
from oomcast.report.tensor_bands import TensorBand, lives_of, tensor_bands
from oomcast.simulate import History
from oomcast.trace import Category, Phase
from oomcast.units import KiB, MiB


def history_of(job: Job) -> History:
    history = estimated(job).history
    assert history is not None
    return history


def height_at(band: TensorBand, column: int) -> int:
    return next((level for start, level in reversed(band.steps()) if start <= column), 0)


@settings(deadline=None, max_examples=20)
@given(
    layers=st.integers(1, 9),
    columns=st.integers(10, 200),
    exact=st.integers(1, 20),
    most_alone=st.sampled_from([0, 3, 4000]),
)
def test_bands_are_as_high_as_their_category_at_every_column(
    layers: int, columns: int, exact: int, most_alone: int
) -> None:
    history = history_of(training(layers, 2))
    curve = curve_of(history, columns=columns, exact=exact)
    drawn = tensor_bands(history, curve, most_alone=most_alone)
    for number, column in enumerate(curve.columns):
        found = Counter(dict.fromkeys(CATEGORIES, 0))
        for band in drawn.bottom_up:
            found[band.part] += height_at(band, number)
        assert tuple(found[name] for name in CATEGORIES) == column.bytes
    places = [BOTTOM_UP.index(band.part) for band in drawn.bottom_up]
    assert places == sorted(places)
    assert sum(len(band.lives) for band in drawn.bottom_up) + drawn.unseen == len(lives_of(history, curve))


def test_a_life_has_its_events_and_what_is_never_given_back_has_no_end() -> None:
    job = Job()
    job.enter(Phase.FORWARD, 0)
    first = job.take(MiB, Category.ACTIVATION, "a")
    second = job.take(2 * MiB, Category.ACTIVATION, "b")
    job.give_back(first)
    job.take(4 * MiB, Category.ACTIVATION, "c")
    job.give_back(second)
    history = history_of(job)
    lives = lives_of(history, curve_of(history))
    assert [(life.born, life.died, life.first, life.last) for life in lives] == [
        (0, 2, 0, 1),
        (1, 4, 1, 3),
        (3, None, 3, 4),
    ]


def test_small_equal_tensors_are_one_band_and_small_different_ones_another() -> None:
    job = Job()
    job.enter(Phase.BUILD, -1)
    job.take(64 * MiB, Category.PARAMETER, "head.weight")
    for number in range(3000):
        job.take(4 * KiB, Category.PARAMETER, f"blocks.{number}.bias")
    for number in range(5):
        job.take((number + 1) * 512, Category.PARAMETER, f"odd.{number}")
    history = history_of(job)
    alone, equal, rest = tensor_bands(history, curve_of(history)).bottom_up
    assert [life.action.size for life in alone.lives] == [64 * MiB]
    assert len(equal.lives) == 3000
    assert equal.kind not in (0, alone.kind)
    assert max(level for _, level in equal.steps()) == 3000 * 4 * KiB
    assert (len(rest.lives), rest.kind) == (5, 0)


@pytest.mark.parametrize(("most_alone", "alone"), [(4000, 20), (7, 0)])
def test_equal_large_tensors_are_of_one_kind_and_all_alone_or_all_together(most_alone: int, alone: int) -> None:
    job = Job()
    job.enter(Phase.BUILD, -1)
    for number in range(20):
        job.take(4 * MiB, Category.PARAMETER, f"blocks.{number}.weight")
    history = history_of(job)
    bands = tensor_bands(history, curve_of(history), most_alone=most_alone).bottom_up
    assert len({band.kind for band in bands}) == 1
    assert len([band for band in bands if len(band.lives) == 1]) == alone
    assert sum(len(band.lives) for band in bands) == 20


def test_what_comes_and_goes_between_the_drawn_moments_is_counted() -> None:
    job = Job()
    job.enter(Phase.FORWARD, 0)
    job.take(MiB, Category.PARAMETER)
    for _ in range(40):
        job.give_back(job.take(MiB, Category.TEMPORARY))
    history = history_of(job)
    exact, coarse = curve_of(history), curve_of(history, columns=12, exact=1)
    assert tensor_bands(history, exact).unseen == 0
    unseen = tensor_bands(history, coarse).unseen
    assert 0 < unseen < 40
    assert unseen == sum(life.last < life.first for life in lives_of(history, coarse))
