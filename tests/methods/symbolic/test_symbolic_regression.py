"""Symbolic regression as a whole."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from oomcast.methods.equations.symbolic import Equation, SearchConfig, SymbolicRegression

pytest.importorskip("pyoperon")
pytest.importorskip("deap")

QUICK = {"population": 24, "generations": 6}
BATCHES = (1, 2, 4, 8, 16, 32, 64)


def _memory(seed: int, rows: int = 40, noise: float = 0.02) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.choice(BATCHES, rows), rng.choice(np.arange(16, 129, 16), rows)]).astype(float)
    y = 3000 * x[:, 0] * x[:, 1] ** 3 + 9000 * x[:, 1] ** 3 + 4.8e8
    return x, y * (1 + noise * rng.standard_normal(rows))


def _forms(equation: Equation) -> set[tuple[tuple[str, int], ...]]:
    assert equation.terms is not None
    return {tuple(sorted(powers.items())) for _, powers in equation.terms}


WANTED = {(("batch", 1), ("edge", 3)), (("edge", 3),), ()}


def test_the_form_is_found_in_noise_in_most_seeds() -> None:
    found = 0
    for seed in range(5):
        model = SymbolicRegression(seed=seed, **QUICK).fit(*_memory(seed), names=["batch", "edge"])
        found += _forms(model.equation_) == WANTED
    assert found >= 4


@pytest.mark.parametrize(
    "terms", [{(1, 1): 3.5}, {(2, 0): 12.0, (0, 0): 500.0}, {(1, 2): 0.5, (0, 1): 40.0, (0, 0): 900.0}]
)
def test_exact_samples_give_the_exact_equation(terms: dict[tuple[int, int], float]) -> None:
    rng = np.random.default_rng(5)
    x = rng.integers(1, 40, (30, 2)).astype(float)
    y = sum(factor * x[:, 0] ** a * x[:, 1] ** b for (a, b), factor in terms.items())
    model = SymbolicRegression(**QUICK).fit(x, y, names=["u", "v"])
    assert {(p.get("u", 0), p.get("v", 0)): n for n, p in model.equation_.terms or ()} == pytest.approx(terms, rel=1e-6)
    assert model.cv_error_ < 1e-6


@pytest.mark.parametrize("engine", ["operon", "deap"])
def test_the_same_seed_gives_the_same_equation(engine: str) -> None:
    x, y = _memory(1)
    first, second = (SymbolicRegression(engine, seed=2, **QUICK).fit(x, y) for _ in range(2))
    assert first.equation_ == second.equation_
    assert first.front_ == second.front_
    assert (first.residuals_ == second.residuals_).all()


@pytest.mark.parametrize("engine", ["operon", "deap"])
def test_the_front_falls_in_error_as_it_grows_in_size(engine: str) -> None:
    x, y = _memory(2)
    model = SymbolicRegression(engine, **QUICK).fit(x, y, names=["batch", "edge"])
    sizes, errors = [one.size for one in model.front_], [one.error for one in model.front_]
    assert sizes == sorted(set(sizes))
    assert errors == sorted(set(errors), reverse=True)
    for one in model.front_:
        assert one.error == pytest.approx(one.mape(x, y))
        assert one.names == model.names_ == ("batch", "edge")
    assert model.equation_.error == pytest.approx(np.abs(model.predict(x) / y - 1).mean())


def test_without_subtraction_constants_are_positive_with_it_they_need_not_be() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 10, (40, 1))
    y = 3 * x[:, 0] ** 2 - 2 * x[:, 0] + 1
    with_it = SymbolicRegression(primitives=("add", "multiply", "square", "subtract"), **QUICK).fit(x, y)
    assert sorted(n for n, _ in with_it.equation_.terms or ()) == pytest.approx([-2, 1, 3], rel=1e-4)
    without = SymbolicRegression(**QUICK).fit(x, y)
    assert min(n for n, _ in without.equation_.terms or ()) > 0
    assert without.equation_.error > with_it.equation_.error


def test_residuals_are_of_rows_kept_out_and_equal_rows_are_kept_out_together() -> None:
    x, y = _memory(3, rows=24)
    model = SymbolicRegression(**QUICK).fit(np.vstack([x, x]), np.concatenate([y, y]))
    assert np.allclose(model.residuals_[:24], model.residuals_[24:])
    assert model.cv_error_ == pytest.approx(np.abs(model.residuals_).mean())
    assert model.cv_error_ >= model.equation_.error
    assert model.rows_ == 48


def test_a_point_outside_is_told() -> None:
    x, y = _memory(4)
    model = SymbolicRegression(**QUICK).fit(x, y)
    assert model.outside([[2, 32], [65, 32], [2, 8]]).tolist() == [False, True, True]
    assert model.low_.tolist() == [1, 16]


def test_max_size_bounds_the_equations() -> None:
    x, y = _memory(4)
    model = SymbolicRegression(max_size=9, **QUICK).fit(x, y)
    assert max(one.size for one in model.front_) <= 9


def test_settings_follow_scikit_learn() -> None:
    model = SymbolicRegression(seed=3)
    assert SymbolicRegression(**model.get_params()).get_params() == model.get_params()
    assert model.set_params(population=7).population == 7
    with pytest.raises(ValueError, match="no parameter 'depth'"):
        model.set_params(depth=3)
    config = SearchConfig("deap", population=30, generations=4, seed=5)
    assert SymbolicRegression("operon", config=config).search == config
    x, y = _memory(5)
    by_config = SymbolicRegression(config=config).fit(x, y)
    assert by_config.equation_ == SymbolicRegression("deap", 30, 4, seed=5).fit(x, y).equation_


X, Y = _memory(0, rows=20)


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (X[:5], Y[:5], "at least 8 are needed"),
        (np.repeat(X[:4], 5, axis=0), Y, "4 different samples are too few"),
        (np.zeros((0, 2)), np.zeros(0), "too few"),
        (np.column_stack([X[:, 0], np.full(20, 7.0)]), Y, "x1 has the same value in every sample"),
        (np.where(X[0, 0] == X, math.nan, X), Y, "a value of x0 is not a finite number"),
        (X, np.where(Y[3] == Y, math.inf, Y), "a response is not a finite number"),
        (X, np.where(Y[3] == Y, 0.0, Y), "every response must be greater than 0; one is 0"),
        (X, -Y, "every response must be greater than 0"),
        (X, Y[:-1], "20 rows of variables for a response of shape"),
        (X, [["a"]] * 20, "must be numbers"),
        (X[:, :, None], Y, "names|table"),
    ],
)
def test_bad_samples_are_refused_with_what_is_needed(x, y, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SymbolicRegression(**QUICK).fit(x, y)


def test_other_bad_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="3 names for 2 variables"):
        SymbolicRegression(**QUICK).fit(X, Y, names=["a", "b", "c"])
    with pytest.raises(ValueError, match="name of its own"):
        SymbolicRegression(**QUICK).fit(X, Y, names=["a", "a"])
    with pytest.raises(ValueError, match="fit the regression first"):
        SymbolicRegression().predict(X)
    with pytest.raises(ValueError, match="operon, deap"):
        SymbolicRegression("pysr").fit(X, Y)
    model = SymbolicRegression(**QUICK).fit(X, Y, names=["batch", "edge"])
    with pytest.raises(ValueError, match="1 variables were given where 2 are needed: batch, edge"):
        model.predict(X[:, :1])


def test_a_missing_package_is_named_with_its_extra() -> None:
    code = (
        "import sys; sys.modules['pyoperon'] = None\n"
        "from oomcast.methods.equations.symbolic import SymbolicRegression\n"
        "import numpy as np\n"
        "x = np.arange(1, 13.0)[:, None]\n"
        "try: SymbolicRegression().fit(x, x[:, 0])\n"
        "except ImportError as error: print(type(error).__name__, error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "MissingPackage pyoperon is not installed: pip install 'oomcast[equations]'"


def test_importing_loads_no_optional_package() -> None:
    code = (
        "import sys, oomcast.methods.equations.baselines\n"
        "from oomcast.methods.equations.symbolic import SymbolicRegression\n"
        "print(sorted({'scipy', 'pyoperon', 'deap', 'sklearn', 'xgboost', 'torch'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
