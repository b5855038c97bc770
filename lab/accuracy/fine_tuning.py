"""Readers of published fine-tuning runs: those that the row tells in full and that installed packages can build.

All others are listed with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from oomcast.devices import find_gpu
from oomcast.spec import Workload

from .cases import Case, CaseSet, Measure, Skipped
from .decoder_jobs import Lora
from .litgpt import litgpt_run
from .table import Row, read_rows
from .text_jobs import BertJob, GptJob, TorchaoLlamaJob
from .tune_jobs import TUNE_SHAPES, TuneJob
from .vision_jobs import TimmJob, TorchvisionJob

__all__ = ["FINE_TUNING", "read_fine_tuning"]

_COLUMNS = ("model", "task", "gpu", "precision", "optimizer", "batch_size_per_gpu", "input_shape", "extra_settings",
            "metric", "value_gib")  # fmt: skip
_MEASURES = {
    "nvidia-smi": Measure.DEVICE_TOTAL,
    "reserved": Measure.RESERVED,
    "max_memory_allocated": Measure.ALLOCATED,
    "peak_memory_active (memory_stats active_bytes.all.peak)": Measure.ALLOCATED,
    # torchtune's own pages of that time call such figures "peak memory reserved".
    "peak memory (which counter not stated)": Measure.RESERVED,
    "oom": Measure.BOUNDARY,
}
_UNBUILT = (
    (r"Thunder", "compiled by Thunder, which is not followed"),
    (r"nf4|bnb|8.?bit|4-bit|QLoRA|qlora|INT8|float8|ao ", "its quantized weights or optimizer need a package"),
    (r"^\s*[2-9]\s?x|FSDP|DeepSpeed|[Oo]ffload|8x ", "it ran on several GPUs or off the GPU"),
    (r"variable|<=|\btokens max", "the lengths of its batches are not published"),
    (r"model load|context only|model init", "no training step"),
)


class _Rebuilt(NamedTuple):
    job: Any
    gpu: str
    stack: str
    options: dict[str, Any]
    in_decimal_gb: bool = False
    """Whether the file holds the figure as it was printed, and the script that printed it divided by 10^9."""


def read_fine_tuning(name: str, path: Path) -> CaseSet:
    """`name` is the truth file's, without its ending."""
    cases, skipped = [], []
    for row in read_rows(path, _COLUMNS):
        rebuilt = FINE_TUNING[name](row)
        if isinstance(rebuilt, str):
            skipped.append(Skipped(str(row.number), rebuilt))
        else:
            cases.append(_case(name, row, rebuilt))
    return CaseSet(name, tuple(cases), tuple(skipped))


def _case(name: str, row: Row, rebuilt: _Rebuilt) -> Case:
    measure = _MEASURES[row.one_of("metric", tuple(_MEASURES))]
    ran = measure is not Measure.BOUNDARY
    return Case(
        data=name,
        campaign=name,
        row=f"{row.number} {row.text('model')[:24]} x{row.get('batch_size_per_gpu')} {row.get('precision')[:12]}",
        family=_family(row),
        workload=Workload.create(rebuilt.job, batch_size=row.whole("batch_size_per_gpu"), **rebuilt.options),
        gpu=rebuilt.gpu,
        stack=rebuilt.stack,
        measure=measure,
        measured=_bytes(row, rebuilt) if ran else None,
        ran=ran,
        notes=row.get("extra_settings"),
    )


def _bytes(row: Row, rebuilt: _Rebuilt) -> int:
    read = row.decimal_gb if rebuilt.in_decimal_gb else row.gib
    return read("value_gib", find_gpu(rebuilt.gpu))


def _family(row: Row) -> str:
    """The first word of the model's name: `vit_giant…`, `Llama 2 7B`."""
    found = re.match(r"(?:timm/|torchvision )?([a-z]+)", row.text("model").lower())
    return found[1] if found else row.text("model")


