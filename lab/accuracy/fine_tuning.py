"""Readers of published fine-tuning runs: those that the row tells in full and that installed packages can build.

All others are listed with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from oomcast.devices import find_gpu
from oomcast.spec import Workload

from .cases import Case, CaseSet, Measure, Skipped
from .litgpt import litgpt_run
from .table import Row, read_rows
from .text_jobs import BertJob, GptJob, HfJob
from .vision_jobs import TimmJob, TorchvisionJob

__all__ = ["FINE_TUNING", "read_fine_tuning"]

_COLUMNS = ("model", "task", "gpu", "precision", "optimizer", "batch_size_per_gpu", "input_shape", "extra_settings",
            "metric", "value_gib")  # fmt: skip
_MEASURES = {
    "nvidia-smi": Measure.DEVICE_TOTAL,
    "reserved": Measure.RESERVED,
    "max_memory_allocated": Measure.ALLOCATED,
    "peak_memory_active (memory_stats active_bytes.all.peak)": Measure.ALLOCATED,
    "oom": Measure.BOUNDARY,
}
_UNBUILT = (
    (r"compile|Thunder", "torch.compile is not modelled"),
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
        measured=row.gib("value_gib", find_gpu(rebuilt.gpu)) if ran else None,
        ran=ran,
        notes=row.get("extra_settings"),
    )


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
    if row.get("extra_settings").startswith("packed=True to 4096; technique row: + Packed Dataset"):
        settings = (("hidden_size", 3072), ("intermediate_size", 8192), ("num_hidden_layers", 28),
                    ("num_attention_heads", 24), ("num_key_value_heads", 8), ("head_dim", 128),
                    ("vocab_size", 128256), ("tie_word_embeddings", True))  # fmt: skip
        job = HfJob("LlamaForCausalLM", "LlamaConfig", settings, 4096, bf16=True)
        return _Rebuilt(job, "a100-80gb", "torch-2.8-cu128", {"optimizer": "adamw"})
    return _why_not(row)


def _torchao(row: Row) -> _Rebuilt | str:
    """The ViT that torchao's benchmark of optimizers fine-tunes on images of 224 × 224, all in bf16."""
    if not row.text("model").startswith("timm/") or not row.get("optimizer").startswith("AdamW"):
        return _why_not(row)
    if "eager" not in row.text("precision"):
        return "torch.compile is not modelled"
    name = row.text("model").removeprefix("timm/").split()[0].partition(".")[0]
    options = {
        "optimizer": "adamw-fused",
        "precision": "amp-bf16" if "AMP" in row.text("precision") else "bf16",
        "checkpointing": "checkpointing" in row.get("extra_settings"),
        "zero_grad": "after-step",
    }
    return _Rebuilt(TimmJob(name, (3, 224, 224), classes=45), "rtx-4070-ti-super", "torch-2.4-cu121", options)


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
