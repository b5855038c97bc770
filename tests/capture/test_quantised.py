"""Quantised weights and small optimizers: what is held is what the libraries' own code allocates."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

import oomcast
from oomcast.capture.torch.optimizers import make_optimizer
from oomcast.spec import OPTIMIZER_KINDS
from oomcast.trace import Category, EventKind

GPU = "a100-40gb"
WIDTH = 512


def _library(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(name.partition(".")[0])
        return importlib.import_module(name)


def _layers() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))


def _held(value: Any) -> int:
    """Bytes of the tensors in an optimizer's state, those that others hold included."""
    if is_traceable_wrapper_subclass(value):
        return sum(_held(getattr(value, name)) for name in value.__tensor_flatten__()[0])
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, (dict, list, tuple)):
        return sum(map(_held, value.values() if isinstance(value, dict) else value))
    return 0


def _on_cpu(make: Callable[[Any], Any]) -> int:
    model = _layers()
    optimizer = make(model.parameters())
    model(torch.zeros(2, WIDTH)).sum().backward()
    optimizer.step()
    parts = getattr(optimizer, "parts", [optimizer])
    return sum(_held(state) for part in parts for state in part.state.values())


def _on_virtual_gpu(make: Callable[[Any], Any]) -> tuple[int, int]:
    with oomcast.virtual_gpu(GPU) as gpu:
        model = _layers().cuda()
        optimizer = make(model.parameters())
        for _ in range(2):
            model(torch.zeros(2, WIDTH, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        trace = gpu.trace()
    freed = {event.index for event in trace.events if event.kind is EventKind.FREE}
    kept = [a for index, a in enumerate(trace.allocations) if index not in freed]  # a step may replace what it holds
    labelled = sum(a.nbytes for a in kept if a.category is Category.OPTIMIZER_STATE)
    largest = max(a.nbytes for a in trace.allocations if a.category is Category.TEMPORARY)
    return labelled, largest


@pytest.mark.parametrize("name", [name for name, kind in OPTIMIZER_KINDS.items() if not kind.offloads])
def test_optimizers_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds what its own code allocates on real tensors."""
    library = OPTIMIZER_KINDS[name].library
    if library != "torch":
        _library(library)

    def make(parameters: Any) -> Any:
        return make_optimizer(name, list(parameters))

    state, largest = _on_virtual_gpu(make)
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    assert state == pytest.approx(_on_cpu(make), rel=0.02)
    if library == "torchao":
        assert largest <= WIDTH * WIDTH * 8  # between compiled kernels: at most the indices that 4 bits are packed from


@pytest.mark.parametrize("name", ["AdamW", "AdEMAMix8bit"])
def test_further_classes_of_bitsandbytes(name: str) -> None:
    make = getattr(_library("bitsandbytes").optim, name)
    assert _on_virtual_gpu(make)[0] == pytest.approx(_on_cpu(make), rel=0.02)


@pytest.mark.parametrize("name", [name for name, kind in OPTIMIZER_KINDS.items() if kind.offloads])
def test_an_optimizer_off_the_gpu_holds_only_the_states_of_small_tensors(name: str) -> None:
    """torchao's keeps tensors of fewer than 4,096 values where they are: here two biases, two moments and a count."""
    _library("torchao.optim")
    state, _ = _on_virtual_gpu(lambda parameters: make_optimizer(name, list(parameters)))
    assert state == 2 * (2 * WIDTH * 4 + 4)


def test_gradients_off_the_gpu_are_gone_when_backward_ends() -> None:
    """One after the other they go to the host, where the update is computed."""
    _library("torchao.optim")
    with oomcast.virtual_gpu(GPU):
        model = _layers().cuda()
        optimizer = make_optimizer("adamw-offload-all-torchao", list(model.parameters()))
        model(torch.zeros(2, WIDTH, device="cuda")).sum().backward()
        assert [parameter.grad for parameter in model.parameters() if parameter.dim() == 2] == [None, None]
        optimizer.step()


def test_paged_state_is_not_in_torchs_memory() -> None:
    make = _library("bitsandbytes").optim.PagedAdamW8bit
    with oomcast.virtual_gpu(GPU) as gpu:
        model = _layers().cuda()
        optimizer = make(model.parameters())
        model(torch.zeros(2, WIDTH, device="cuda")).sum().backward()
        before = torch.cuda.memory_allocated()
        optimizer.step()
        assert torch.cuda.memory_allocated() - before < 65536  # scales and maps; two moments would be 526 KB
        assert any("unified memory" in sentence for sentence in gpu.trace().assumptions)


@pytest.mark.parametrize(
    ("double", "bits"),
    [(False, 4 + 32 / 64), (True, 4 + 8 / 64 + 32 / 64 / 256)],
    ids=["nf4", "nf4 with double quantisation"],
)
def test_four_bit_weights(double: bool, bits: float) -> None:
    kinds = _library("bitsandbytes").nn
    with oomcast.virtual_gpu(GPU) as gpu:
        layer = kinds.Linear4bit(
            2048, 2048, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4", compress_statistics=double
        ).cuda()
        assert isinstance(layer.weight, kinds.Params4bit)
        assert torch.cuda.memory_allocated() == pytest.approx(2048 * 2048 * bits / 8, rel=0.01)
        x = torch.zeros(64, 2048, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        layer(x).sum().backward()
        assert x.grad is not None
        assert layer.weight.grad is None
        trace = gpu.trace()
    assert not trace.unsupported
    assert any(a.nbytes == 2048 * 2048 * 2 and a.category is Category.WORKSPACE for a in trace.allocations)


def test_eight_bit_weights() -> None:
    kinds = _library("bitsandbytes").nn
    with oomcast.virtual_gpu(GPU):
        layer = kinds.Linear8bitLt(2048, 2048, bias=False, has_fp16_weights=False).cuda()
        assert torch.cuda.memory_allocated() == pytest.approx(2048 * 2048, rel=0.01)
        x = torch.zeros(4, 2048, device="cuda", dtype=torch.float16, requires_grad=True)
        layer(x).sum().backward()


def _torchao_layer(name: str, device: str) -> nn.Linear:
    """A layer as `--quantization` makes it, by the configuration that stands for its name."""
    _library("torchao.quantization")
    from oomcast.capture.torch.jobs.quantised import _torchao_config

    model = nn.Sequential(nn.Linear(2048, 1024, bias=False)).to(torch.bfloat16).to(device)
    importlib.import_module("torchao.quantization").quantize_(model, _torchao_config(name, {}))
    layer = model[0]
    assert isinstance(layer, nn.Linear)
    return layer


@pytest.mark.parametrize(
    "name", ["nf4-torchao", "int8-torchao", "fp8-torchao", "int8-dynamic-torchao", "int8-int4-torchao"]
)
def test_torchao_weights_hold_what_they_hold_on_the_host(name: str) -> None:
    _library("torchao")
    real = _held(_torchao_layer(name, "cpu").weight)
    with oomcast.virtual_gpu("h100-sxm"):
        layer = _torchao_layer(name, "cuda")
        assert _held(layer.weight) == real
        assert real <= torch.cuda.memory_allocated() < real + 16 * 512  # each part is rounded up to 512 bytes
        x = torch.zeros(4, 2048, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        out = layer(x)
        assert out.requires_grad == ("dynamic" not in name and "int8-int4" not in name)
        if out.requires_grad:
            out.sum().backward()


@pytest.mark.parametrize(
    ("name", "nbytes"),
    [
        ("int4-torchao", 2048 * 1024 // 2 + 2048 // 128 * 1024 * 2 * 2),  # a scale and a zero for each group of 128
        ("fp8-dynamic-torchao", 2048 * 1024 + 4),  # one scale
    ],
)
def test_torchao_weights_that_only_a_gpu_makes(name: str, nbytes: int) -> None:
    _library("torchao")
    with oomcast.virtual_gpu("h100-sxm"), torch.no_grad():
        layer = _torchao_layer(name, "cuda")
        assert _held(layer.weight) == nbytes
        assert layer(torch.zeros(4, 2048, device="cuda", dtype=torch.bfloat16)).shape == (4, 1024)


def _kept_for_backward(model: nn.Module, x: torch.Tensor) -> int:
    """Bytes of what autograd saves, parameters and the input left out."""
    known = {t.untyped_storage()._cdata for t in (x, *model.parameters())}
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            saved[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = model(x)
    del out
    return sum(saved.values())


@pytest.mark.parametrize("name", ["int4", "int8-int4", "fp8-int4", "fp8-fp8"])
def test_training_as_if_quantised_keeps_what_torchao_keeps_on_the_host(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantization, qat = _library("torchao.quantization"), _library("torchao.quantization.qat")
    from oomcast.capture.torch.jobs.quantised import _QAT

    def layers(device: str) -> nn.Module:
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)).to(torch.bfloat16).to(device)
        class_name, settings = _QAT[name]
        with monkeypatch.context() as patched:
            patched.setattr("torch.cuda.get_device_capability", lambda *_: (9, 0))
            base = getattr(quantization, class_name)(**settings)
        quantization.quantize_(model, qat.QATConfig(base, step="prepare"))
        return model

    real = _kept_for_backward(layers("cpu"), torch.zeros(64, WIDTH, dtype=torch.bfloat16))
    with oomcast.virtual_gpu("h100-sxm"):
        model, x = layers("cuda"), torch.zeros(64, WIDTH, dtype=torch.bfloat16, device="cuda")
        before = torch.cuda.memory_allocated()
        out = model(x)
        assert torch.cuda.memory_allocated() - before >= real + out.numel() * 2
        out.float().sum().backward()
        assert _kept_for_backward(model, x) == real
