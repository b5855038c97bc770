"""Chosen modules are checkpointed as a user would write it; names that mean nothing are told."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import oomcast
from oomcast.capture import capture
from oomcast.capture.torch.run import capture_here
from oomcast.errors import BadInput, UnknownName
from oomcast.spec import Spec
from oomcast.trace import Phase, Trace

DEVICE = "rtx-3060"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.inner = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.inner(self.norm(x))
        return out


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        out: torch.Tensor = self.head(x)
        return out


def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch_size, 64), torch.randint(0, 10, (batch_size,))


def traced(checkpointing: Any = False, model: Any = Net) -> Trace:
    job = SimpleNamespace(model=model, batch=batch)
    return capture_here(Spec.read(job, device=DEVICE, batch_size=512, steps=2, checkpointing=checkpointing))


def by_hand(*names: str) -> Trace:
    def model() -> nn.Module:
        built = Net()
        for name in names:
            module = built.get_submodule(name)
            module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)
        return built

    return traced(model=model)


def what_happened(trace: Trace) -> tuple[Any, ...]:
    return trace.events, tuple((a.nbytes, a.category, a.module) for a in trace.allocations), trace.kernels


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["layers.1"], ["layers.1"]),
        ("layers.0,layers.2", ["layers.0", "layers.2"]),
        ("layers.*", ["layers.0", "layers.1", "layers.2"]),
        ("layers.[01].inner", ["layers.0.inner", "layers.1.inner"]),
        (["layers.0", "layers.0.inner"], ["layers.0", "layers.0.inner"]),
    ],
)
def test_names_are_what_a_user_would_write(given: Any, meant: list[str]) -> None:
    assert what_happened(traced(given)) == what_happened(by_hand(*meant))


def test_all_blocks_by_name_are_checkpointing() -> None:
    assert what_happened(traced("layers.*")) == what_happened(traced(True))
    assert what_happened(traced("layers.*")) != what_happened(traced())


def test_what_was_chosen_is_told() -> None:
    assert "checkpointing: layers.0, layers.1" in traced("layers.[01]").assumptions


@pytest.mark.parametrize(
    ("given", "kind", "sentence"),
    [
        ("layer.0", UnknownName, "unknown module 'layer.0'; did you mean layers.0"),
        ("layers", BadInput, "layers is a ModuleList, which is never called itself; checkpoint its members, layers"),
        ("layers.0,,head", BadInput, "empty name of a module"),
        (3, BadInput, "names of modules like"),
    ],
)
def test_names_that_mean_nothing_are_told(given: Any, kind: type[BadInput], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        traced(given)


def test_modules_keep_their_names_when_they_run_again() -> None:
    trace = traced("layers.*")
    for step in (0, 1):
        again = {a.module for a in trace.allocations if (a.phase, a.step) == (Phase.BACKWARD, step)}
        assert {f"layers.{n}.inner.{part}" for n in range(3) for part in (0, 1, 2, 3)} <= again
        assert not {"0", "1", "inner.0", "LayerNorm", "Linear"} & again
    first, second = (
        [a.module for a in trace.allocations if (a.phase, a.step) == (Phase.FORWARD, step)] for step in (0, 1)
    )
    assert first == second


def test_a_layer_that_runs_twice_does_not_extend_the_cache_twice(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_embd": 48}')
    spec = Spec.read(config, device=DEVICE, batch_size=2, seq_len=16, steps=1, checkpointing="transformer.h.*")
    told = capture(spec).assumptions
    assert "checkpointing: transformer.h.0, transformer.h.1, with use_cache off" in told


def test_a_file_is_estimated_with_chosen_modules(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(
        "import torch\nfrom torch import nn\n\n\ndef model():\n"
        "    part = lambda: nn.Sequential(nn.Linear(64, 1024), nn.GELU(), nn.Linear(1024, 64))\n"
        "    return nn.Sequential(part(), part(), nn.Linear(64, 10))\n\n\n"
        "def batch(batch_size):\n    return torch.randn(batch_size, 64), torch.randint(0, 10, (batch_size,))\n"
    )

    def allocated(checkpointing: Any) -> int:
        return oomcast.estimate(
            str(path), batch_size=8192, device=DEVICE, steps=1, checkpointing=checkpointing
        ).peak_allocated

    assert allocated(["0"]) < allocated(False)
