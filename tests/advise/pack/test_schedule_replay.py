"""The scheduler's replay: small days that can be followed by hand, and what holds for every day."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy")

from pack_builder import demand, sure

from oomcast.advise.pack import (
    POLICIES,
    Demand,
    Item,
    Problem,
    Replayed,
    Timing,
    estimators_of,
    find_policies,
    parse_cards,
    read_jobs,
    replay,
    timings_of,
)
from oomcast.errors import BadInput, UnknownName
from oomcast.units import GiB

Job = tuple[float, float, float, Demand]
"""Arrival, duration, truth in GiB, estimate."""


def day(jobs: list[Job], policy: str, gpus: str = "1xa100-40gb", risk: float = 0.05, **rules: float) -> Replayed:
    cards = parse_cards(gpus)
    kinds = {card.kind for card in cards}
    items = [Item(f"job{n}", f"job{n}", dict.fromkeys(kinds, one[3])) for n, one in enumerate(jobs)]
    timings = [Timing(arrival, duration, round(truth * GiB)) for arrival, duration, truth, _ in jobs]
    return replay(Problem(items, cards, risk), timings, POLICIES[policy], **rules)


def test_alone_one_after_the_other() -> None:
    done = day([(0, 100, 10, sure(10)), (0, 50, 10, sure(10))], "exclusive")
    assert (done.makespan, done.mean_wait, done.mean_turnaround) == (150, 50, 125)
    assert done.cards_busy == 1.0
    assert done.memory_used == pytest.approx(10 * GiB / parse_cards("a100-40gb")[0].usable)


def test_sharing_runs_both_at_once() -> None:
    done = day([(0, 100, 10, sure(10)), (0, 50, 10, sure(10))], "first-fit")
    assert (done.makespan, done.mean_wait, done.ooms) == (100, 0, 0)


def test_sharing_costs_speed_where_it_is_told_to() -> None:
    """Both at half speed until one has done its 50 s of work, at 100; the other then has 50 s left."""
    done = day([(0, 100, 10, sure(10)), (0, 50, 10, sure(10))], "first-fit", slowdown=1.0)
    assert (done.makespan, done.mean_turnaround) == (150, 125)


def test_a_newcomer_that_bursts_the_card_dies_and_comes_back_alone() -> None:
    jobs: list[Job] = [(0, 100, 25, sure(25)), (10, 200, 20, sure(5))]
    done = day(jobs, "best-fit", crash_after=30)
    # It dies at 40, waits for the card until 100, and ends at 300.
    assert (done.ooms, done.lost_seconds, done.makespan) == (1, 30, 300)
    assert done.mean_wait == (0 + 90) / 2
    assert not done.failed


def test_the_one_that_was_there_runs_on() -> None:
    done = day([(0, 100, 25, sure(25)), (10, 200, 20, sure(5))], "best-fit", crash_after=30)
    assert done.mean_turnaround == (100 + 290) / 2


def test_a_wide_interval_keeps_the_risky_apart() -> None:
    wide = Demand.from_bounds(5 * GiB, 4 * GiB, 21 * GiB)
    jobs: list[Job] = [(0, 100, 25, sure(25)), (10, 200, 20, wide)]
    assert day(jobs, "best-fit").ooms == 1
    careful = day(jobs, "interval")
    assert (careful.ooms, careful.makespan) == (0, 300)


def test_an_estimate_that_fits_nowhere_claims_a_card() -> None:
    jobs: list[Job] = [(0, 100, 5, sure(5)), (1, 50, 5, sure(70)), (2, 500, 5, sure(5))]
    done = day(jobs, "first-fit")
    # The second waits for the first, the third for the second, though there was room for it.
    assert (done.makespan, done.mean_wait) == (650, (0 + 99 + 148) / 3)


def test_a_job_that_no_card_holds_has_failed() -> None:
    for policy in POLICIES:
        done = day([(0, 100, 50, sure(30)), (0, 10, 5, sure(5))], policy, crash_after=20)
        assert done.failed == ("job0",)
        assert done.ooms == (1 if policy == "exclusive" else 2)


def test_what_died_alone_is_tried_on_a_larger_card() -> None:
    done = day([(0, 100, 30, sure(20))], "exclusive", "1xrtx-3090,1xa100-40gb", crash_after=20)
    assert (done.ooms, done.failed, done.makespan) == (1, (), 120)


def test_the_tightest_card_is_taken() -> None:
    """First fit puts the small one where the large one then does not fit."""
    jobs: list[Job] = [(0, 100, 5, sure(5)), (1, 100, 22, sure(22)), (2, 100, 10, sure(10)), (3, 100, 30, sure(30))]
    first, best = (day(jobs, policy, "2xa100-40gb") for policy in ("first-fit", "best-fit"))
    assert first.mean_wait <= best.mean_wait
    assert {first.ooms, best.ooms} == {0}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), slowdown=st.sampled_from([0.0, 0.4]), policy=st.sampled_from(sorted(POLICIES)))
def test_every_job_ends_or_fails(seed: int, slowdown: float, policy: str) -> None:
    draw = random.Random(seed)
    jobs: list[Job] = []
    for _ in range(25):
        guess = demand(draw.uniform(1, 45))
        jobs.append((draw.uniform(0, 500), draw.uniform(1, 300), guess.drawn(draw.random()) / GiB, guess))
    done = day(jobs, policy, "2xa100-40gb,1xrtx-3090", slowdown=slowdown)
    largest = max(card.usable for card in parse_cards("a100-40gb,rtx-3090"))
    assert done.failed == tuple(f"job{n}" for n, job in enumerate(jobs) if round(job[2] * GiB) > largest)
    assert 0 <= done.memory_used <= 1
    assert 0 <= done.cards_busy <= 1 + 1e-9
    assert done.mean_turnaround >= done.mean_wait >= 0
    assert done == day(jobs, policy, "2xa100-40gb,1xrtx-3090", slowdown=slowdown)


def test_right_estimates_kill_nothing() -> None:
    draw = random.Random(3)
    jobs: list[Job] = [
        (n, 40.0, size, sure(size + 0.01)) for n, size in enumerate(draw.uniform(1, 30) for _ in range(40))
    ]
    for policy in POLICIES:
        assert day(jobs, policy, "3xa100-40gb").ooms == 0


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "jobs.toml"
    path.write_text(text)
    return path


def timed(tmp_path: Path, more: str, draw: int | None = None) -> tuple[Timing, ...]:
    listed = read_jobs(written(tmp_path, f'[[job]]\nname = "a"\ndevice_total = "4GiB"\n{more}'))
    cards = parse_cards("t4")
    items = [Item("a", "a", {"t4": listed.jobs[0].given["given"]})]
    return timings_of(listed.jobs, items, cards, draw)


def test_a_replay_needs_durations_and_truths(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="'a' has no duration"):
        timed(tmp_path, "truth = '4GiB'")
    with pytest.raises(BadInput, match=r"'a' has no truth.*--draw-truth SEED"):
        timed(tmp_path, "duration = 5")
    assert timed(tmp_path, "duration = 5\ntruth = '4GiB'") == (Timing(0.0, 5.0, 4 * GiB),)


def test_truths_are_drawn_the_same_every_time(tmp_path: Path) -> None:
    assert (
        timed(tmp_path, "duration = 5", 1) == timed(tmp_path, "duration = 5", 1) != timed(tmp_path, "duration = 5", 2)
    )
    assert timed(tmp_path, "duration = 5\ntruth = 7", 1)[0].truth == 7


def test_the_estimators_that_all_jobs_have(tmp_path: Path) -> None:
    one = '[[job]]\nname = "{}"\n[job.estimates.horus]\ndevice_total = 5\n'
    both = one.format("a") + "[job.estimates.simulator]\ndevice_total = 6\n"
    assert estimators_of(read_jobs(written(tmp_path, both)).jobs) == ("horus", "simulator")
    assert estimators_of(read_jobs(written(tmp_path, both + one.format("b"))).jobs) == ("horus",)


def test_wrong_rules_are_told() -> None:
    wrong: list[dict[str, Any]] = [{"slowdown": -1.0}, {"crash_after": -1.0}]
    for rules in wrong:
        with pytest.raises(BadInput, match="must not be negative"):
            day([(0, 1, 1, sure(1))], "first-fit", **rules)
    with pytest.raises(UnknownName, match="unknown policy 'best'; did you mean best-fit"):
        find_policies(["best"])


def test_numbers_without_end_are_told() -> None:
    for arrival, duration, truth in ((1e300, 1.0, 1), (0.0, float("inf"), 1), (0.0, 1.0, 10**400)):
        with pytest.raises(BadInput):
            Timing(arrival, duration, truth)
    for total, low, high in ((10**400, None, None), (1, 1, 10**400)):
        with pytest.raises(BadInput, match="more than any machine has"):
            Demand.from_bounds(total, low, high)
