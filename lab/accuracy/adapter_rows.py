"""Published tables of fine-tuning with adapters and quantised weights, asked as a user would: `hf:` names and options.

Qwen's own table (lengths stated), peft's comparison of its methods (real data: the assumed length is said), ms-swift's
benchmark.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from oomcast.devices import find_gpu
from oomcast.spec import Adapter, Workload
from oomcast.units import MiB

from .cases import Case, CaseSet, Measure, Skipped
from .table import Row, read_rows

__all__ = ["ADAPTER_SETS", "read_adapter_rows"]


class _Run(NamedTuple):
    """A row as the product is asked for it."""

    job: str
    family: str
    gpu: str
    stack: str
    options: Mapping[str, Any]
    measure: Measure
    measured: int
    notes: str = ""
    more_context: int = 0


_COMPILED = "compiled: what Inductor plans is not asked yet"
_LEFT_OUT_OF_SETTINGS = ("peft_type", "base_model_name_or_path", "peft_version", "auto_mapping", "revision",
                         "inference_mode", "task_type")  # fmt: skip


def read_adapter_rows(name: str, path: Path) -> CaseSet:
    """`name` is the truth file's, without its ending."""
    columns, rebuild = ADAPTER_SETS[name]
    cases, skipped = [], []
    for row in read_rows(path, columns):
        run = rebuild(row)
        if isinstance(run, str):
            skipped.append(Skipped(str(row.number), run))
        else:
            cases.append(_case(name, row, run))
    return CaseSet(name, tuple(cases), tuple(skipped))


def _case(name: str, row: Row, run: _Run) -> Case:
    asked = run.options
    told = f"{row.number} {run.job.rpartition('/')[2]} x{asked.get('batch_size', 1)} {asked.get('seq_len', '')}"
    return Case(
        data=name,
        campaign=name,
        row=f"{told} {asked.get('quantization') or ''} {asked.get('adapter') or 'full'}"[:80],
        family=run.family,
        workload=Workload.create(run.job, **asked),
        gpu=run.gpu,
        stack=run.stack,
        measure=run.measure,
        measured=run.measured,
        ran=True,
        notes=run.notes,
        more_context=run.more_context,
    )


# -------- Qwen of 2023: one A100, its README's table

_QWEN_CONTEXT = 600 * MiB
"""What these processes hold beyond the catalogue's 530 MiB: read off six rows, which say 0 to 850. flash-attention's
library alone has kernels of some hundred MiB."""
_QWEN_TARGETS = ["c_attn", "c_proj", "w1", "w2"]


def _qwen(row: Row) -> _Run | str:
    """`finetune.py` of QwenLM/Qwen with its shell scripts: Trainer, bf16, checkpointing, LoRA of rank 64.

    The table's memory is in decimal GB and holds the context (nvidia-smi's, it seems: the file does not name its
    counter), with CUDA 11.8, torch 2.0 and flash-attention 2.
    """
    size = re.fullmatch(r"Qwen-([\d.]+B)", row.text("model"))
    if size is None:
        return f"the blocks of {row.text('model')} are not written here"
    if "80G" not in row.text("gpu") or re.match(r"\d+ ?x", row.text("gpu")):
        return "several GPUs: no reader yet"
    method = row.text("method").lower()
    if "full" in method or "q-lora" in method:
        return "DeepSpeed's engine on one GPU, whose version and buffers are not published"
    options: dict[str, Any] = {
        "batch_size": row.whole("micro_batch"),
        "seq_len": row.whole("seq_len"),
        "accumulation": min(row.whole("grad_accum"), 2),  # gradients live from one micro-batch to the next
        "steps": 2,
        "weights": "bf16",
        "precision": "amp-bf16",
        "optimizer": "adamw",
        "checkpointing": True,
        "training_loop": "hf-trainer",
        "zero_grad": "after-step",
        "adapter": Adapter.create(
            "lora", r=64, lora_alpha=16, lora_dropout=0.05, target_modules=_QWEN_TARGETS,
            modules_to_save=["wte", "lm_head"] if "emb" in method else None,
        ),
    }  # fmt: skip
    return _Run(
        f"hf:Qwen/Qwen-{size[1].replace('.', '_')}",
        f"qwen {method}",
        "a100-80gb",
        "torch-2.0",
        options,
        Measure.DEVICE_TOTAL,
        round(row.number_in("memory_gb") * 1e9),
        more_context=_QWEN_CONTEXT,
    )


# -------- peft's comparison of its methods

_LONGEST_BATCH = {768: 698}
"""`max_seq_length` → tokens of the longest batch of MetaMathQA as that script samples it (samples of at most 1,300
characters, sorted within buckets of 80). The texts are not here: the length is the one that four methods' figures agree
on (BEFT, OFT, RoAd, VeRA: 689 to 702); it holds for all runs, which share seed and data."""


