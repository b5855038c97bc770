"""A model with the first of its repeated blocks alone: what each of them adds is the same."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import oomcast
from oomcast.errors import BadInput

WIDTH = 64


class Block(nn.Module):
    def __init__(self, inner: int = WIDTH) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, inner), nn.Linear(inner, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


class TwoLists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Sequential(Block(), Block()) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def job(model: Any) -> SimpleNamespace:
    return SimpleNamespace(
        model=model,
        batch=lambda batch_size: torch.randn(batch_size, WIDTH),
        loss=lambda model, batch: model(batch).sum(),
    )


SIX = job(lambda: nn.Sequential(*(Block() for _ in range(6))))


def parameters(**options: Any) -> int:
    answer = oomcast.estimate(SIX, batch_size=2, device="t4", **options)
    return answer.breakdown["parameter"]


def test_each_block_adds_the_same() -> None:
    two, three = parameters(blocks=2), parameters(blocks=3)
    assert three > two
    assert parameters() == two + 4 * (three - two)
    answer = oomcast.estimate(SIX, batch_size=2, device="t4", blocks=2)
    assert "the model has its first 2 of 6 blocks, as --blocks says" in answer.assumptions


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: nn.Sequential(Block(), Block()), "the model has 2 repeated blocks"),
        (lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH)), "the model has 0 repeated blocks"),
        (lambda: nn.Sequential(*(Block(WIDTH * n) for n in (1, 2, 3))), "differ from each other"),
        (lambda: TwoLists(), "stand in several lists"),
    ],
)
def test_what_cannot_be_shortened_is_told(model: Any, words: str) -> None:
    with pytest.raises(BadInput, match=f"--blocks 3: .*{words}"):
        oomcast.estimate(job(model), batch_size=2, device="t4", blocks=3)


def test_blocks_are_torch_jobs_only() -> None:
    with pytest.raises(BadInput, match="--blocks is offered for PyTorch jobs, not for jax"):
        oomcast.estimate(SIX, batch_size=2, device="t4", blocks=3, framework="jax")


def test_what_is_left_out_of_a_tuned_model_is_never_loaded(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    held = []
    for layers in (12, 2):
        config = {"n_embd": 128, "n_layer": layers, "n_head": 2, "n_positions": 64, "vocab_size": 100}
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **config}))
        asked = {"device": "t4", "batch_size": 1, "seq_len": 16, "steps": 2, "adapter": "lora,r=4"}
        found = oomcast.estimate(str(tmp_path / "config.json"), blocks=2, **asked)
        held.append((found.peak_allocated, found.highest_by_phase["loading"]))
    assert held[0] == held[1]
