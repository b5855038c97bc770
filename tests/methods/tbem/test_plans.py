"""Plans: what they hold, what they cost, that a seed decides them, and where an adaptive one goes next."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast.errors import BadInput
from oomcast.methods.tbem import Case, Factor, PolynomialRegression, encode, main_effects, make_plan, next_case
from oomcast.methods.tbem.arrays import strength_of
from oomcast.methods.tbem.plans import other_cases, repaired

VGG = (
    Factor("batch_size", (4, 8, 16, 32)),
    Factor("depth", (11, 13, 16, 19)),
    Factor("convolutions", (8, 10, 13, 16)),
)
MIXED = (Factor("edge", (32, 64, 96)), Factor("norm", ("none", "batch")), Factor("bias", (False, True)))

factor_lists = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(
    lambda counts: tuple(Factor(f"f{i}", tuple(range(10, 10 + count))) for i, count in enumerate(counts))
)


def identities(cases: Sequence[Case]) -> set[tuple[object, ...]]:
    return {tuple(case.values()) for case in cases}


def test_the_vgg_table_takes_16_runs_instead_of_64() -> None:
    plan = make_plan("orthogonal", VGG)
    cost = plan.cost(repetitions=3, seconds_per_case=2.0)
    assert (cost.cases, cost.runs, cost.combinations, cost.seconds) == (16, 48, 64, 96.0)
    assert plan.cost().seconds is None
    rows = [[factor.levels.index(case[factor.name]) for factor in VGG] for case in plan.cases]
    assert strength_of(rows, (4, 4, 4)) == 2


def test_a_full_plan_has_every_combination_once() -> None:
    plan = make_plan("full", MIXED)
    assert len(plan.cases) == len(identities(plan.cases)) == 12
    assert plan.cases[0] == {"edge": 32, "norm": "none", "bias": False}


def test_blocks_leave_out_a_corner_of_the_grid() -> None:
    factors = (Factor("edge", (32, 64, 128)), Factor("batch", (1, 2, 4)))
    small, large = (Factor("edge", (32, 64)),), (Factor("edge", (64, 128)), Factor("batch", (1,)))
    plan = make_plan("blocks", factors, blocks=(small, large))
    assert len(plan.cases) == len(identities(plan.cases)) == 7
    assert {"edge": 128, "batch": 4} not in plan.cases
    assert plan.cases[-1] == {"edge": 128, "batch": 1}
    with pytest.raises(BadInput, match="levels of 'edge' that no factor"):
        make_plan("blocks", factors, blocks=((Factor("edge", (256,)),),))


def test_a_repeated_row_of_an_array_is_run_once() -> None:
    plan = make_plan("orthogonal", [Factor(str(i), tuple(range(n))) for i, n in enumerate((6, 2, 2, 2))])
    assert plan.array is not None
    assert plan.array.runs == 24
    assert len(identities(plan.cases)) == len(plan.cases) == len(set(plan.array.rows)) == 22


@given(factor_lists, st.integers(0, 1000), st.data())
def test_random_plans_are_decided_by_their_seed(factors: tuple[Factor, ...], seed: int, data: st.DataObject) -> None:
    total = math.prod(len(factor.levels) for factor in factors)
    runs = data.draw(st.integers(1, total))
    plan = make_plan("random", factors, runs=runs, seed=seed)
    assert plan == make_plan("random", factors, runs=runs, seed=seed)
    assert len(identities(plan.cases)) == runs
    assert all(case[factor.name] in factor.levels for case in plan.cases for factor in factors)


def test_another_seed_draws_other_cases() -> None:
    plans = {tuple(tuple(case.values()) for case in make_plan("random", VGG, runs=10, seed=s).cases) for s in range(5)}
    assert len(plans) == 5


@given(factor_lists, st.integers(0, 100))
def test_other_cases_are_all_that_are_left(factors: tuple[Factor, ...], seed: int) -> None:
    taken = make_plan("orthogonal", factors).cases
    left = list(other_cases(factors, taken, seed))
    assert identities(left) | identities(taken) == identities(make_plan("full", factors).cases)
    assert not identities(left) & identities(taken)
    assert len(left) == len(identities(left))


def test_an_adaptive_plan_starts_spread_out_and_tells_what_is_to_come() -> None:
    plan = make_plan("adaptive", VGG, runs=20)
    assert (len(plan.cases), plan.to_come, plan.cost().cases) == (7, 13, 20)
    assert plan.cases[0] == {"batch_size": 4, "depth": 11, "convolutions": 8}
    assert plan.cases[1] == {"batch_size": 32, "depth": 19, "convolutions": 16}
    assert len(identities(plan.cases)) == 7
    assert plan == make_plan("adaptive", VGG, runs=20)


def test_the_next_case_is_where_the_model_is_least_sure() -> None:
    done = list(make_plan("orthogonal", VGG).cases)

    def unsure(cases: Sequence[Case]) -> list[float]:
        return [1.0 if case == {"batch_size": 8, "depth": 19, "convolutions": 8} else 0.5 for case in cases]

    if {"batch_size": 8, "depth": 19, "convolutions": 8} in done:
        pytest.fail("choose a case that the array leaves out")
    assert next_case(VGG, done, unsure) == {"batch_size": 8, "depth": 19, "convolutions": 8}


def test_leverage_sends_the_next_case_to_the_far_end() -> None:
    factors = (Factor("x", tuple(range(1, 21))),)
    done = [{"x": x} for x in (1, 2, 3, 4, 5, 6)]
    _, known = encode(factors, done)
    model = PolynomialRegression().fit(known, 3 + 2 * known[:, 0] + np.array([0.1, -0.1] * 3))

    def variance(cases: Sequence[Case]) -> Sequence[float]:
        return list(model.predict_variance(encode(factors, cases)[1]))

    assert next_case(factors, done, variance) == {"x": 20}


def test_adaptive_choice_never_repeats_and_ends() -> None:
    done: list[Case] = []
    for _ in range(12):
        done.append(next_case(MIXED, done))
    assert len(identities(done)) == 12
    with pytest.raises(BadInput, match="every combination"):
        next_case(MIXED, done)


def test_a_huge_space_is_sampled() -> None:
    factors = tuple(Factor(f"f{i}", tuple(range(10))) for i in range(12))
    first = next_case(factors, [{f"f{i}": 0 for i in range(12)}])
    assert sum(int(value) for value in first.values()) > 60
    assert len(make_plan("random", factors, runs=50, seed=3).cases) == 50


def test_an_uncertainty_that_is_not_a_number_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="one number for each"):
        next_case(VGG, [], lambda cases: [math.nan] * len(cases))


@pytest.mark.parametrize(
    ("method", "factors", "options", "words"),
    [
        ("random", VGG, {"runs": 65}, "only 64 combinations"),
        ("random", VGG, {}, "number of runs"),
        ("adaptive", VGG, {"runs": 65}, "only 64 combinations"),
        ("full", tuple(Factor(f"f{i}", tuple(range(10))) for i in range(6)), {}, "1000000 cases"),
        ("orthogonal", (), {}, "at least one factor"),
    ],
)
def test_impossible_plans(method: str, factors: tuple[Factor, ...], options: dict[str, int], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        make_plan(method, factors, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("levels", [(), (4, 4), ("a", "a")])
def test_a_factor_needs_levels_each_once(levels: tuple[int | str, ...]) -> None:
    with pytest.raises(BadInput, match="level"):
        Factor("f", levels)


def test_true_and_one_are_two_levels() -> None:
    assert len(make_plan("full", (Factor("f", (1, True)),)).cases) == 2


def test_words_become_columns_of_0_and_1() -> None:
    factors = (*MIXED, Factor("one", (7,)), Factor("pool", ("max", "average", "none")))
    case = {"edge": 64, "norm": "batch", "bias": True, "one": 7, "pool": "none"}
    names, matrix = encode(factors, [case])
    assert names == ("edge", "norm=batch", "bias", "pool=average", "pool=none")
    assert matrix.tolist() == [[64.0, 1.0, 1.0, 0.0, 1.0]]


def test_main_effects_over_an_array_add_up() -> None:
    plan = make_plan("orthogonal", VGG)
    values = [100.0 * float(case["batch_size"]) + 3.0 * float(case["depth"]) for case in plan.cases]
    effects = main_effects(VGG, plan.cases, values)
    assert [effect.factor for effect in effects] == ["batch_size", "depth", "convolutions"]
    assert [effect.range for effect in effects] == pytest.approx([2800.0, 24.0, 0.0])
    assert sum(effect.share for effect in effects) == pytest.approx(1.0)
    assert dict(effects[1].means)[19] - dict(effects[1].means)[11] == pytest.approx(24.0)


def test_main_effects_of_a_constant_are_none() -> None:
    assert [effect.share for effect in main_effects(VGG, make_plan("full", VGG).cases, [5.0] * 64)] == [0.0] * 3


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=16, max_size=16))
def test_shares_never_exceed_the_whole(values: list[float]) -> None:
    effects = main_effects(VGG, make_plan("orthogonal", VGG).cases, values)
    assert sum(effect.share for effect in effects) <= 1 + 1e-9


def test_an_array_without_an_impossible_level_has_no_more_runs() -> None:
    """Three levels beside four would need 48 runs: the 16 rows stay, another level takes the impossible one's place."""
    factors = [Factor(name, (1, 2, 3, 4)) for name in "abcd"]
    plan = make_plan("orthogonal", factors)

    def passes(case: Case) -> bool:
        return case["d"] != 1

    cases, balance = repaired(plan, [case for case in plan.cases if passes(case)], passes)
    assert len(cases) == len(plan.cases) == 16
    assert all(passes(case) for case in cases)
    assert balance.without == ("d=1",)
    assert balance.proportional
    assert balance.strength == 0
    assert balance.pairs == balance.possible_pairs == 84
    assert "met in proportion" in str(balance)