def _peft_run(row: Row, model: str, length: int, adapter: Mapping[str, Any] | None, fp32: bool, gpu: str,
              measured: int, **more: Any) -> _Run | str:  # fmt: skip
    if adapter and "peft_type" not in adapter:
        return "its adapter's method is not published"
    if find_spec("peft") is None:
        return "its adapter needs peft, which is not installed"
    settings = {k: v for k, v in (adapter or {}).items() if v is not None and k not in _LEFT_OUT_OF_SETTINGS}
    options: dict[str, Any] = {
        "batch_size": row.whole("batch_size" if "batch_size" in row.cells else "batch_size_per_gpu"),
        "seq_len": _LONGEST_BATCH.get(length, length),
        "steps": 2,
        "weights": "bf16",
        "optimizer": "adamw",
        "trained_weights": None if fp32 else "bf16",
        **more,
    }
    if adapter:
        options["adapter"] = Adapter.create(str(adapter["peft_type"]), **settings)
    return _Run(
        f"hf:{model}", str((adapter or {}).get("peft_type", "full")).lower(), gpu, "torch-2.13-cu130", options,
        Measure.RESERVED, measured, f"the longest batch is assumed to have {options['seq_len']} tokens",
    )  # fmt: skip


def _gpu_of(told: str) -> str | None:
    """`NVIDIA L40S` → `l40s`."""
    name = told.removeprefix("NVIDIA ").strip().lower().replace(" ", "-")
    try:
        return find_gpu(name).name
    except Exception:  # an unknown card is a reason to leave the row out, whatever is wrong with its name
        return None


def _peft_bytes(row: Row) -> _Run | str:
    if row.get("compile") == "True":
        return _COMPILED
    if not row.get("max_seq_length"):
        return "its model needs diffusers, whose names are not offered"
    if row.get("dtype") != "bfloat16":
        return f"weights in {row.get('dtype') or 'an unnamed type'}: no reader yet"
    try:
        adapter = json.loads(row.get("peft_config") or "null")
        system = json.loads(row.get("system") or "{}")
    except ValueError:
        return "the settings of its adapter are cut short in the file"
    gpu = _gpu_of(str(system.get("accelerator", "")))
    if gpu is None:
        return "its GPU is not in the catalogue"
    return _peft_run(
        row, row.text("model"), row.whole("max_seq_length"), adapter, row.get("autocast") != "False", gpu,
        row.whole("accelerator_memory_max"),
    )  # fmt: skip


def _peft_comparison(row: Row) -> _Run | str:
    if row.text("metric") != "reserved":
        return "a mean at the end of steps, not a peak"
    if "images" in row.get("input_shape"):
        return "its model needs diffusers, whose names are not offered"
    told = row.get("extra_settings")
    if "compile=True" in told:
        return _COMPILED
    if not row.text("optimizer").startswith("AdamW"):
        return f"the optimizer {row.text('optimizer').split()[0]} of peft is not offered by name"
    if not row.text("precision").startswith("bfloat16; use_amp=False"):
        return "another precision than bfloat16 without autocast: no reader yet"
    length = re.search(r"<= (\d+) per sample", row.get("input_shape"))
    settings = re.search(r"peft_config=(\{.*?\}|None); use_gc=(\w+)", told)
    if length is None or settings is None:
        return "the row does not tell enough to rebuild it"
    gpu = _gpu_of(row.text("gpu"))
    if gpu is None:
        return "its GPU is not in the catalogue"
    return _peft_run(
        row, row.text("model"), int(length[1]), ast.literal_eval(settings[1]),
        "autocast_adapter_dtype=False" not in row.text("precision"), gpu, row.gib("value_gib", find_gpu(gpu)),
        checkpointing=settings[2] == "True",
    )  # fmt: skip


ADAPTER_SETS: Mapping[str, tuple[tuple[str, ...], Callable[[Row], _Run | str]]] = {
    "qwen_finetune": (("model", "method", "seq_len", "micro_batch", "grad_accum", "gpu", "memory_gb"), _qwen),
    "peft_bytes": (
        ("model", "batch_size", "dtype", "max_seq_length", "autocast", "compile", "peft_config", "system",
         "accelerator_memory_max"), _peft_bytes),
    "peft_method_comparison": (
        ("model", "gpu", "precision", "optimizer", "batch_size_per_gpu", "input_shape", "extra_settings", "metric",
         "value_gib"), _peft_comparison),
}  # fmt: skip
"""Name of the file → the columns that decide, and who rebuilds a row or says why it cannot be."""
