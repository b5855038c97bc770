"""How the weights of a model of transformers come onto the GPU: a phase of its own, which may hold more than the
training after it.

A weight is copied and, where it is to be quantised, quantised there before the next one comes: transformers does so in
one thread, lest weights that wait for it fill the card (`core_model_loading.py`, `has_on_the_fly_quantization`). With a
device map it takes a tensor as large as the whole model first, and frees it again: the allocator keeps that block.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from oomcast.spec import Loading, Workload

from .packed_weights import PACKED
from .quantised import is_quantised, kept_layers, quantise, train_as_quantised

__all__ = ["is_loaded_to_gpu", "load_to_gpu"]

_HALF_A_BYTE = ("nf4", "nf4-double", "fp4", "fp4-double", "nf4-torchao", "int4-torchao")


def is_loaded_to_gpu(workload: Workload) -> bool:
    """Whether the weights go there while the model is loaded; else the training loop moves the model."""
    asked = (workload.quantization, workload.adapter, workload.qat, workload.loading)
    return any(value is not None for value in asked)


def load_to_gpu(model: Any, workload: Workload, whole: Callable[[], nn.Module]) -> Any:
    """`whole`: builds the model with all its layers, of which `model` may have the first ones alone."""
    if workload.loading is Loading.DEVICE_MAP:
        _take_a_block_for_all(whole, workload)
    if workload.loading is Loading.WHOLE:
        model.to("cuda")
    if workload.quantization is not None:
        quantise(model, workload)
    if workload.qat is not None:
        train_as_quantised(model, workload.qat)
    return model.to("cuda")


def _take_a_block_for_all(whole: Callable[[], nn.Module], workload: Workload) -> None:
    """By transformers' own function, which HQQ's weights do without (`_load_pretrained_model`)."""
    name = workload.quantization
    if name is not None and name.startswith("hqq"):
        return
    with torch.device("meta"):
        model: Any = whole()
        if name in PACKED:
            quantise(model, workload)
    warm_up = importlib.import_module("transformers.modeling_utils").caching_allocator_warmup
    warm_up(model, dict.fromkeys(model.state_dict(), "cuda"), _Sizes(name))


class _Sizes:
    """What transformers asks of a quantiser: the bytes of one weight as it will be, without scales."""

    def __init__(self, quantization: str | None) -> None:
        self.quantization = quantization
        self._kept: list[str] | None = None

    def param_element_size(self, model: Any, name: str, parameter: torch.Tensor) -> float:
        path, _, leaf = name.rpartition(".")
        is_packed = self.quantization is None or self.quantization in PACKED
        if is_packed or leaf != "weight":
            return parameter.element_size()
        if self._kept is None:
            self._kept = kept_layers(model)
        by_torchao = "torchao" in (self.quantization or "")
        if not is_quantised(path, model.get_submodule(path), self._kept, also_transposed=not by_torchao):
            return parameter.element_size()
        return 0.5 if self.quantization in _HALF_A_BYTE else 1
