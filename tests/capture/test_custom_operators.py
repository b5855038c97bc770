"""Operators that are not torch's own: they run by their fake kernels, and it is said that their buffers are unknown."""

from __future__ import annotations

import torch

import oomcast


@torch.library.custom_op("oomcast_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


twice.register_autograd(lambda ctx, gradient: gradient * 2)


def test_a_custom_operator_is_counted() -> None:
    with oomcast.virtual_gpu("a100-40gb") as gpu:
        x = torch.randn(1000, 1000, device="cuda", requires_grad=True)
        twice(twice(x)).sum().backward()
        trace = gpu.trace()

    assert trace.unsupported == {"custom operator oomcast_tests.twice: only its outputs are counted": 2}
    assert [made.nbytes for made in trace.allocations if "twice" in made.operator] == [4_000_000, 4_000_000]


def test_on_the_host_it_is_nobodys_memory() -> None:
    with oomcast.virtual_gpu("a100-40gb") as gpu:
        assert twice(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
        assert gpu.trace().unsupported == {}
