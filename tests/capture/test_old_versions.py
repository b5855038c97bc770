"""A framework that is older than what is promised: it is told, in the answer and where the job fails."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import oomcast
from oomcast.capture.frameworks import older_than_promised
from oomcast.capture.hooks import ROOMS, hooks_of
from oomcast.errors import JobFailed

tomllib = pytest.importorskip("tomllib")


class Job:
    @staticmethod
    def model() -> Any:
        return torch.nn.Linear(8, 8)

    @staticmethod
    def batch(batch_size: int) -> Any:
        return torch.zeros(batch_size, 8), torch.zeros(batch_size, dtype=torch.long)


class Failing(Job):
    @staticmethod
    def batch(batch_size: int) -> Any:
        raise ValueError("an operator of tomorrow")


def estimate(job: Any) -> oomcast.Estimate:
    return oomcast.estimate(job, batch_size=2, device="t4", use_calibration=False)


def test_the_versions_are_those_of_the_extras() -> None:
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for framework in ROOMS:
        asked = dict(part.split(">=") for part in extras.get(framework, ()) if re.fullmatch(r"[a-z]+>=[0-9.]+", part))
        asked.pop("numpy", None)  # of any version that these take
        assert hooks_of(framework).least == asked


def test_an_older_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "torch 2.8.0+cu126 is installed, and oomcast promises 2.9 and newer"
    assert not any("promises" in sentence for sentence in estimate(Job).assumptions)
    monkeypatch.setattr(torch, "__version__", "2.8.0+cu126")
    assert any(told in sentence for sentence in estimate(Job).assumptions)
    with pytest.raises(
        JobFailed, match=r"an operator of tomorrow; torch 2\.8\.0\+cu126 is installed.*which may be why"
    ):
        estimate(Failing)


@pytest.mark.parametrize(
    ("version", "is_old"),
    [("2.4.1", True), ("2.8.9", True), ("2.9.0", False), ("2.10.0+cpu", False), ("3.0.0a1", False)],
)
def test_versions_are_compared_by_their_numbers(monkeypatch: pytest.MonkeyPatch, version: str, is_old: bool) -> None:
    monkeypatch.setattr(torch, "__version__", version)

    assert (older_than_promised("torch", {"torch": "2.9"}) is not None) == is_old