def _why_not(row: Row) -> str:
    told = " | ".join(row.get(column) for column in _COLUMNS[:8])
    for pattern, reason in _UNBUILT:
        if re.search(pattern, told):
            return reason
    return "the row does not tell enough to rebuild it"


def _bert_large(row: Row) -> _Rebuilt | str:
    if not row.get("batch_size_per_gpu"):
        return "no training step"
    if not row.text("optimizer").startswith("HF AdamW"):
        return f"{row.text('optimizer')} of that time is not in torch"
    job = BertJob(width=1024, layers=24, heads=16, length=512)
    extra = row.get("extra_settings")
    options = {
        "optimizer": "adamw-forloop",
        "precision": "amp-fp16" if "fp16" in row.text("precision") else "fp32",
        "accumulation": 4 if "gradient_accumulation_steps=4" in extra else 1,
        "checkpointing": "gradient_checkpointing=True" in extra,
        "zero_grad": "after-step",
        "set_to_none": False,
    }
    return _Rebuilt(job, "v100-16gb", "torch-1.12-cu113", options)


def _rasbt(row: Row) -> _Rebuilt | str:
    extra, precision = row.get("extra_settings"), row.text("precision")
    if row.text("model").startswith("GPT-124M") and "compile" not in extra:
        baseline = "00_orig" in extra
        job = GptJob(own_layers="PyTorch LayerNorm" not in extra, mask_buffer=baseline, bf16="bf16" in precision,
                     fused=not baseline)  # fmt: skip
        return _Rebuilt(job, "a100-40gb", "torch-2.8-cu128", {})
    if row.text("model").startswith("torchvision vit_l_16") and row.get("batch_size_per_gpu"):
        accumulated = "accumulation 4" in extra
        adam = row.text("optimizer").startswith("Adam")
        options = {
            "optimizer": None if adam else "sgd",
            "precision": "bf16" if precision == "bf16-true" else "fp32",
            "accumulation": 4 if accumulated else 1,
            # The plain script clears the gradients between forward and backward.
            "zero_grad": "after-step" if accumulated else "before-backward",
        }
        vit = TorchvisionJob("vit_l_16", head=10, adam_of_2023=adam)
        return _Rebuilt(vit, "a100-40gb", "torch-2.4-cu121", options)
    return _why_not(row)


def _torchtune(row: Row) -> _Rebuilt | str:
    """Recipes for one GPU whose batches are all of one length: packed, or as the table states it."""
    told = f"{row.get('extra_settings')} {row.get('task')}"
    stated = re.fullmatch(r"\d+x(\d+) tokens(?: packed)?", row.get("input_shape"))
    name = re.match(r"[^(]+", row.text("model").lower())
    if stated is None or name is None or name[0].strip() not in TUNE_SHAPES:
        return _why_not(row)
    if "config not stated" in told:
        return "which of the recipe's ways to save memory were on is not published"
    if re.match(r"[2-9] ?x", row.get("gpu")) or "QLoRA" in told:
        return _why_not(row)
    shape, tied = TUNE_SHAPES[name[0].strip()]
    flags = {flag.strip() for flag in row.get("extra_settings").split(";")}
    is_lora = row.text("task").startswith("LoRA") or any(flag.startswith("LoRA config") for flag in flags)
    # The configuration with the most adapters says so in the row; the default one is of rank 8 on queries and values.
    lora = Lora(64, 0.0, projection=True, mlp=True) if "rank 64" in told else Lora(8, 0.05)
    early = "torchtune 0.1" in row.get("package_to_build_it")
    job = TuneJob(
        shape, tied, int(stated[1]), lora if is_lora else None,
        checkpointing="checkpointing on" in told or "AC" in flags,
        recipe="2024-04" if early else "2024-12",
        packed="packed" in row.get("input_shape"),
        compiled="compile" in flags,
        pieces=8 if "chunked CE" in flags else 0,
        offloading="activation offloading" in flags,
    )  # fmt: skip
    # The configurations of 2024-12 that name torch's AdamW ask for the fused one, 100 of 115 of them.
    options: dict[str, Any] = {
        "optimizer": "adamw" if early else "adamw-fused", "steps": 2, "zero_grad": "after-step",
        "optimizer_in_backward": "optimizer_in_bwd" in flags,
    }  # fmt: skip
    if row.get("optimizer") == "AdamW8bit":
        # Of torchao: the page that the row links to (torchtune at 1814feb, memory_optimizations.rst) names it and bnb's
        # PagedAdamW8bit.
        options["optimizer"] = "adamw-8bit-torchao"
    if "PagedAdamW" in told:
        # Its states are in managed memory, which torch's counters do not see; its kernel works in place.
        options |= {"optimizer": "sgd-forloop", "optimizer_in_backward": True}
    gpu = "rtx-4090" if "4090" in row.get("gpu") else "a100-80gb"
    # The table of November 2024 is older than torch 2.6, and torchtune offloads activations with 2.5 or newer alone.
    return _Rebuilt(job, gpu, "torch-2.4-cu121" if early else "torch-2.5", options, in_decimal_gb=early)


