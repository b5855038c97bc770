"""The drawn curve is the simulated one: exact where it claims to be, never below the truth elsewhere."""

from __future__ import annotations

import pytest
from estimate_builder import Job, estimated, training
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast.report.charts import tick_words, ticks_of_bytes
from oomcast.report.curve import CATEGORIES, bands_of, curve_of
from oomcast.report.held_tree import Held, module_tree
from oomcast.simulate import ActionKind
from oomcast.trace import Category
from oomcast.units import GiB, MiB


@settings(deadline=None, max_examples=25)
@given(layers=st.integers(1, 12), steps=st.integers(1, 3), columns=st.integers(10, 200), exact=st.integers(1, 20))
def test_columns_cover_the_run_and_keep_its_peak(layers: int, steps: int, columns: int, exact: int) -> None:
    estimate = estimated(training(layers, steps))
    history = estimate.history
    assert history is not None
    curve = curve_of(history, columns=columns, exact=exact)
    starts = [column.first for column in curve.columns]
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    assert {stretch.first for stretch in curve.stretches} <= set(starts)
    peak = curve.columns[curve.peak]
    assert peak.allocated == estimate.peak_allocated
    assert dict(zip(CATEGORIES, peak.bytes, strict=True)) == {name: estimate.breakdown[name] for name in CATEGORIES}
    near = range(max(peak.moment - exact, 0), min(peak.moment + exact + 1, curve.end))
    assert set(near) <= set(starts)
    assert curve.is_exact == (len(curve.columns) == curve.end)


def test_a_coarse_column_shows_the_highest_moment_of_its_stretch() -> None:
    history = estimated(training(8, 3)).history
    assert history is not None
    fine = curve_of(history, columns=10_000)
    coarse = curve_of(history, columns=40, exact=4)
    assert fine.is_exact
    assert not coarse.is_exact
    bounds = [*(column.first for column in coarse.columns), coarse.end]
    for column, end in zip(coarse.columns, bounds[1:], strict=True):
        inside = fine.columns[column.first : end]
        assert column.allocated == max(part.allocated for part in inside)
        assert column.reserved == max(part.reserved for part in inside)
        assert fine.columns[column.moment].bytes == column.bytes


def test_every_column_knows_the_largest_block_in_use() -> None:
    history = estimated(training(5, 2)).history
    assert history is not None
    live: dict[int, tuple[str, int]] = {}
    sizes: dict[int, dict[str, int]] = {}
    for action in history.actions:
        if action.kind is ActionKind.ALLOCATE:
            live[action.address] = (history.category_of(action).value, action.size)
        elif action.kind is ActionKind.FREE:
            del live[action.address]
        largest: dict[str, int] = {}
        for category, size in live.values():
            largest[category] = max(largest.get(category, 0), size)
        sizes[action.position] = largest
    for column in curve_of(history).columns:
        if column.moment in sizes:
            told = zip(CATEGORIES, column.largest, strict=True)
            assert {name: block.size for name, block in told if block is not None} == sizes[column.moment]


def test_the_bands_reach_the_device_total() -> None:
    estimate = estimated(training())
    assert estimate.history is not None
    curve = curve_of(estimate.history)
    bands = bands_of(estimate, curve)
    assert bands.top == estimate.device_total
    for place in range(len(curve.columns)):
        assert sum(band.values[place] for band in bands.bottom_up) == bands.bottom_up[-1].tops[place]
    assert all(value >= 0 for band in bands.bottom_up for value in band.values)


def test_the_modules_sum_to_what_is_allocated() -> None:
    estimate = estimated(training(4))
    assert estimate.history is not None
    tree = module_tree(estimate.history)
    assert tree.total == estimate.peak_allocated == sum(estimate.peak_by_module.values())

    def check(module: Held) -> None:
        assert sum(child.total for child in module.children) <= module.total
        for child in module.children:
            check(child)

    check(tree)
    assert {path for _, path, _ in tree.walk(2)} >= {"blocks", "outside of any module", "blocks.0.linear"}


def test_small_siblings_are_put_together() -> None:
    job = Job()
    job.take(512 * MiB, Category.PARAMETER, "head.weight")
    for number in range(40):
        job.take(512, Category.PARAMETER, f"norm{number}.bias")
    history = estimated(job).history
    assert history is not None
    assert [path for _, path, _ in module_tree(history).walk(1)] == ["head.weight", "40 smaller ones"]


@pytest.mark.parametrize(
    ("top", "words"),
    [
        (7 * GiB, ["0", "2 GiB", "4 GiB", "6 GiB"]),
        (1 * GiB, ["0", "0.25 GiB", "0.5 GiB", "0.75 GiB", "1 GiB"]),
        (85 * GiB, ["0", "20 GiB", "40 GiB", "60 GiB", "80 GiB"]),
        (300 * MiB, ["0", "50 MiB", "100 MiB", "150 MiB", "200 MiB", "250 MiB", "300 MiB"]),
        (100, ["0", "20 B", "40 B", "60 B", "80 B", "100 B"]),
    ],
)
def test_ticks_are_round_in_powers_of_two(top: int, words: list[str]) -> None:
    ticks = ticks_of_bytes(top)
    assert [tick_words(tick, ticks) for tick in ticks] == words


@given(top=st.integers(1, 1 << 45))
def test_there_are_a_few_ticks_whatever_the_height(top: int) -> None:
    assert 1 <= len(ticks_of_bytes(top)) <= 7
