"""Rows of litgpt's resource tables: LoRA, adapter v2 and full fine-tuning on one GPU, `max_memory_allocated`."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

from .decoder_jobs import SHAPES, DecoderJob, Lora
from .table import Row

__all__ = ["LitgptRun", "litgpt_run"]

_NAMES = {
    "stablelm 3b": "stablelm-base-alpha-3b",
    "llama 2 7b": "llama-2-7b",
    "llama-2-7b-hf": "llama-2-7b",
    "llama-2-13b-hf": "llama-2-13b",
    "mistral-7b-v0.2": "mistral-7b",
    "llama-3-8b": "llama-3.1-8b",
}
_LONGEST = {"stablelm-base-alpha-3b": 1034, "llama-2-7b": 1304}
"""Tokens of the longest sample of Alpaca, as the document with the tables tells; the first step takes it."""


class LitgptRun(NamedTuple):
    job: DecoderJob
    gpu: str
    options: dict[str, Any]


def litgpt_run(row: Row) -> LitgptRun | str:
    """What ran, or why it cannot be rebuilt."""
    refusal = _refusal(row)
    if refusal:
        return refusal
    told = row.text("model").lower()
    inner = re.search(r"\(litgpt name (.+)\)", told)
    name = inner[1] if inner else told
    name = _NAMES.get(name, name)
    if name not in SHAPES:
        return f"the blocks of {row.text('model')} are not written here"
    found = re.match(r"\d+x(?:<= )?(\d+) tokens", row.get("input_shape"))
    if not found and name not in _LONGEST:
        return "the lengths of its batches are not published"
    length = int(found[1]) if found else _LONGEST[name]
    capped = "<=" in row.get("input_shape")
    shape = SHAPES[name]
    if shape.norm == "rms":
        # fp32 since commit 6178c7c of October 2023; the product with the weights in their own type for a while.
        shape = replace(shape, norm="rms-float" if capped else "rms-float-out")
    adapter = "adapter_v2" in row.get("task")
    lora = None if adapter or " full " in row.get("task") else _lora(row.get("extra_settings"))
    mixed = "mixed" in row.text("precision")
    # Only the first step has the longest sample; where all are cut to one length, every step has it.
    options: dict[str, Any] = {"steps": 2 if capped else 1, "zero_grad": "after-step"}
    if mixed:
        options["precision"] = "amp-bf16"
    if lora is None and not adapter:
        options["accumulation"] = 2  # gradients live from one micro-batch to the next; more of them change nothing
    gpu = "a10g" if "A10G" in row.text("gpu") else "a100-40gb"
    quantised = re.search(r"bnb\.(nf4(?:-dq)?)", row.text("precision"))
    job = DecoderJob(shape, length, lora, adapter, not mixed, quantised[1] if quantised else "")
    return LitgptRun(job, gpu, options)


def _refusal(row: Row) -> str:
    if re.search(r"bnb|nf4", row.text("precision")) and find_spec("bitsandbytes") is None:
        return "its 4-bit weights need bitsandbytes, which is not installed"
    if re.search(r"'devices': 1\b", row.get("extra_settings")) and row.text("gpu").startswith("4x"):
        return "the same run as the row on one GPU"
    if re.match(r"[2-9] ?x", row.text("gpu")):
        return "it ran on several GPUs"
    if "Thunder" in row.get("extra_settings"):
        return "compiled by Thunder, which is not followed"
    if row.text("model") == "gemma-2b" and "weight_decay': 0.0" in row.get("optimizer"):
        return "its configuration is Gemma 2's, whose blocks are not written here"
    return ""


def _lora(settings: str) -> Lora:
    """`lora r=8 … on query,value only`, or the settings of a configuration file; the script's defaults else."""
    rank = re.search(r"(?:lora_r': |\br=)(\d+)", settings)
    dropout = re.search(r"dropout(?:': |=)([\d.]+)", settings)
    parts = {part: f"'lora_{part}': True" in settings for part in ("key", "projection", "mlp", "head")}
    return Lora(
        rank=int(rank[1]) if rank else 8,
        dropout=float(dropout[1]) if dropout else 0.05,
        keys=parts["key"],
        projection=parts["projection"],
        mlp=parts["mlp"],
        head=parts["head"],
    )
