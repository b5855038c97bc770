"""Steps that are written down instead of being run: the same Trace as that of all steps."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from trace_contents import contents

from oomcast.capture.torch import run
from oomcast.spec import Place, Spec, Workload
from oomcast.trace import Trace, TraceBuilder

REPEAT = TraceBuilder.repeat_since


def traces(monkeypatch: pytest.MonkeyPatch, job: Any, device: str = "rtx-4090", **options: Any) -> tuple[Trace, Trace]:
    """As oomcast captures it, which must repeat steps, and with all of them run."""
    spec = Spec(Workload.create(job, batch_size=2, **options), Place(device))
    captured = []
    for repeat in (REPEAT, lambda builder, moment, times: False):
        said: list[bool] = []

        def noted(*arguments: Any, repeat: Any = repeat, said: list[bool] = said) -> bool:
            said.append(repeat(*arguments))
            return said[-1]

        monkeypatch.setattr(TraceBuilder, "repeat_since", noted)
        torch.manual_seed(0)
        gc.disable()  # tensors in cycles are free when Python's collector comes by, which nothing of the job decides
        try:
            captured.append(run.capture_here(spec))
        finally:
            gc.enable()
        assert any(said) == (repeat is REPEAT)
    return captured[0], captured[1]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.body(x).mean((2, 3)))
        return y


def job(model: type[nn.Module] = Net) -> SimpleNamespace:
    def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(size, 3, 16, 16), torch.zeros(size, dtype=torch.long)

    return SimpleNamespace(model=model, batch=batch)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"steps": 6},
        {"accumulation": 2, "precision": "amp-fp16"},
        {"zero_grad": "before-backward", "optimizer": "sgd"},
        {"zero_grad": "after-step", "optimizer": "adafactor"},
        {"set_to_none": False, "checkpointing": ("body",)},
        {"optimizer_in_backward": True, "optimizer": "adamw-8bit"},
        {"device": "2xrtx-4090", "parallel": "fsdp2"},
    ],
    ids=lambda options: " ".join(map(str, options.values())) or "defaults",
)
def test_steps_that_find_what_the_last_one_found_are_written_down(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated, whole = traces(monkeypatch, job(), **options)
    assert contents(repeated) == contents(whole)
    assert {mark.step for mark in repeated.marks} == set(range(-1, options.get("steps", 3)))


class Keeping(Net):
    """Holds the outputs of its last steps, more each time."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.append(super().forward(x).detach())
        return super().forward(x)


class Reading(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y * 2 if y.sum() > 0 else y


class Compiling(Net):
    def __init__(self) -> None:
        super().__init__()
        self.head.compile()


@pytest.mark.parametrize(
    ("other", "options"),
    [
        (job(Keeping), {}),
        (job(Reading), {}),
        (job(Compiling), {}),
        (job(), {"empty_cache_steps": 2}),
        (SimpleNamespace(**vars(job()), batches=lambda size: iter([job().batch(size), job().batch(size + 1)])), {}),
    ],
    ids=["keeps more", "reads values", "compiles", "empties the cache", "batches differ"],
)
def test_steps_that_may_differ_are_run(other: Any, options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[bool] = []

    def noted(*arguments: Any) -> bool:
        said.append(REPEAT(*arguments))
        return said[-1]

    monkeypatch.setattr(TraceBuilder, "repeat_since", noted)
    trace = run.capture_here(Spec(Workload.create(other, batch_size=2, **options), Place("rtx-4090")))
    assert not any(said)
    assert {mark.step for mark in trace.marks} == {-1, 0, 1, 2}
