"""The regressions that an equation is compared with."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from oomcast.methods.equations import baselines
from oomcast.methods.equations.baselines import BASELINES, baseline

for package in ("sklearn", "xgboost", "torch"):
    pytest.importorskip(package)


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "_TREES", 30)


def _samples() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).uniform(1, 10, (40, 2))
    return x, 100 + 5 * x[:, 0] + 30 * x[:, 1]


@pytest.mark.parametrize("name", BASELINES)
def test_each_learns_and_equal_seeds_agree(name: str) -> None:
    x, y = _samples()
    first, second = (baseline(name, seed=1).fit(x, y).predict(x) for _ in range(2))
    assert first.shape == y.shape
    assert first.dtype == np.float64
    assert (first == second).all()
    assert np.abs(first / y - 1).mean() < np.abs(y.mean() / y - 1).mean()


@pytest.mark.parametrize("name", ["random forest", "extra trees", "network"])
def test_another_seed_gives_another_model(name: str) -> None:
    x, y = _samples()
    others = x + 0.3
    assert (baseline(name, 1).fit(x, y).predict(others) != baseline(name, 2).fit(x, y).predict(others)).any()


def test_the_network_leaves_torch_s_randomness_alone() -> None:
    import torch

    x, y = _samples()
    torch.manual_seed(4)
    wanted = torch.rand(3)
    torch.manual_seed(4)
    baseline("network").fit(x, y)
    assert (torch.rand(3) == wanted).all()


def test_linear_is_exact_on_linear_samples() -> None:
    x, y = _samples()
    assert np.allclose(baseline("linear").fit(x, y).predict(x), y)


@pytest.mark.parametrize("name", ["xgboost", "network", "linear"])
def test_bad_tables_are_refused(name: str) -> None:
    x, y = _samples()
    with pytest.raises(ValueError, match="fit the regression first"):
        baseline(name).predict(x)
    fitted = baseline(name).fit(x, y)
    with pytest.raises(ValueError, match="2 columns"):
        fitted.predict(x[:, :1])
    with pytest.raises(ValueError, match="one response for each row"):
        baseline(name).fit(x, y[:-1])
    with pytest.raises(ValueError, match="finite"):
        baseline(name).fit(x, np.where(y == y[0], np.nan, y))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no baseline is called 'svm'; there are xgboost, random forest"):
        baseline("svm")


def test_a_missing_package_is_named_with_its_extra() -> None:
    code = (
        "import sys; sys.modules['xgboost'] = None\n"
        "from oomcast.methods.equations.baselines import baseline\n"
        "try: baseline('xgboost').fit([[1.0], [2.0]], [1.0, 2.0])\n"
        "except ImportError as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "xgboost is not installed: pip install 'oomcast[baselines]'"
