"""Names of 0.1.0 tell their new home; everything else is refused as always."""

from __future__ import annotations

import importlib
import inspect
import sys

import pytest

import oomcast
from oomcast import moved


@pytest.mark.parametrize(
    ("statement", "home"),
    [
        ("from oomcast.estimate import Target", "oomcast.estimation"),
        ("import oomcast.estimate", "oomcast.estimation"),
        ("from oomcast.workload import Workload", "oomcast.spec"),
        ("from oomcast.design import make_plan", "oomcast.methods.tbem"),
        ("import oomcast.measure.engines", "oomcast.methods.measure"),
        ("from oomcast.learn.symbolic import SearchConfig", "oomcast.methods.equations.symbolic"),
        ("from oomcast.dataset import build_dataset", "oomcast.methods.gpumemnet.dataset"),
        ("from oomcast.accuracy import judge", "python -m lab accuracy"),
        ("import oomcast.estimate.learned", "oomcast.methods.gpumemnet"),
        ("import oomcast.estimate.real_run_worker", "oomcast.estimation"),
        ("from oomcast.capture.jax.check import main", "lab.checks"),
        ("import oomcast.capture.torch.server", "oomcast.capture.worker"),
        ("import oomcast.simulate.cudnn.distill", "lab.cudnn.distill"),
        ("from oomcast.zoo.lstm import LSTM", "oomcast.zoo.mlp_and_lstm"),
    ],
)
def test_an_old_import_tells_the_new_one(statement: str, home: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="has moved") as told:
        exec(statement, {})
    assert home in str(told.value)


@pytest.mark.parametrize("room", [room for room in moved.NEW_HOMES if room not in ("estimate", "accuracy")])
def test_every_room_that_is_named_is_there(room: str) -> None:
    named = [word.rstrip(",.:") for word in moved.NEW_HOMES[room].split() if word.startswith(("oomcast.", "lab."))]
    assert named
    for name in named:
        importlib.import_module(name)


def test_reports_of_methods_tell_it() -> None:
    for name, home in moved.REPORTS_OF_METHODS.items():
        with pytest.raises(ImportError, match=f"{name} has moved: it is in {home}"):
            exec(f"from oomcast.report import {name}", {})
        assert hasattr(importlib.import_module(home), name)
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from oomcast.report import nothing", {})


def test_attributes_tell_it_too() -> None:
    with pytest.raises(AttributeError, match=r"oomcast\.spec"):
        oomcast.workload  # noqa: B018
    assert inspect.isfunction(oomcast.estimate)


def test_other_names_are_missing_as_always() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'oomcast\.nothing'"):
        importlib.import_module("oomcast.nothing")
    with pytest.raises(ModuleNotFoundError, match="No module named 'workload'"):
        importlib.import_module("workload")


def test_it_is_asked_last_and_once() -> None:
    moved.install()
    own = [number for number, finder in enumerate(sys.meta_path) if "MovedModules" in repr(finder)]
    assert len(own) == 1
    assert not any(number > own[0] for number, finder in enumerate(sys.meta_path) if "PathFinder" in repr(finder))
