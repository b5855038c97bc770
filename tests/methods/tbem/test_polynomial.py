"""Polynomial regression: known polynomials are recovered, uncertainty is honest, few runs are not overfitted."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from oomcast.methods.tbem import PolynomialRegression
from oomcast.methods.tbem.polynomial import t_quantile

Floats = NDArray[np.float64]

# 16 runs of three factors of four levels, as a campaign has them: two Latin squares.
LEVELS = np.array([[4, 8, 16, 32], [32, 64, 96, 128], [8, 16, 32, 64]], dtype=float)
ARRAY = np.array([[LEVELS[0, i], LEVELS[1, j], LEVELS[2, i ^ j]] for i in range(4) for j in range(4)])
GRID = np.array(
    [[b, e, w] for b in (4, 8, 12, 24, 32) for e in (32, 48, 80, 128) for w in (8, 24, 48, 64)], dtype=float
)


def terms(model: PolynomialRegression) -> dict[str, float]:
    return {term.name: term.coefficient for term in model.terms_}


def mape(model: PolynomialRegression, truth: Floats) -> float:
    return float(np.mean(np.abs(model.predict(GRID) / truth - 1)))


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=4))
def test_one_variable_recovers_its_coefficients(coefficients: list[int]) -> None:
    x = np.linspace(1, 20, 30)
    y = sum((c * x**power for power, c in enumerate(coefficients)), np.zeros(30))
    model = PolynomialRegression().fit(x, y, ["x"])
    expected = {("1", "x", "x^2", "x^3")[power]: c for power, c in enumerate(coefficients) if c}
    found = {name: c for name, c in terms(model).items() if abs(c) > 1e-6}
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert model.predict(x) == pytest.approx(y, abs=1e-6 * (1 + np.abs(y).max()))


def test_a_product_of_many_variables_is_found_in_16_runs() -> None:
    def truth(x: Floats) -> Floats:
        return 3e8 + 40 * x[:, 0] * x[:, 1] ** 2 * x[:, 2] + 8100 * x[:, 2] ** 2

    model = PolynomialRegression(relative=True).fit(ARRAY, truth(ARRAY), ["batch", "edge", "width"])
    assert terms(model) == pytest.approx({"1": 3e8, "batch*edge^2*width": 40, "width^2": 8100}, rel=1e-6)
    assert model.degree_ == 4
    assert mape(model, truth(GRID)) < 1e-6


@pytest.mark.parametrize(
    ("powers", "coefficients"),
    [
        ([(0, 3, 0), (1, 0, 0)], (0.95, 1.13)),
        ([(2, 1, 0), (0, 2, 1)], (1.36, 0.98)),
        ([(0, 0, 3), (1, 0, 0)], (1.5, 1.5)),
    ],
)
def test_terms_that_only_help_together_are_found(
    powers: list[tuple[int, ...]], coefficients: tuple[float, ...]
) -> None:
    # Picking one by one goes wrong here: the first pick is a term that stands for both.
    x = ARRAY / ARRAY.max(axis=0)
    y = 1 + sum(
        (c * np.prod(x ** np.array(p), axis=1) for p, c in zip(powers, coefficients, strict=True)), np.zeros(16)
    )
    model = PolynomialRegression(max_degree=3).fit(x, y)
    assert {term.powers: term.coefficient for term in model.terms_} == pytest.approx(
        {(0, 0, 0): 1.0, **dict(zip(powers, coefficients, strict=True))}
    )


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_one_percent_stays_near_one_percent_off_the_array(seed: int) -> None:
    truth = 3e8 + 40 * GRID[:, 0] * GRID[:, 1] ** 2 * GRID[:, 2]
    noise = 1 + 0.01 * np.random.default_rng(seed).standard_normal(16)
    y = (3e8 + 40 * ARRAY[:, 0] * ARRAY[:, 1] ** 2 * ARRAY[:, 2]) * noise
    model = PolynomialRegression(relative=True).fit(ARRAY, y)
    assert len(model.terms_) <= 8
    assert mape(model, truth) < 0.03


def test_pure_noise_gets_few_terms() -> None:
    sizes = []
    for seed in range(8):
        y = 100 + np.random.default_rng(seed).standard_normal(16)
        sizes.append(len(PolynomialRegression().fit(ARRAY, y).terms_))
    assert np.mean(sizes) < 4


def test_relative_weights_serve_small_responses() -> None:
    x = np.geomspace(1, 1000, 25)
    y = 5 * x**1.5
    plain = PolynomialRegression(max_degree=2, max_terms=2).fit(x, y)
    relative = PolynomialRegression(max_degree=2, max_terms=2, relative=True).fit(x, y)

    def error(model: PolynomialRegression) -> float:
        return float(np.mean(np.abs(model.predict(x) / y - 1)))

    assert error(relative) < error(plain) / 2


def test_standard_errors_cover_the_truth() -> None:
    rng = np.random.default_rng(1)
    x = np.linspace(0, 10, 50)
    inside = 0
    for _ in range(200):
        model = PolynomialRegression(max_degree=1).fit(x, 2 + 3 * x + rng.standard_normal(50))
        low, high = model.coefficient_intervals(0.9)[[term.name for term in model.terms_].index("x0")]
        inside += low <= 3 <= high
    assert 165 <= inside <= 195


def test_intervals_cover_new_responses() -> None:
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 10, (60, 2))
    y = 5 + x[:, 0] * x[:, 1] + rng.standard_normal(60)
    new = rng.uniform(0, 10, (2000, 2))
    low, high = PolynomialRegression().fit(x, y).predict_interval(new, 0.9)
    response = 5 + new[:, 0] * new[:, 1] + rng.standard_normal(2000)
    assert 0.85 < float(np.mean((low <= response) & (response <= high))) < 0.95


def test_variance_is_that_of_least_squares() -> None:
    x = np.array([1.0, 2, 3, 4, 5, 6, 7, 8])
    y = 1 + 2 * x + np.array([0.1, -0.1, 0.1, -0.1, -0.1, 0.1, -0.1, 0.1])
    model = PolynomialRegression(max_degree=1).fit(x, y)
    columns = np.column_stack([np.ones(8), x])
    inverse = np.linalg.inv(columns.T @ columns)
    solution = inverse @ columns.T @ y
    variance = float(((y - columns @ solution) ** 2).sum()) / 6
    at = np.array([1.0, 12.0])
    assert model.predict_variance([12.0]) == pytest.approx([variance * at @ inverse @ at])
    assert {t.name: t.error for t in model.terms_} == pytest.approx(
        {"1": math.sqrt(variance * inverse[0, 0]), "x0": math.sqrt(variance * inverse[1, 1])}
    )


def test_repetitions_are_kept_out_together() -> None:
    # Twenty copies of four points: were a copy left in, any curve through four points would look perfect.
    x = np.repeat([1.0, 2.0, 3.0, 4.0], 20)
    rng = np.random.default_rng(0)
    model = PolynomialRegression().fit(x, np.repeat([1.0, 1.4, 0.7, 1.2], 20) + 1e-3 * rng.standard_normal(80))
    assert len(model.terms_) <= 2


def test_a_variable_of_two_values_has_no_square() -> None:
    x = np.array([[a, b] for a in (0.0, 1.0) for b in range(8)])
    model = PolynomialRegression().fit(x, 3 + 2 * x[:, 0] + x[:, 1] ** 2)
    assert terms(model) == pytest.approx({"1": 3, "x0": 2, "x1^2": 1})


def test_many_rows_are_read_in_blocks() -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 10, (20_000, 3))
    y = 1 + 2 * x[:, 0] * x[:, 1] - 0.5 * x[:, 2] ** 3 + rng.standard_normal(20_000)
    model = PolynomialRegression(max_degree=3).fit(x, y)
    assert terms(model)["x0*x1"] == pytest.approx(2, rel=1e-2)
    assert terms(model)["x2^3"] == pytest.approx(-0.5, rel=1e-2)
    assert model.sigma_ == pytest.approx(1, rel=0.05)
    assert len(model.terms_) <= 5


def test_constant_variables_and_responses() -> None:
    model = PolynomialRegression().fit(np.ones((10, 2)), np.full(10, 7.0))
    assert terms(model) == pytest.approx({"1": 7.0})
    assert model.predict([[1, 1], [5, 5]]) == pytest.approx([7, 7])
    assert model.outside([[1, 1], [5, 5]]).tolist() == [False, True]


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_very_few_rows_still_fit(rows: int) -> None:
    model = PolynomialRegression().fit(np.arange(rows, dtype=float), np.arange(rows) + 5.0)
    assert np.isfinite(model.predict([0.0])).all()
    low, high = model.predict_interval([0.0])
    assert low[0] <= model.predict([0.0])[0] <= high[0]


@pytest.mark.parametrize("relative", [False, True])
def test_json_keeps_everything(relative: bool) -> None:
    y = 3e8 + 8 * ARRAY[:, 0] * ARRAY[:, 1] ** 2 + np.random.default_rng(0).standard_normal(16) * 1e5
    model = PolynomialRegression(relative=relative).fit(ARRAY, y, ["batch", "edge", "width"])
    text = model.to_json()
    again = PolynomialRegression.from_json(text)
    assert again.to_json() == text
    assert (again.predict(GRID) == model.predict(GRID)).all()
    assert (again.predict_variance(GRID) == model.predict_variance(GRID)).all()
    assert again.get_params() == model.get_params()
    assert "batch*edge" in json.loads(text)["equation"]


def test_json_of_a_fit_without_freedom() -> None:
    model = PolynomialRegression().fit([1.0], [2.0])
    assert PolynomialRegression.from_json(model.to_json()).predict([1.0]) == pytest.approx([2.0])


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"kind": "polynomial", "version": 2}', "null", '{"kind": 3}'])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a polynomial"):
        PolynomialRegression.from_json(text)


def test_json_whose_parts_do_not_fit_is_refused() -> None:
    plain = json.loads(PolynomialRegression().fit(ARRAY, ARRAY[:, 0]).to_json())
    for change in ({"inverse": [[1.0]]}, {"terms": []}, {"variables": []}, {"settings": {"a": 1}}):
        with pytest.raises(ValueError, match="not a polynomial"):
            PolynomialRegression.from_json(json.dumps({**plain, **change}))


def test_settings_follow_the_conventions() -> None:
    model = PolynomialRegression(max_degree=2, relative=True)
    twin = PolynomialRegression(**model.get_params())
    assert twin.get_params() == model.get_params() == {"max_degree": 2, "max_terms": None, "relative": True, "seed": 0}
    assert twin.set_params(max_degree=1) is twin
    with pytest.raises(ValueError, match="no parameter"):
        twin.set_params(alpha=1)
    assert model.fit(ARRAY, ARRAY[:, 0]) is model
    assert model.score(ARRAY, ARRAY[:, 0]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("x", "y", "relative", "words"),
    [
        ([[1.0], [2.0]], [1.0], False, "rows"),
        ([], [], False, "no rows"),
        ([[math.nan]], [1.0], False, "finite"),
        ([[1.0]], [math.inf], False, "finite"),
        ([[1.0], [2.0]], [0.0, 1.0], True, "relative"),
        ([[[1.0]]], [1.0], False, "table"),
    ],
)
def test_bad_data_is_refused(x: list[object], y: list[float], relative: bool, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PolynomialRegression(relative=relative).fit(x, y)  # type: ignore[arg-type]


def test_predicting_before_fitting_or_with_other_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="fit"):
        PolynomialRegression().predict([1.0])
    with pytest.raises(ValueError, match="variables"):
        PolynomialRegression().fit(ARRAY, ARRAY[:, 0]).predict([[1.0]])


# Two-sided 95 % points of Student's t, from any table.
@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.7062), (2, 4.3027), (5, 2.5706), (10, 2.2281), (30, 2.0423), (1000, 1.9623)]
)
def test_quantiles_of_student(freedom: int, value: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(value, abs=1e-4)


def test_weights_say_which_rows_count() -> None:
    x = [[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]]
    y = [2.0, 4.0, 6.0, 8.0, 10.0, 600.0]
    doubted = PolynomialRegression(max_degree=1).fit(x, y, weights=[1, 1, 1, 1, 1, 1e-9])
    assert doubted.predict([[6.0]])[0] == pytest.approx(12.0, rel=1e-6)
    relative = PolynomialRegression(max_degree=1, relative=True).fit(x, y)
    weighted = PolynomialRegression(max_degree=1).fit(x, y, weights=[1 / value for value in y])
    assert weighted.predict(x) == pytest.approx(relative.predict(x))
    for weights in ([1.0], [1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, float("nan")]):
        with pytest.raises(ValueError, match="one positive number for each row"):
            PolynomialRegression().fit(x, y, weights=weights)
    with pytest.raises(ValueError, match="their own weights"):
        PolynomialRegression(relative=True).fit(x, y, weights=[1.0] * 6)
