"""Equations: their values, texts, files and rounding."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomcast.methods.equations.symbolic import Equation
from oomcast.methods.equations.symbolic.constants import Tape
from oomcast.methods.equations.symbolic.expression import (
    Constant,
    Expression,
    Maximum,
    Power,
    Product,
    Sum,
    Variable,
    constants,
    size,
    with_constants,
)

NAMES = ("batch", "edge")
MEMORY = Equation(
    Sum((Product((Constant(3100.0), Variable("batch"), Power(Variable("edge"), 3))), Constant(4.8e8))), NAMES, 0.01
)

leaves = st.one_of(
    st.floats(-4, 4).map(lambda number: Constant(round(number, 3))), st.sampled_from(NAMES).map(Variable)
)


def _branches(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    pairs = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return st.one_of(pairs.map(Sum), pairs.map(Product), pairs.map(Maximum), st.builds(Power, parts, st.integers(2, 3)))


expressions = st.recursive(leaves, _branches, max_leaves=8)
tables = st.lists(st.tuples(st.floats(0.1, 3), st.floats(0.1, 3)), min_size=1, max_size=4).map(np.array)


@given(expressions, tables)
def test_simpler_is_the_same_and_not_longer(expression: Expression, x: np.ndarray) -> None:
    equation = Equation(expression, NAMES)
    simpler = equation.simplified()
    assert simpler.size <= equation.size
    assert np.allclose(simpler.predict(x), equation.predict(x), rtol=1e-6, atol=1e-6 * _reach(expression, x))


def _reach(expression: Expression, x: np.ndarray) -> float:
    """How large parts can be that cancel: the value with every constant positive."""
    positive = with_constants(expression, [abs(number) for number in constants(expression)])
    return 1 + float(np.abs(Equation(positive, NAMES).predict(x)).max())


@given(expressions, tables)
def test_python_source_computes_the_same(expression: Expression, x: np.ndarray) -> None:
    equation = Equation(expression, NAMES)
    space: dict = {}
    exec(equation.python("peak"), space)
    assert np.allclose([space["peak"](*map(float, row)) for row in x], equation.predict(x), rtol=1e-9, atol=1e-9)


@given(expressions)
def test_json_brings_back_the_same_equation(expression: Expression) -> None:
    equation = Equation(expression, NAMES, 0.25)
    assert Equation.from_json(json.loads(json.dumps(equation.to_json()))) == equation


@given(expressions, tables)
def test_slopes_are_those_of_small_changes(expression: Expression, x: np.ndarray) -> None:
    numbers = constants(expression)
    columns = dict(zip(NAMES, x.T, strict=True))
    tape = Tape(expression, columns)
    values, slopes = tape.value_and_slopes(numbers)
    assert np.allclose(values, Equation(expression, NAMES).predict(x))
    assert slopes.shape == (len(x), len(numbers))
    if "Maximum" in repr(expression):
        return  # at a tie a maximum has no slope
    for place in range(len(numbers)):
        step = 1e-6
        moved = [n + step * (place == other) for other, n in enumerate(numbers)]
        back = [n - step * (place == other) for other, n in enumerate(numbers)]
        there, _ = tape.value_and_slopes(moved)
        here, _ = tape.value_and_slopes(back)
        scale = 1 + np.abs(slopes[:, place]).max() + np.abs(values).max()
        assert np.allclose((there - here) / (2 * step), slopes[:, place], atol=1e-4 * scale)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "polynomial"}, "not an equation"),
        ({"version": 2}, "not an equation"),
        ({"names": "batch"}, "names"),
        ({"names": ["batch"]}, "'edge'"),
        ({"names": ["batch", "edge", "edge"]}, "same name"),
        ({"error": "small"}, "error"),
        ({"error": -1}, "error"),
        ({"expression": {"exec": ["batch", 1]}}, "unknown operation 'exec'"),
        ({"expression": {"add": ["batch"]}}, "at least two"),
        ({"expression": {"add": ["batch", True]}}, "neither"),
        ({"expression": {"add": ["batch", math.inf]}}, "finite"),
        ({"expression": {"add": ["batch", 10**400]}}, "finite"),
        ({"expression": {"power": ["edge", 2.0]}}, "whole exponent"),
        ({"expression": {"power": ["edge", 10**6]}}, "whole exponent"),
        ({"expression": {"add": [1, 2], "multiply": [1, 2]}}, "one operation"),
        ({"expression": "__import__('os')"}, "not among the variables"),
    ],
)
def test_damaged_json_is_refused_with_a_reason(change: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Equation.from_json({**MEMORY.to_json(), **change})


def test_json_without_an_expression_or_too_deep_is_refused() -> None:
    plain = MEMORY.to_json()
    del plain["expression"]
    with pytest.raises(ValueError, match="no expression"):
        Equation.from_json(plain)
    deep: object = "edge"
    for _ in range(5000):
        deep = {"power": [deep, 2]}
    with pytest.raises(ValueError, match="too deeply"):
        Equation.from_json({**plain, "expression": deep})
    with pytest.raises(ValueError, match="not an equation"):
        Equation.from_json(["equation"])


def test_text_latex_and_python() -> None:
    assert MEMORY.text() == "3100*batch*edge^3 + 4.8e8"
    assert (
        MEMORY.text("bytes", {"batch": "sample", "edge": "voxel"})
        == "3100 bytes/(sample*voxel^3) * batch * edge^3 + 4.8e8 bytes"
    )
    assert MEMORY.latex() == r"3100 \, \mathrm{batch} \, \mathrm{edge}^{3} + 4.8 \times 10^{8}"
    assert MEMORY.python() == "def memory(batch, edge):\n    return 3100 * batch * edge**3 + 4.8e8\n"
    nested = Equation(Product((Constant(2.0), Sum((Variable("batch"), Constant(-1.0))))), NAMES)
    assert nested.text("bytes", {"batch": "samples"}) == "2*(batch - 1)   (in bytes, batch in samples)"


def test_names_that_are_no_python_names_are_renamed_without_clashes() -> None:
    names = ("batch size", "batch_size", "for", "2d", "max")
    equation = Equation(Sum(tuple(Product((Constant(10.0**i), Variable(n))) for i, n in enumerate(names))), names)
    space: dict = {}
    exec(equation.python(), space)
    assert space["memory"](1, 2, 3, 4, 5) == 54321
    with pytest.raises(ValueError, match="cannot be the name"):
        equation.python("not a name")
    assert r"batch\ size" in equation.latex()


def test_scaled_changes_the_unit_of_the_response() -> None:
    x = np.array([[1, 16], [8, 64]])
    assert np.allclose(MEMORY.scaled(2**-30).predict(x) * 2**30, MEMORY.predict(x))
    assert MEMORY.scaled(2).text() == "6200*batch*edge^3 + 9.6e8"


def test_rounding_drops_digits_that_do_not_change_the_error() -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.integers(1, 64, 50), rng.integers(16, 128, 50)]).astype(float)
    y = (3100 * x[:, 0] * x[:, 1] ** 3 + 4.8e8) * (1 + 0.02 * rng.standard_normal(50))
    exact = Equation(with_constants(MEMORY.expression, [3098.7654321, 4.812345678e8]), NAMES)
    rounded = exact.rounded(x, y)
    assert rounded.error == rounded.mape(x, y) <= exact.mape(x, y) * 1.001 + 1e-9
    assert all(float(f"{number:.3e}") == number for number in constants(rounded.expression))
    true = MEMORY.rounded(x, MEMORY.predict(x))
    assert true.expression == MEMORY.expression


def test_a_constant_that_is_rounded_to_1_is_left_out() -> None:
    x = np.array([[1.0, 16], [8, 64], [3, 20]])
    y = Equation(Sum((Product((Constant(1.0), Variable("edge"))), Constant(5.0))), NAMES).predict(x) * [1.01, 0.99, 1]
    near = Equation(Sum((Product((Constant(1.0004), Variable("edge"))), Constant(5.0))), NAMES)
    assert near.rounded(x, y).text() == "edge + 5"


def test_equal_factors_become_a_power() -> None:
    tree = Product((Variable("edge"), Sum((Variable("batch"), Variable("edge"))), Variable("edge"), Variable("edge")))
    assert Equation(tree, NAMES).simplified().text() == "edge^3*(batch + edge)"


def test_size_terms_and_used() -> None:
    assert (MEMORY.size, size(Constant(1.0))) == (8, 1)
    assert MEMORY.terms == ((3100.0, {"batch": 1, "edge": 3}), (4.8e8, {}))
    assert Equation(Variable("edge"), NAMES).used == ("edge",)
    assert Equation(Maximum((Variable("edge"), Constant(1.0))), NAMES).terms is None


def test_prediction_refuses_wrong_tables() -> None:
    with pytest.raises(ValueError, match="1 variables were given where 2 are needed: batch, edge"):
        MEMORY.predict([[1.0]])
    with pytest.raises(ValueError, match="a value of edge is not a finite number"):
        MEMORY.predict([[1.0, math.nan]])
    with pytest.raises(ValueError, match="table of numbers"):
        MEMORY.predict([["one", "two"]])
    with pytest.raises(ValueError, match="not among the variables"):
        Equation(Variable("depth"), NAMES)
