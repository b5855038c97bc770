"""Compiled networks of convolutions: cuDNN keeps the channels-last layout that Inductor chooses for them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

import oomcast
from oomcast.trace import verify

pytestmark = pytest.mark.filterwarnings("ignore")
BATCH, CHANNELS, SIDE = 4, 128, 16
CHANNELS_LAST = f"{CHANNELS * SIDE * SIDE}, 1, {CHANNELS * SIDE}, {CHANNELS}"
CONTIGUOUS = f"{CHANNELS * SIDE * SIDE}, {SIDE * SIDE}, {SIDE}, 1"
"""Strides of what a layer returns."""


def _layouts(
    lowered: list[Any], device: str = "a100-40gb", dtype: torch.dtype = torch.float32, groups: int = 1
) -> set[str]:
    """Of what convolutions and their backward return, as Inductor plans with it."""
    lowered.clear()
    with oomcast.virtual_gpu(device) as gpu:
        layers: list[nn.Module] = []
        for _ in range(3):
            layers += [nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=groups, bias=False), nn.BatchNorm2d(CHANNELS)]
            layers.append(nn.ReLU())
        net = nn.Sequential(*layers).to("cuda", dtype)
        batch = torch.randn(BATCH, CHANNELS, SIDE, SIDE, device="cuda", dtype=dtype)
        torch.compile(net)(batch).float().square().mean().backward()
        trace = gpu.trace()
    verify(trace)
    assert not [sentence for sentence in trace.assumptions if "eager" in sentence]
    assert len(lowered) == 2
    size = re.escape(f"({BATCH}, {CHANNELS}, {SIDE}, {SIDE})")
    asserted = rf"assert_\w+\(buf\d+, {size}, \((.*?)\), (?:torch\.\w+, )?'torch.ops.aten.convolution"
    found = [set(re.findall(asserted, code.source)) for code in lowered]
    assert all(found)
    return set.union(*found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cudnn_leaves_results_in_channels_last(dtype: torch.dtype, lowered: list[Any]) -> None:
    assert _layouts(lowered, dtype=dtype) == {CHANNELS_LAST}


def test_depthwise_convolutions_are_those_of_cudnn_too(lowered: list[Any]) -> None:
    """In backward torch 2.13 takes the order of strides from the weights, which have one channel: it may be any."""
    assert CHANNELS_LAST in _layouts(lowered, groups=CHANNELS)
    assert not [line for line in lowered[0].source.splitlines() if CONTIGUOUS in line and "aten.convolution" in line]


def test_cudnn_has_no_bfloat16_before_ampere(lowered: list[Any]) -> None:
    assert _layouts(lowered, "v100-16gb", torch.bfloat16) == {CONTIGUOUS}
    assert _layouts(lowered, "v100-16gb", torch.float16) == {CHANNELS_LAST}


def test_cudnn_has_no_channels_last_in_double_precision(lowered: list[Any]) -> None:
    assert _layouts(lowered, dtype=torch.float64) == {CONTIGUOUS}


def test_without_cudnn_results_are_contiguous(lowered: list[Any]) -> None:
    with torch.backends.cudnn.flags(enabled=False):
        assert _layouts(lowered) == {CONTIGUOUS}


def test_convolutions_over_a_transposed_sequence_are_compiled(lowered: list[Any]) -> None:
    """Those of one dimension want their input contiguous, whatever it was before: ConvBERT's."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv1d(32, 32, 3, groups=32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x.transpose(1, 2)).relu()

    with oomcast.virtual_gpu("a100-40gb") as gpu:
        torch.compile(Net().cuda())(torch.randn(4, 64, 32, device="cuda", requires_grad=True)).sum().backward()
        trace = gpu.trace()
    assert not [sentence for sentence in trace.assumptions if "eager" in sentence]
    assert len(lowered) == 2
