"""Activations that wait for backward on the host: by libraries' hooks, which see the virtual GPU, and by our option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from tuned_jobs import HIDDEN, LLAMA, TOKENS, traced, write_llama

import oomcast
from oomcast.capture.only_torch import refuse_options_of_torch
from oomcast.capture.torch.offloading import OffloadedActivations
from oomcast.errors import BadInput
from oomcast.spec import Workload
from oomcast.trace import EventKind, Phase, Trace

MiB = 1 << 20
LAYERS, ROWS = 12, 2


def test_hooks_on_saved_tensors_see_the_gpu() -> None:
    """C++ code calls them in the midst of an operator."""
    seen: list[str] = []

    def put_off(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(tensor.device.type)
        return tensor.to("cpu") if tensor.is_cuda else tensor

    with oomcast.virtual_gpu("a100-40gb"):
        x = torch.zeros(256, 1024, device="cuda", requires_grad=True)
        with saved_tensors_hooks(put_off, lambda tensor: tensor.to("cuda")):
            y = x.exp().exp().exp()
        assert seen == ["cuda"] * 3
        assert torch.cuda.memory_allocated() == 2 * MiB  # x and y
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.device.type == "cuda"


@pytest.mark.parametrize("as_trl", [False, True])
def test_the_last_five_stay_and_backward_leaves_nothing(as_trl: bool) -> None:
    with oomcast.virtual_gpu("a100-40gb"):
        x = torch.zeros(256, 1024, device="cuda", requires_grad=True)
        offloaded = OffloadedActivations(nn.Identity(), as_trl=as_trl)
        with offloaded:
            y = x
            for _ in range(10):
                y = y.exp()  # keeps its output
        assert torch.cuda.memory_allocated() == (1 + 5) * MiB
        y.sum().backward()
        offloaded.forget()
        del y
        assert torch.cuda.memory_allocated() == 2 * MiB  # x and its gradient


def test_trl_leaves_what_is_kept_again_and_no_weight_is_copied() -> None:
    """torchtune copies the input for each of three layers, and their weights beside it; TRL copies the input once, for
    the first of them, and so it stays."""

    def held(as_trl: bool) -> int:
        with oomcast.virtual_gpu("a100-40gb"):
            layers = nn.ModuleList(nn.Linear(1024, 1024, bias=False) for _ in range(3)).cuda()
            x = torch.zeros(1024, 1024, device="cuda", requires_grad=True)
            offloaded = OffloadedActivations(layers, as_trl=as_trl)
            with offloaded:
                h = x.exp()
                outputs = [layer(h) for layer in layers]
                del h
                for _ in range(6):
                    outputs[0] = outputs[0].exp()
            return torch.cuda.memory_allocated()

    assert held(as_trl=True) - held(as_trl=False) == 4 * MiB


@pytest.fixture
def deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(LLAMA, "num_hidden_layers", LAYERS)
    monkeypatch.setitem(LLAMA, "vocab_size", 64)
    return write_llama(tmp_path)


def _before_backward(trace: Trace) -> int:
    end = next(mark.position for mark in trace.marks if mark.phase is Phase.BACKWARD)
    return sum(
        trace.allocations[event.index].nbytes * (1 if event.kind is EventKind.ALLOCATE else -1)
        for event in trace.events[:end]
        if event.kind in (EventKind.ALLOCATE, EventKind.FREE)
    )


@pytest.mark.parametrize("loop", ["plain", "hf-trainer"])
def test_beside_checkpointing_what_the_blocks_are_given_waits_on_the_host(deep: str, loop: str) -> None:
    options: dict[str, Any] = {"checkpointing": True, "training_loop": loop, "optimizer": "sgd"}
    plain, offloaded = (traced(deep, offload_activations=way, **options) for way in (False, True))
    given = 4 * ROWS * TOKENS * HIDDEN  # the last that stay are those of norm, head and loss
    assert _before_backward(plain) - _before_backward(offloaded) == pytest.approx(LAYERS * given, abs=given)
    assert any("activations wait in the host's memory" in sentence for sentence in offloaded.assumptions)


def test_the_head_keeps_its_own(deep: str) -> None:
    """Its input is needed at once: nothing of it is copied, so backward begins with what is there."""
    with oomcast.virtual_gpu("a100-40gb"):

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.head = nn.Linear(1024, 8, bias=False)

            def get_output_embeddings(self) -> nn.Module:
                return self.head

        model = Model().cuda()
        offloaded = OffloadedActivations(model, as_trl=True)
        x = torch.zeros(1024, 1024, device="cuda", requires_grad=True)
        with offloaded:
            model.head(x.exp())
        assert list(offloaded._last) == [1]  # the exponential's own output


@pytest.mark.parametrize("options", [{"compile": "model"}, {"phase": "inference"}])
def test_what_is_not_followed_is_refused(deep: str, options: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="--offload-activations is"):
        traced(deep, offload_activations=True, **options)


def test_other_frameworks_refuse_what_only_torch_follows() -> None:
    options = {"offload_activations": True, "optimizer_in_backward": True, "empty_cache_steps": 2}
    for name, value in options.items():
        with pytest.raises(BadInput, match="is followed for torch alone, not for JAX"):
            refuse_options_of_torch(Workload.create("zoo:resnet18", **{name: value}), "JAX")
    refuse_options_of_torch(Workload.create("zoo:resnet18"), "JAX")