def _torchao(row: Row) -> _Rebuilt | str:
    if row.text("model").startswith("timm/"):
        return _torchao_vit(row)
    if row.text("model") == "Llama2-1B":
        return _torchao_llama(row)
    return _why_not(row)


def _torchao_vit(row: Row) -> _Rebuilt | str:
    """The ViT that torchao's benchmark of optimizers fine-tunes on images of 224 × 224, all in bf16."""
    optimizer = row.get("optimizer")
    if not optimizer.startswith(("AdamW", "ao ")):
        return _why_not(row)
    name = row.text("model").removeprefix("timm/").split()[0].partition(".")[0]
    options: dict[str, Any] = {
        "optimizer": "adamw-fused",
        "precision": "amp-bf16" if "AMP" in row.text("precision") else "bf16",
        "checkpointing": "checkpointing" in row.get("extra_settings"),
        "zero_grad": "after-step",
        "compile": None if "eager" in row.text("precision") else "model",
    }
    offload: Literal["", "states", "gradients"] = ""
    if optimizer.startswith("ao "):
        if find_spec("torchao") is None:
            return "its optimizer needs torchao, which is not installed"
        options["optimizer"] = None
        offload = "gradients" if "offload_gradients" in optimizer else "states"
    job = TimmJob(name, (3, 224, 224), classes=45, adamw_off_the_gpu=offload)
    return _Rebuilt(job, "rtx-4070-ti-super", "torch-2.4-cu121", options)


def _torchao_llama(row: Row) -> _Rebuilt | str:
    """`pretrain_llama2.py` of August 2024, whose sizes of "1B" the same script names three weeks later."""
    length = re.fullmatch(r"\d+x(\d+) tokens", row.get("input_shape"))
    if length is None or find_spec("torchao") is None:
        return "its optimizer needs torchao, which is not installed" if length else _why_not(row)
    precision = row.text("precision")
    job = TorchaoLlamaJob(int(length[1]), int8="INT8" in precision, compiled="compile" in precision)
    options = {"checkpointing": "checkpointing" in row.get("extra_settings"), "steps": 2, "zero_grad": "after-step"}
    return _Rebuilt(job, "rtx-4070-ti-super", "torch-2.4-cu121", options, in_decimal_gb=True)


def _litgpt(row: Row) -> _Rebuilt | str:
    run = litgpt_run(row)
    if isinstance(run, str):
        return run
    return _Rebuilt(run.job, run.gpu, "torch-2.4-cu121", run.options)


FINE_TUNING: dict[str, Callable[[Row], _Rebuilt | str]] = {
    "hf_docs_bert_large": _bert_large,
    "rasbt_memory": _rasbt,
    "torchtune": _torchtune,
    "torchao": _torchao,
    "litgpt": _litgpt,
}
