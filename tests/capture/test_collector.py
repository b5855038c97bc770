"""Python's collector of cycles: a record does not depend on when it runs, and it is spared what stays loaded."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
import torch
from torch import nn

from oomcast.capture.collector import collector_rests
from oomcast.capture.torch.run import capture_here
from oomcast.spec import Spec
from oomcast.trace import Event, EventKind


class _Cycle(nn.Module):
    """A model that only the collector can free, as most are whose forward was replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.forward = self.replaced  # type: ignore[method-assign]

    def replaced(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class _Batch:
    """The last of the job to go. The collector comes by just then, if it may."""

    comes_by = True

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def to(self, device: torch.device) -> _Batch:
        return _Batch(self.x.to(device))

    def __del__(self) -> None:
        if _Batch.comes_by and gc.isenabled():
            gc.collect()


class _Job:
    model = _Cycle

    @staticmethod
    def batch(batch_size: int) -> _Batch:
        return _Batch(torch.randn(batch_size, 64))

    @staticmethod
    def loss(model: nn.Module, batch: _Batch) -> torch.Tensor:
        return model(batch.x).sum()


@pytest.mark.parametrize("phase", ["training", "eval"])
def test_a_record_is_the_same_whenever_the_collector_runs(phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def events() -> tuple[Event, ...]:
        return capture_here(Spec.read(_Job, device="a100-40gb", batch_size=2, steps=1, phase=phase)).events

    with_collector = events()
    monkeypatch.setattr(_Batch, "comes_by", False)
    assert with_collector == events()
    made = [event.index for event in with_collector if event.kind is EventKind.ALLOCATE]
    freed = {event.index for event in with_collector if event.kind is EventKind.FREE}
    assert not freed & set(made[:2]), "its parameters are held to the end"
    assert gc.isenabled()


def test_it_is_as_it_was_after_a_rest() -> None:
    for switch in (gc.disable, gc.enable):
        switch()
        before = gc.isenabled()
        with collector_rests():
            assert not gc.isenabled()
        assert gc.isenabled() is before


def test_a_jobs_process_collects_but_not_what_its_server_loaded(tmp_path: object) -> None:
    job = f"{tmp_path}/job.py"
    with open(job, "w") as file:
        file.write(
            "import gc\n"
            "from torch import nn, randn\n"
            "def model():\n"
            "    assert gc.isenabled() and gc.get_freeze_count() > 100_000, 'frozen'\n"
            "    return nn.Linear(4, 4)\n"
            "def batch(batch_size):\n"
            "    return randn(batch_size, 4)\n"
        )
    command = [sys.executable, "-m", "oomcast", "estimate", job, "--batch-size", "2", "--device", "a100-40gb"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
