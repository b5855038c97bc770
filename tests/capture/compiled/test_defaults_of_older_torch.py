"""Compiled code as the torch that is followed would make it: the defaults of its AOTAutograd and Inductor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config

import oomcast
from oomcast.capture.torch.compiled import defaults
from oomcast.trace import Trace

pytestmark = pytest.mark.filterwarnings("ignore")
DEVICE = "a100-40gb"
ROWS, WIDTH = 64, 256
INSTALLED_HERE = "torch-2.13-cu130"
SETTINGS = [change for change in defaults.CHANGES if change.name in change.config._config]
"""Those that the installed torch has."""


def _seen_while_compiling(environment: str, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Trace]:
    """The settings that Inductor finds when it lowers a graph."""
    from oomcast.capture.torch.compiled import backend

    found: list[dict[str, Any]] = []
    lower = backend.inductor_code

    def watched(*args: Any, **options: Any) -> Any:
        found.append({change.name: getattr(change.config, change.name) for change in SETTINGS})
        return lower(*args, **options)

    monkeypatch.setattr(backend, "inductor_code", watched)
    with oomcast.virtual_gpu(DEVICE, environment) as gpu:
        net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)).cuda()
        torch.compile(net)(torch.randn(ROWS, WIDTH, device="cuda")).square().mean().backward()
        trace = gpu.trace()
    assert len(found) == 2  # forward and backward
    assert found[0] == found[1]
    assert not [sentence for sentence in trace.assumptions if "eager" in sentence]
    return found[0], trace


def test_each_default_is_that_of_the_version_that_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {
        environment: _seen_while_compiling(environment, monkeypatch)[0]
        for environment in ("torch-2.4-cu121", "torch-2.8-cu128", INSTALLED_HERE)
    }
    assert not any(seen["torch-2.4-cu121"].values())
    assert all(seen[INSTALLED_HERE].values())
    in_2_8 = {name for name, value in seen["torch-2.8-cu128"].items() if value}
    assert {"donated_buffer", "reorder_for_peak_memory", "online_softmax"} <= in_2_8
    assert not {"loop_ordering_after_fusion", "guess_tangent_strides_as_outputs"} & in_2_8


def test_the_answer_says_that_the_version_mattered(monkeypatch: pytest.MonkeyPatch) -> None:
    _, trace = _seen_while_compiling("torch-2.4-cu121", monkeypatch)
    assert any("the order of compiled kernels" in sentence for sentence in trace.assumptions)
    _, trace = _seen_while_compiling(INSTALLED_HERE, monkeypatch)
    assert not any("compiled kernels" in sentence for sentence in trace.assumptions)


def test_what_the_job_sets_itself_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    was = inductor_config.online_softmax
    with inductor_config.patch(online_softmax=not was):
        seen, _ = _seen_while_compiling(INSTALLED_HERE, monkeypatch)
    assert seen["online_softmax"] is not was
    with functorch_config.patch(donated_buffer=False):
        seen, _ = _seen_while_compiling(INSTALLED_HERE, monkeypatch)
    assert seen["donated_buffer"] is False


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even that a setting was chosen: the next graph would take it for the job's choice."""

    def settings() -> list[tuple[Any, bool]]:
        return [(getattr(one.config, one.name), one.config._is_default(one.name)) for one in SETTINGS]

    before = settings()
    _seen_while_compiling("torch-2.4-cu121", monkeypatch)
    assert settings() == before


def _peak_of_a_narrow_wide_narrow_step(environment: str) -> int:
    """Of bytes above the inputs: a product dies, a wide one comes and goes, and one of the first's size comes."""

    def step(x: torch.Tensor, square: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
        first = (x @ square).relu().sum(1, keepdim=True)
        widest = (first * x @ wide).relu().sum(1, keepdim=True)
        return (widest * x) @ square

    with oomcast.virtual_gpu(DEVICE, environment) as gpu, torch.no_grad():
        machine: Any = gpu
        inputs = [torch.randn(WIDTH, width, device="cuda") for width in (WIDTH, WIDTH, 8 * WIDTH)]
        compiled = torch.compile(step)
        compiled(*inputs)  # kernels are timed at their first launch
        before = machine.ledger.held
        with machine.ledger.highest_within() as highest:
            compiled(*inputs)
        assert not [sentence for sentence in machine.trace().assumptions if "eager" in sentence]
        return int(highest[0]) - before


def test_dead_buffers_are_kept_for_new_ones_whatever_lies_between_until_2_9() -> None:
    """pytorch/pytorch#159530. Both versions have the same settings, so plans kept on disk must know the rule."""
    square, sums = WIDTH * WIDTH * 4, WIDTH * 4  # both have died when the wide product is made
    before, since = map(_peak_of_a_narrow_wide_narrow_step, ("torch-2.8", "torch-2.9"))
    assert before == since + square + sums
    assert _peak_of_a_narrow_wide_narrow_step("torch-2.8") == before


def test_the_host_itself_is_compiled_for_as_the_installed_torch_does_it() -> None:
    """It is compared with a real run here, with the GPU's personality taken away: no other torch is followed."""
    with oomcast.virtual_gpu(DEVICE, "torch-2.4-cu121") as gpu:
        machine: Any = gpu
        machine.personality.remove()
        machine.compiled.gpu = None
        net = nn.Linear(WIDTH, WIDTH).cuda()
        torch.compile(net)(torch.randn(ROWS, WIDTH, device="cuda")).sum().backward()
        told = gpu.trace().assumptions
    assert not [sentence for sentence in told if "eager" in sentence]
