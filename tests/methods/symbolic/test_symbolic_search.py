"""The parts of the search: subsets, sums, both engines."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast.methods.equations.symbolic import SearchConfig
from oomcast.methods.equations.symbolic import deap_search as _deap
from oomcast.methods.equations.symbolic import operon_search as _operon
from oomcast.methods.equations.symbolic.constants import levenberg_marquardt
from oomcast.methods.equations.symbolic.expression import (
    Constant,
    Expression,
    Power,
    Product,
    Sum,
    Variable,
    constants,
    value,
)
from oomcast.methods.equations.symbolic.monomials import all_powers, best_subsets
from oomcast.methods.equations.symbolic.sums import best_sums, polynomial


def _samples(seed: int = 0, rows: int = 30) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.1, 1, (rows, 2))
    return x, 0.6 * x[:, 0] * x[:, 1] ** 2 + 0.05


def _error(expression: Expression, x: np.ndarray, y: np.ndarray) -> float:
    return float(np.abs(value(expression, {"a": x[:, 0], "b": x[:, 1]}) / y - 1).mean())


@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=30, deadline=None)
def test_best_subsets_are_those_of_a_full_search(seed: int, signed: bool) -> None:
    rng = np.random.default_rng(seed)
    columns = rng.uniform(0.1, 1, (12, 7))
    columns /= np.sqrt((columns**2).sum(axis=0))
    losses = []
    for subset, loss in best_subsets(columns, np.ones(12), np.zeros(7), 3, signed):
        factors, *_ = np.linalg.lstsq(columns[:, subset], np.ones(12), rcond=None)
        assert signed or (factors > 0).all()
        assert np.isclose(loss, ((columns[:, subset] @ factors - 1) ** 2).sum())
        best = min(
            _positive_loss(columns[:, others], signed) for others in itertools.combinations(range(7), len(subset))
        )
        assert loss <= best * (1 + 1e-9)
        losses.append(loss)
    assert losses == sorted(losses, reverse=True)


def _positive_loss(columns: np.ndarray, signed: bool) -> float:
    factors, *_ = np.linalg.lstsq(columns, np.ones(len(columns)), rcond=None)
    return float(((columns @ factors - 1) ** 2).sum()) if signed or (factors > 0).all() else np.inf


def test_all_powers_are_bounded_by_degree_number_and_the_values_of_a_variable() -> None:
    x = np.column_stack([np.tile([0.5, 1.0], 10), np.linspace(0.1, 1, 20)])
    powers = all_powers(x, 3, 100)
    assert powers[0] == (0, 0)
    assert len(set(powers)) == len(powers)
    assert {first for first, _ in powers} == {0, 1}
    assert max(map(sum, powers)) == 3
    assert len(all_powers(np.random.default_rng(0).uniform(size=(20, 8)), 6, 50)) <= 50


def test_exact_samples_give_the_exact_sum() -> None:
    x, y = _samples()
    best = min(best_sums(x, y, all_powers(x, 4, 100), 6), key=lambda one: one.criterion)
    assert dict(zip(best.powers, best.factors, strict=True)) == pytest.approx({(1, 2): 0.6, (0, 0): 0.05}, rel=1e-9)


def test_a_price_must_be_earned() -> None:
    x = np.linspace(0.1, 1, 20)
    columns = np.column_stack([x, x + 1e-4 * np.sin(40 * x)])
    target = x + 0.5e-3 * np.cos(30 * x)
    prices = np.zeros(2)
    (cheap, _), *_ = best_subsets(columns, target, prices, 1)
    prices[cheap[0]] = 5.0
    (other, _), *_ = best_subsets(columns, target, prices, 1)
    assert other != cheap


def test_one_odd_row_does_not_decide() -> None:
    x, y = _samples()
    rng = np.random.default_rng(1)
    noisy = y * (1 + 0.01 * rng.standard_normal(len(y)))
    noisy[5] *= 1.5
    best = min(best_sums(x, noisy, all_powers(x, 4, 100), 6), key=lambda one: one.criterion)
    assert dict(zip(best.powers, best.factors, strict=True)) == pytest.approx({(1, 2): 0.6, (0, 0): 0.05}, rel=0.03)


def test_levenberg_marquardt_finds_constants_and_never_makes_it_worse() -> None:
    x, y = _samples()
    columns = {"a": x[:, 0], "b": x[:, 1]}
    form = Sum((Product((Constant(0.1), Variable("a"), Power(Variable("b"), 2))), Constant(0.9)))
    assert constants(levenberg_marquardt(form, columns, y, 100)) == pytest.approx((0.6, 0.05))
    assert levenberg_marquardt(form, columns, y, 0) is form
    hopeless = Power(Product((Constant(1e200), Variable("a"))), 3)
    assert levenberg_marquardt(hopeless, columns, y, 100) is hopeless
    assert levenberg_marquardt(Variable("a"), columns, y, 100) == Variable("a")


@pytest.mark.parametrize(("engine", "package"), [(_deap, "deap"), (_operon, "pyoperon")])
@pytest.mark.parametrize("primitives", [("add", "multiply", "square", "cube"), ("add", "multiply", "maximum")])
def test_the_same_seed_finds_the_same_and_touches_no_other_randomness(engine, package: str, primitives) -> None:
    pytest.importorskip(package)
    x, y = _samples()
    config = SearchConfig(primitives=primitives, population=30, generations=8, max_size=25, seed=3)
    random.seed(11)
    state = random.getstate()
    first = engine.search(x, y, ["a", "b"], config)
    assert random.getstate() == state
    assert first == engine.search(x, y, ["a", "b"], config)
    assert first != engine.search(
        x, y, ["a", "b"], SearchConfig(primitives=primitives, population=30, generations=8, seed=4)
    )
    published = primitives == ("add", "multiply", "square", "cube")
    assert not published or all(polynomial(form) is not None for form in first if not _has_maximum(form))
    assert not published or not any(map(_has_maximum, first))
    assert min(_error(form, x, y) for form in first) < 0.5


def _has_maximum(expression: Expression) -> bool:
    return "Maximum" in repr(expression)


def test_the_published_search_finds_a_simple_equation() -> None:
    pytest.importorskip("deap")
    x, y = _samples()
    found = _deap.search(x, y, ["a", "b"], SearchConfig(population=60, generations=12, max_size=30, seed=1))
    assert min(_error(form, x, y) for form in found) < 0.05


def test_operon_trees_mean_what_operon_says() -> None:
    op = pytest.importorskip("pyoperon")
    x, y = _samples()
    data = op.Dataset(np.asfortranarray(np.column_stack([x, y])))
    first, second, _ = sorted(data.Variables, key=lambda variable: variable.Index)
    variables = {first.Hash: Variable("a"), second.Hash: Variable("b")}

    def leaf(variable, weight: float):
        node = op.Node(op.NodeType.Variable, variable.Hash)
        node.Value = weight
        return node

    largest = next(kind for kind in (op.NodeType.Fmax, op.NodeType.Fmin) if op.Node(kind).Name == "fmax")
    for operation in (op.NodeType.Add, op.NodeType.Mul, op.NodeType.Sub, largest):
        nodes = [leaf(first, 2.0), op.Node.Constant(0.25), leaf(second, -3.0), op.Node(op.NodeType.Square)]
        nodes += [op.Node(operation), op.Node(op.NodeType.Sub)]
        tree = op.Tree(nodes).UpdateNodes()
        told = np.asarray(op.Evaluate(op.DispatchTable(), tree, data, op.Range(0, len(x)))).reshape(-1)
        ours = value(_operon._expression(tree.Nodes, variables), {"a": x[:, 0], "b": x[:, 1]})
        assert np.allclose(told, ours, rtol=1e-4)


def test_an_operation_that_was_not_asked_for_is_an_error() -> None:
    with pytest.raises(ValueError, match="not asked for: tanh"):
        _operon._applied("tanh", [Variable("a")])
