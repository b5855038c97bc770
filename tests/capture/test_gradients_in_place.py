"""Where autograd's C++ code works in place on tensors of its own, and where it must not.

`capture/torch/gradients.py` tells the two apart by reference counts and by the names of frames: one more local variable
on the way there, or a frame of another name, and every sum of gradients costs a tensor more. These tests notice that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import oomcast
from oomcast.trace import Phase

ROWS, COLUMNS = 64, 1000


def made_in_backward(job: Callable[[torch.Tensor], Any]) -> Counter[str]:
    """How often each operator made a tensor as large as the input while the job's backward ran."""
    with oomcast.virtual_gpu("a100-40gb") as gpu:
        x = torch.randn(ROWS, COLUMNS, device="cuda", requires_grad=True)
        job(x)
        trace = gpu.trace()
    large = [made for made in trace.allocations if made.phase is Phase.BACKWARD and made.nbytes == ROWS * COLUMNS * 4]
    return Counter(made.operator for made in large)


def test_the_engine_sums_gradients_into_the_first() -> None:
    def three_uses(x: torch.Tensor) -> None:
        y = x.sin()
        (y.exp() + y.cos() + y.tanh()).sum().backward()

    assert made_in_backward(three_uses)["aten.add.Tensor"] == 0


def test_as_many_times_as_there_are_uses() -> None:
    """A count that is off by one would show in the second sum, if not in the first."""

    def many_uses(x: torch.Tensor) -> None:
        y = x.sin()
        sum(y * factor for factor in range(2, 8)).sum().backward()

    assert made_in_backward(many_uses)["aten.add.Tensor"] == 0


class _Keeps(torch.autograd.Function):
    """The identity, which keeps the gradient that it hands on."""

    held: list[torch.Tensor]

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        handed_on = gradient.exp()
        _Keeps.held.append(handed_on)
        return handed_on


@pytest.mark.parametrize(("keeps", "sums"), [(True, 1), (False, 0)])
def test_a_gradient_that_python_code_holds_is_not_overwritten(keeps: bool, sums: int) -> None:
    _Keeps.held = []

    def kept(x: torch.Tensor) -> None:
        y = x.sin()
        later = y.cos()
        # Made last, so that its gradient of `y` comes first: the engine wants to add the other path's to it.
        first = _Keeps.apply(y) if keeps else y.exp()
        (first + later).sum().backward()

    assert made_in_backward(kept)["aten.add.Tensor"] == sums
    assert len(_Keeps.held) == keeps


@pytest.mark.xfail(strict=True, reason="gradients.py does not see that two paths of the engine hold one tensor")
def test_a_gradient_that_two_paths_share_is_not_overwritten() -> None:
    """`left + right` hands one gradient to both: a sum written into it for one would change the other's."""

    def shared(x: torch.Tensor) -> None:
        left, right = x.sin(), x.cos()
        later = left.tanh() + right.tanh()
        ((left + right).exp() + later).sum().backward()

    # The first of the two sums needs a tensor of its own; for the second nobody else holds the shared one any more.
    assert made_in_backward(shared)["aten.add.Tensor"] == 1


@pytest.mark.parametrize(
    ("reduce", "copies"),
    [
        (lambda x: x.max(dim=1).values, {"aten.scatter.src": 0, "aten.scatter.value": 0}),
        (lambda x: x.gather(1, torch.zeros(ROWS, 1, dtype=torch.int64, device="cuda")), {"aten.scatter_add": 0}),
        (lambda x: x.index_select(0, torch.zeros(3, dtype=torch.int64, device="cuda")), {"aten.index_add": 0}),
        (lambda x: x[torch.zeros(3, dtype=torch.int64, device="cuda")], {"aten.index_put": 0}),
    ],
    ids=["max", "gather", "index_select", "index"],
)
def test_formulas_scatter_into_the_zeros_that_they_made(reduce: Callable[..., Any], copies: dict[str, int]) -> None:
    made = made_in_backward(lambda x: reduce(x.sin()).sum().backward())

    assert {name: made[name] for name in copies} == copies
    assert sum(made[name] for name in made if "zeros" in name or "new_zeros" in name) == 1


class _Adds(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.exp() + gradient.cos()


def test_an_addition_in_python_code_makes_a_tensor_in_backward_too() -> None:
    assert made_in_backward(lambda x: _Adds.apply(x.sin()).sum().backward())["aten.add.Tensor"] == 1


def test_so_does_one_in_a_hook() -> None:
    def hooked(x: torch.Tensor) -> None:
        y = x.sin()
        y.register_hook(lambda gradient: gradient.exp() + gradient.cos())
        y.exp().sum().backward()

    assert made_in_backward(hooked)["aten.add.Tensor"] == 1


def test_what_a_checkpoint_runs_again_is_not_the_engines() -> None:
    class Residual(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.sin() + x.cos()).exp()

    def checkpointed(x: torch.Tensor) -> None:
        torch.utils.checkpoint.checkpoint(Residual(), x.exp(), use_reentrant=False).exp().sum().backward()

    assert made_in_backward(checkpointed)["aten.add.Tensor"] == 1


def test_with_a_graph_of_the_gradients_nothing_is_overwritten() -> None:
    def twice(x: torch.Tensor) -> None:
        y = x.sin()
        torch.autograd.grad((y.exp() + y.cos()).sum(), x, create_graph=True)

    assert made_in_backward(twice)["aten.add.Tensor"] == 1
