"""Placements: they keep to the bound, they are the best where all can be tried, and what is proven is true."""

from __future__ import annotations

import dataclasses
import io
import os
import signal
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

pytest.importorskip("numpy")
pytest.importorskip("ortools")

from pack_builder import demand, fewest_cards_by_trying, items, most_jobs_by_trying, random_problem, sure

from oomcast.advise.pack import Demand, Item, Packing, Problem, pack_jobs, parse_cards
from oomcast.advise.pack.bounds import cardinality_cuts, cover_cut, relaxation
from oomcast.advise.pack.solver import best_fit, levelled, solve, used_cards
from oomcast.errors import BadInput
from oomcast.report.pack import render_packing
from oomcast.units import GiB

PATIENT = 600.0


def packed(problem: Problem) -> Packing:
    return pack_jobs(problem.items, problem.cards, risk=problem.bound, max_per_gpu=problem.most, seconds=PATIENT)


@pytest.mark.parametrize("seed", range(6))
def test_as_few_cards_as_trying_everything_finds(seed: int) -> None:
    problem = random_problem(seed, 8, 6.0, 22.0, "8xa100-40gb")
    answer = packed(problem)
    assert answer.used == fewest_cards_by_trying(problem)
    assert answer.fewest_cards <= answer.used
    assert not answer.left_out


@pytest.mark.parametrize("seed", range(4))
def test_as_many_jobs_as_trying_everything_finds(seed: int) -> None:
    problem = random_problem(seed, 8, 8.0, 30.0, "2xa100-40gb")
    answer = packed(problem)
    most = most_jobs_by_trying(problem)
    assert answer.placed == most <= answer.most_jobs
    assert len(answer.left_out) == 8 - most


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.floats(2.0, 36.0), min_size=2, max_size=9),
    groups=st.lists(st.sampled_from("abcdefghi"), min_size=9, max_size=9),
    risk=st.sampled_from([0.01, 0.05, 0.2]),
    most=st.sampled_from([None, 2]),
)
def test_nothing_that_holds_is_excluded(sizes: list[float], groups: list[str], risk: float, most: int | None) -> None:
    """Every statement that the proof rests on holds for the placements that a plain search finds."""
    cards = parse_cards("9xa100-40gb")
    jobs = [dataclasses.replace(one, group=group) for one, group in zip(items(sizes, cards), groups, strict=False)]
    problem = Problem(jobs, cards, risk, most)
    found = best_fit(problem)
    assert problem.holds(found)
    for members in problem.members(found):
        for weights in relaxation(problem, "a100-40gb"):
            assert sum(weights.of[one] or 0 for one in members) <= weights.limit
        for cut in cardinality_cuts(problem, "a100-40gb"):
            assert len(set(cut.items) & set(members)) <= cut.most
    everything = range(len(jobs))
    if not problem.fits(everything, "a100-40gb") and most is None and len(jobs) > 1:
        cut = cover_cut(problem, list(everything), "a100-40gb")
        assert not any(len(set(cut.items) & set(members)) > cut.most for members in problem.members(found))


def test_two_kinds_of_cards_and_a_job_that_needs_one_of_them() -> None:
    cards = parse_cards("1xa100-40gb,2xrtx-3090")
    kinds = ("a100-40gb", "rtx-3090")
    jobs = [
        Item("large", "large", dict.fromkeys(kinds, demand(30))),
        Item("bound", "bound", {"rtx-3090": demand(5)}),
        Item("middle", "middle", dict.fromkeys(kinds, demand(16))),
        Item("small", "small", dict.fromkeys(kinds, demand(3))),
    ]
    answer = pack_jobs(jobs, cards, seconds=PATIENT)
    places = {job.name: one.card.kind for one in answer.cards for job in one.jobs}
    assert places["large"] == "a100-40gb"
    assert places["bound"] == places["middle"] == "rtx-3090"
    assert answer.used == 2
    assert all(one.risk <= 0.05 for one in answer.cards)


def test_a_job_that_fits_nowhere_says_why() -> None:
    cards = parse_cards("2xrtx-3090")
    answer = pack_jobs(items([30, 5], cards), cards, seconds=PATIENT)
    (left,) = answer.left_out
    assert left.name == "job0"
    assert not left.for_room
    assert "even with a card to itself" in left.reason
    assert "30.00 GiB of 23.54 GiB usable" in left.reason
    assert answer.placed == 1
    assert not answer.crowded
    assert pack_jobs(items([30], cards), cards).placed == 0


