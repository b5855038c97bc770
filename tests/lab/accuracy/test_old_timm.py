"""Layers as timm had them when runs were measured, and its loader."""

from __future__ import annotations

from itertools import repeat
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from lab.accuracy.old_timm import as_in_2024, prefetched
from lab.accuracy.vision_jobs import TimmJob
from oomcast.capture import capture
from oomcast.spec import Spec
from oomcast.trace import EventKind, Trace


class RmsNorm(nn.Module):
    eps = 1e-6

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((8,), 2.0))


class MaskUnitAttention(nn.Module):
    """Hiera's, with what its forward reads."""

    def __init__(self, windows: bool, fused: bool) -> None:
        super().__init__()
        self.use_mask_unit_attn, self.fused_attn = windows, fused
        self.heads, self.head_dim, self.dim_out, self.q_stride = 2, 4, 8, 4
        self.scale = self.head_dim**-0.5
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class ParallelScalingBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.in_proj = nn.Linear(8, 12, bias=False)
        self.mlp_bias = nn.Parameter(torch.arange(4.0))


def test_norms_divide_by_the_deviation() -> None:
    norm = as_in_2024(RmsNorm())
    x = torch.randn(3, 8) + 5
    expected = 2 * x / x.var(dim=-1, keepdim=True).sqrt()
    assert torch.allclose(norm(x), expected, atol=1e-4)


@pytest.mark.parametrize("fused", [True, False])
def test_attention_over_all_tokens_pools_its_queries(fused: bool) -> None:
    attention = as_in_2024(MaskUnitAttention(windows=False, fused=fused))
    x = torch.randn(2, 16, 8)
    query, key, value = attention.qkv(x).reshape(2, 16, 3, 2, 4).permute(2, 0, 3, 1, 4)
    query = query.reshape(2, 2, 4, 4, 4).amax(dim=2)
    mixed = ((query @ key.transpose(-1, -2)) / 2).softmax(dim=-1) @ value
    expected = attention.proj(mixed.transpose(1, 2).reshape(2, 4, 8))
    assert torch.allclose(attention(x), expected, atol=1e-5)


def test_attention_within_windows_stays() -> None:
    x = torch.randn(1, 4, 8)
    assert as_in_2024(MaskUnitAttention(windows=True, fused=True))(x) is x


def test_the_bias_of_a_part_is_one_of_the_projection() -> None:
    block = as_in_2024(ParallelScalingBlock())
    x = torch.randn(5, 8)
    plain = x @ block.in_proj.weight.T
    assert torch.allclose(block.in_proj(x)[:, 8:], plain[:, 8:] + torch.arange(4.0), atol=1e-6)
    assert torch.allclose(block.in_proj(x)[:, :8], plain[:, :8], atol=1e-6)
    assert sum(parameter.numel() for parameter in block.parameters()) == 8 * 12 + 4


def test_the_loader_of_timm_keeps_three_batches_of_floats_and_one_of_bytes() -> None:
    def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(batch_size, 3, 32, 32, dtype=torch.uint8), torch.zeros(batch_size, dtype=torch.long)

    job = SimpleNamespace(
        model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)),
        batch=batch,
        batches=lambda batch_size: prefetched(repeat(batch(batch_size))),
    )
    trace = capture(Spec.read(job, device="a100-40gb", batch_size=100, steps=4, optimizer="sgd"))
    floats = 100 * 3 * 32 * 32 * 4
    assert most_bytes(trace, stream=1) == 3 * floats + floats // 4 + 3 * 100 * 8 - 100 * 8


def most_bytes(trace: Trace, stream: int) -> int:
    held = most = 0
    for event in trace.events:
        if event.kind in (EventKind.ALLOCATE, EventKind.FREE) and trace.allocations[event.index].stream == stream:
            held += trace.allocations[event.index].nbytes * (1 if event.kind is EventKind.ALLOCATE else -1)
            most = max(most, held)
    return most


def test_batches_come_from_the_loader_only_where_the_run_had_one() -> None:
    timm_batch = (torch.zeros(2, 3, 8, 8), torch.zeros(2, dtype=torch.long))
    job = TimmJob("resnet18", (3, 8, 8))
    images, classes = next(job.batches(2))
    assert (images.shape, classes.shape) == (timm_batch[0].shape, timm_batch[1].shape)
    assert images.device.type == "cpu"


def test_images_are_those_of_the_year() -> None:
    assert TimmJob("sam2_hiera_tiny", year=2024).batch(2)[0].shape == (2, 3, 224, 224)
    assert TimmJob("sam2_hiera_tiny", (3, 896, 896), year=2024).batch(1)[0].shape == (1, 3, 896, 896)
