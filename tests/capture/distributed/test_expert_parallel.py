"""Experts over several GPUs, against a formula over their parameters, to 1 %."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import oomcast
from oomcast.estimation import Estimate

transformers = pytest.importorskip("transformers")

LAYERS, EXPERTS, WIDTH, INNER, RANKS = 4, 16, 256, 8192, 8
X = 2 * EXPERTS * 3 * WIDTH * INNER
"""Bytes of one layer's experts in bf16; P of all layers'."""
P = LAYERS * X


def job(experts: int = EXPERTS) -> SimpleNamespace:
    config = transformers.MixtralConfig(
        vocab_size=256, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_key_value_heads=4, num_local_experts=experts, num_experts_per_tok=2,
    )  # fmt: skip

    def batch(size: int) -> dict[str, torch.Tensor]:
        return {name: torch.randint(0, 256, (size, 16)) for name in ("input_ids", "labels")}

    return SimpleNamespace(model=lambda: transformers.MixtralForCausalLM(config), batch=batch)


def ask(parallel: str, of: Any = None, batch_size: int = 1, ranks: int = RANKS) -> Estimate:
    return oomcast.estimate(
        job() if of is None else of,
        batch_size=batch_size,
        device=f"{ranks}xh100-80gb",
        parallel=parallel,
        optimizer="adamw",
        precision="bf16",
    )


@pytest.fixture(scope="module")
def halves() -> Estimate:
    return ask("fsdp2,ep=2")


def test_a_rank_gathers_only_its_share_of_the_experts(halves: Estimate) -> None:
    """In the backward of the first layer: states 3 P / N, the other layers' gradients, its experts and their gradients.
    Without ep, all experts of two layers are gathered and have gradients."""
    held = halves.peak_allocated - halves.breakdown["workspace"]
    expected = 3 * P / RANKS + (LAYERS - 1) / LAYERS * P / RANKS + 2 * X / 2
    assert held == pytest.approx(expected, rel=0.01)
    assert halves.breakdown["parameter"] == pytest.approx(P / RANKS, rel=0.01)
    assert ask("fsdp2").peak_allocated > halves.peak_allocated + 2 * X


def test_the_tokens_of_a_layer_are_as_many_as_without(halves: Estimate) -> None:
    """Evenly chosen, as many arrive as were sent: two experts for each of 16 × 64 tokens."""
    large = ask("fsdp2,ep=2", batch_size=64)
    rows = {tensor.shape[0] for tensor in large.top_tensors if tensor.shape and tensor.shape[-1] in (INNER, 2 * INNER)}
    assert 2 * 16 * 64 in rows, large.top_tensors
    assert any("the router chooses all of them equally often" in text for text in halves.assumptions)


@pytest.mark.parametrize("parallel", ["fsdp2,tp=2", "tp=4"])
def test_tensor_parallelism_cuts_the_experts_too(parallel: str) -> None:
    """Their parameters are in no layer of their own; the plan of transformers names them. FSDP shards what is cut."""
    ranks = 4 if parallel == "tp=4" else RANKS
    answer = ask(parallel, ranks=ranks)
    assert answer.breakdown["parameter"] == pytest.approx(P / ranks, rel=0.02)
    assert any(
        "layers and experts are cut by the plan and the code of transformers" in told for told in answer.assumptions
    )


@pytest.mark.parametrize(
    ("parallel", "of", "words"),
    [
        ("fsdp2,ep=8", job(experts=6), "ep=8 does not divide the experts"),
        ("fsdp2,ep=3", None, "ep=3 does not divide the 8 data-parallel GPUs"),
        ("ddp,tp=2", None, "whose DTensors DDP does not take; write fsdp2 instead of ddp"),
        ("tp=8", None, "tp=8 does not divide the 4 heads; choose a divisor"),
        ("ddp,ep=2", None, "ep=N is offered for job files beside fsdp2 alone"),
        ("fsdp2,tp=2,ep=2", None, "ep=N is offered for job files beside fsdp2 alone"),
        (
            "fsdp2,ep=2",
            SimpleNamespace(model=lambda: nn.Linear(8, 8), batch=lambda size: torch.randn(size, 8)),
            "this model brings none",
        ),
    ],
)
def test_what_cannot_be_shared_is_told(parallel: str, of: Any, words: str) -> None:
    with pytest.raises(oomcast.errors.BadInput) as refused:
        ask(parallel, of)
    assert words in str(refused.value)