def test_a_job_that_only_runs_alone_is_placed_alone() -> None:
    cards = parse_cards("2xa100-40gb")
    tight = Demand(round(39.3 * GiB), demand(1).ratios, lone_risk=0.02)
    jobs = [Item("tight", "tight", {"a100-40gb": tight}), *items([1, 1], cards)]
    answer = pack_jobs(jobs, cards, seconds=PATIENT)
    assert [len(one.jobs) for one in answer.cards] in ([1, 2], [2, 1])
    assert answer.fewest_cards == 2


def test_at_most_so_many_share_a_card() -> None:
    cards = parse_cards("4xa100-40gb")
    answer = pack_jobs(items([1] * 7, cards), cards, max_per_gpu=2, seconds=PATIENT)
    assert sorted(len(one.jobs) for one in answer.cards) == [1, 2, 2, 2]
    with pytest.raises(BadInput, match="places none"):
        pack_jobs(items([1], cards), cards, max_per_gpu=0)


def test_a_smaller_risk_needs_more_cards() -> None:
    cards = parse_cards("8xa100-40gb")
    jobs = items([9.2] * 8, cards)
    bold, careful = (pack_jobs(jobs, cards, risk=risk, seconds=PATIENT).used for risk in (0.1, 0.001))
    assert bold < careful


def test_runs_of_one_model_are_riskier_beside_each_other() -> None:
    """One error in four jobs at once, where four errors of their own would partly cancel."""
    cards = parse_cards("4xa100-40gb")
    apart = pack_jobs(items([9.2] * 4, cards), cards, risk=0.03, seconds=PATIENT)
    together = pack_jobs(items([9.2] * 4, cards, group="model"), cards, risk=0.03, seconds=PATIENT)
    assert apart.used < together.used


def test_sure_jobs_fill_a_card_to_its_end() -> None:
    cards = parse_cards("2xa100-40gb")
    quarter = cards[0].usable / GiB / 4 - 0.05
    jobs = [Item(f"job{n}", f"job{n}", {"a100-40gb": sure(quarter)}) for n in range(8)]
    answer = pack_jobs(jobs, cards, seconds=PATIENT)
    assert [len(one.jobs) for one in answer.cards] == [4, 4]
    assert answer.gap == 0.0


def test_levelling_keeps_the_cards_and_lowers_the_fullest() -> None:
    problem = random_problem(1, 30, 2.0, 9.0, "8xa100-40gb")
    before = best_fit(problem)
    after = levelled(problem, before)

    def fullest(placement: tuple[int | None, ...]) -> float:
        return max(sum(problem.items[i].demands["a100-40gb"].mean for i in m) for m in problem.members(placement))

    assert problem.holds(after)
    assert used_cards(after) == used_cards(before)
    assert fullest(after) < fullest(before)


def test_the_same_answer_twice() -> None:
    first, second = (solve(random_problem(5, 24, 2.0, 14.0, "8xa100-40gb"), PATIENT) for _ in range(2))
    assert first == second
    assert not first.stopped


def test_ctrl_c_is_still_an_exception_after_the_solver_has_run() -> None:
    packed(random_problem(0, 8, 6.0, 22.0, "8xa100-40gb"))
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_two_hundred_jobs_on_thirty_two_cards() -> None:
    answer = packed(random_problem(0, 200, 1.5, 9.0, "32xa100-40gb"))
    assert answer.placed == 200
    assert answer.fewest_cards >= 28
    assert answer.gap <= 0.07
    assert max(one.risk for one in answer.cards) <= 0.05


def test_without_the_solver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python.cp_model", None)
    monkeypatch.setitem(sys.modules, "ortools", None)
    with pytest.raises(BadInput, match=r"pip install 'oomcast\[packing\]'"):
        packed(random_problem(4, 60, 1.0, 12.0, "32xa100-40gb"))


def test_a_bound_below_what_the_runs_tell_is_said_to_be_no_promise() -> None:
    cards = parse_cards("2xa100-40gb")
    known_to = round(1 - demand(1).ratios.levels[-1], 6)
    careful, usual = (
        pack_jobs(items([8.0] * 3, cards), cards, risk=risk, seconds=PATIENT) for risk in (known_to / 2, known_to)
    )
    assert careful.known_to == usual.known_to == known_to
    assert "Not promised" in _written(careful)
    assert "Not promised" not in _written(usual)
    exact = Item("exact", "exact", {"a100-40gb": Demand.from_bounds(GiB, GiB, GiB)})
    assert pack_jobs([exact], cards, risk=0.001, seconds=PATIENT).known_to == 0.0


def _written(packing: Packing) -> str:
    console = Console(width=200, file=io.StringIO())
    console.print(render_packing(packing))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()
