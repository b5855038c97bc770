"""Optimizers by the names that configuration files have for them."""

from __future__ import annotations

from typing import Any

from ...errors import UnknownName

__all__ = ["optimizer_of"]

_NAMES = {
    # Hugging Face's TrainingArguments.optim, which axolotl, LLaMA-Factory and TRL take as well
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw-fused", "adamw_hf": "adamw", "adamw_apex_fused": "adamw-fused",
    "adamw_torch_8bit": "adamw-8bit-torchao", "adamw_torch_4bit": "adamw-4bit-torchao",
    "adamw_bnb_8bit": "adamw-8bit", "adamw_8bit": "adamw-8bit", "adamw_paged": "paged-adamw",
    "paged_adamw_8bit": "paged-adamw-8bit", "paged_adamw_32bit": "paged-adamw", "paged_adamw": "paged-adamw",
    "lion_8bit": "lion-8bit", "lion_32bit": "lion", "lion": "lion", "paged_lion_8bit": "paged-lion-8bit",
    "paged_lion_32bit": "paged-lion", "adafactor": "adafactor", "sgd": "sgd", "adagrad": "adagrad",
    "rmsprop": "rmsprop", "adam": "adam", "adamw": "adamw", "muon": "muon", "soap": "soap",
    "galore_adamw": "galore", "apollo_adamw": "apollo", "schedule_free_adamw": "schedule-free",
    # classes, of torch and bitsandbytes, as torchtune, litgpt, Lightning and DeepSpeed write them
    "torch.optim.adamw": "adamw", "torch.optim.adam": "adam", "torch.optim.sgd": "sgd",
    "torch.optim.rmsprop": "rmsprop", "torch.optim.adagrad": "adagrad", "torch.optim.adafactor": "adafactor",
    "bitsandbytes.optim.pagedadamw": "paged-adamw", "bitsandbytes.optim.pagedadamw8bit": "paged-adamw-8bit",
    "bitsandbytes.optim.adamw8bit": "adamw-8bit", "bitsandbytes.optim.lion8bit": "lion-8bit",
    "bitsandbytes.optim.adamw": "adamw", "onebitadam": "adam", "zerooneadam": "adam",
    "torchao.optim.adamw8bit": "adamw-8bit-torchao", "torchao.optim.adamw4bit": "adamw-4bit-torchao",
    "torchao.optim.adamwfp8": "adamw-fp8-torchao",
    "fusedadam": "adamw-fused",
}  # fmt: skip


def optimizer_of(value: Any, fused: bool = False) -> str:
    """oomcast's name; `fused` is how many files write it beside the class."""
    name = str(value).strip().lower()
    found = _NAMES.get(name)
    if found is None:
        hint = "Give another with --optimizer."
        raise UnknownName("optimizer", str(value), _NAMES, hint)
    if fused and found in ("adamw", "adam", "sgd", "adagrad"):
        return f"{found}-fused"
    return found
