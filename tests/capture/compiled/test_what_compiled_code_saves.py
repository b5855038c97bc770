"""What AOTAutograd keeps between a compiled forward and its backward, as the job's settings have it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._functorch import config as functorch_config

import oomcast
from oomcast.trace import EventKind, Phase, Trace, verify

pytestmark = pytest.mark.filterwarnings("ignore")
ROWS, WIDTH, DEPTH = 512, 64, 4
ONE = ROWS * WIDTH * 4
"""Bytes of what a layer returns: more than its weights."""


@torch.library.custom_op("oomcast_tests::squared_and_more", mutates_args=())
def squared_and_more(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x * x, x])


@squared_and_more.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty((2 * x.shape[0], *x.shape[1:]))


def _gradient(context: Any, gradient: torch.Tensor) -> torch.Tensor:
    return gradient[: len(gradient) // 2] * 2


squared_and_more.register_autograd(_gradient)


def _trained(region: Any = lambda net: net) -> Trace:
    with oomcast.virtual_gpu("a100-40gb") as gpu:
        layers = [layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH, bias=False), nn.GELU())]
        net = nn.Sequential(*layers).cuda()
        torch.compile(region(net))(torch.randn(ROWS, WIDTH, device="cuda")).sum().backward()
        trace = gpu.trace()
    verify(trace)
    assert not [sentence for sentence in trace.assumptions if "eager" in sentence or "breaks" in sentence]
    return trace


def _kept(trace: Trace) -> int:
    """How many results of layers are there when backward begins."""
    begins = next(mark.position for mark in trace.marks if mark.phase is Phase.BACKWARD)
    freed = {index for kind, index in trace.events[:begins] if kind is EventKind.FREE}
    made = [index for kind, index in trace.events[:begins] if kind is EventKind.ALLOCATE and index not in freed]
    kept = [trace.allocations[index] for index in made]
    return [block.nbytes for block in kept if block.phase is Phase.FORWARD].count(ONE)


def test_that_a_forward_is_traced_with_its_backward_is_no_phase_of_the_job() -> None:
    trace = _trained(lambda net: lambda x: net(x).sin())
    phases = [mark.phase for mark in trace.marks if mark.phase is not Phase.COMPILING]
    assert [phase for n, phase in enumerate(phases) if phases[n - 1 : n] != [phase]] == [
        Phase.BUILD, Phase.FORWARD, Phase.BACKWARD,
    ]  # fmt: skip


def test_a_memory_budget_decides_what_is_computed_again() -> None:
    kept = {}
    for budget in (1.0, 0.5, 0.0):
        with functorch_config.patch(activation_memory_budget=budget):
            kept[budget] = _kept(_trained())
    assert kept[1.0] > kept[0.5] > kept[0.0]
    assert kept[0.0] <= 1  # what the region returns


def test_backward_writes_into_what_forward_saved_for_it_alone() -> None:
    """The gradient before an activation takes the place of what the activation was computed from."""
    made = {}
    for donated in (False, True):
        with functorch_config.patch(donated_buffer=donated):
            trace = _trained()
        made[donated] = [a.nbytes for a in trace.allocations if a.phase is Phase.BACKWARD].count(ONE)
    assert made[True] < made[False]


def test_a_custom_operator_is_called_within_the_compiled_code() -> None:
    trace = _trained(lambda net: lambda x: squared_and_more(net(x).sin()).cos())
    custom = [a for a in trace.allocations if a.operator.startswith("oomcast_tests")]
    assert [a.nbytes for a in custom] == [2 * ONE]
    assert any(a.operator.startswith("triton_") for a in trace.allocations)
