"""Published tables of fine-tuning with adapters and quantised weights, asked as a user would: `hf:` names and options.

Qwen's own table (lengths stated), peft's comparison of its methods (real data: the assumed length is said), ms-swift's
benchmark.
"""

from __future__ import annotations

import ast
import json
import math
import random
import re
from collections.abc import Callable, Mapping
from importlib import metadata
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
    length = asked.get("seq_len") or max(asked.get("lengths", ("",)))
    told = f"{row.number} {run.job.rpartition('/')[2]} x{asked.get('batch_size', 1)} {length}"
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

_QWEN_CONTEXT = 1130 * MiB
"""What these processes hold beyond the catalogue's 530 MiB, read off the rows of LoRA on the smallest model. Together
1,660 MiB: torch on an A100 holds 1,430 where every kernel is loaded at once (`stacks.json`), and flash-attention's
library comes to that."""
_QWEN_UNIT = 1000 * MiB
"""nvidia-smi prints MiB, and the table drops the last three digits. As 10⁹ bytes, the figures of the 14B model would
lie 1 to 2 GB below those of the 1.8B one; as GiB, above."""
_QWEN_TARGETS = ["c_attn", "c_proj", "w1", "w2"]


def _qwen(row: Row) -> _Run | str:
    """`finetune.py` of QwenLM/Qwen with its shell scripts: Trainer, bf16, checkpointing, LoRA of rank 64.

    The table's memory holds the context (nvidia-smi's, it seems: the file does not name its counter), with CUDA 11.8,
    torch 2.0 and flash-attention 2.
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
        round(row.number_in("memory_gb") * _QWEN_UNIT),
        more_context=_QWEN_CONTEXT,
    )


# -------- peft's comparison of its methods

_SHORT_BATCH = 64
"""Tokens of the batch before the longest one. peft's script (method_comparison/MetaMathQA) sorts every 20 batches from
long to short and empties the cache after every tenth step: so the longest batch finds an empty cache, the optimizer's
state, and the logits of a short batch, whose length hardly matters. The longest has `max_seq_length` tokens: the script
cuts there, and says that it chose its texts to come just below."""


_WRITTEN_ANEW = {"OSF": (0, 21)}
"""Methods whose code holds something else from a version of peft on. OSF held both factors of every weight beside it;
now it holds what is trained, and the half of a factor that cannot be computed from that."""


def _other_code(adapter: Mapping[str, Any] | None) -> bool:
    """Whether a row was measured with other code of its method than the installed peft's."""
    changed = _WRITTEN_ANEW.get(str((adapter or {}).get("peft_type", "")))
    if changed is None or find_spec("peft") is None:
        return False
    told = str((adapter or {}).get("peft_version") or "0")
    return (_numbers(told) < changed) != (_numbers(metadata.version("peft")) < changed)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", version)[:2])


def _peft_run(row: Row, model: str, length: int, adapter: Mapping[str, Any] | None, fp32: bool, gpu: str,
              measured: int, **more: Any) -> _Run | str:  # fmt: skip
    if adapter and "peft_type" not in adapter:
        return "its adapter's method is not published"
    if find_spec("peft") is None:
        return "its adapter needs peft, which is not installed"
    if _other_code(adapter):
        return f"peft's code of {adapter and adapter['peft_type']} held something else in the version that was measured"
    settings = {k: v for k, v in (adapter or {}).items() if v is not None and k not in _LEFT_OUT_OF_SETTINGS}
    options: dict[str, Any] = {
        "batch_size": row.whole("batch_size" if "batch_size" in row.cells else "batch_size_per_gpu"),
        "lengths": (_SHORT_BATCH, length),
        "empty_cache_steps": 1,
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
        Measure.RESERVED, measured, f"the longest batch is assumed to have {length} tokens, the most that pass",
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


# -------- ms-swift's benchmark: one A100, `max_memory_reserved` in GiB

_SWIFT_MODELS = {
    "qwen-1_8b-chat": ("hf:Qwen/Qwen-1_8B", ["c_attn"]),
    "qwen-7b-chat": ("hf:Qwen/Qwen-7B", ["c_attn"]),
    "qwen-14b-chat": ("hf:Qwen/Qwen-14B", ["c_attn"]),
    "qwen-72b-chat": ("hf:Qwen/Qwen-72B", ["c_attn"]),
    "yi-6b-chat": ("hf:01-ai/Yi-6B", ["q_proj", "k_proj", "v_proj"]),
    "yi-34b-chat": ("hf:01-ai/Yi-34B", ["q_proj", "k_proj", "v_proj"]),
    "openbuddy-zephyr-7b-chat": ("hf:mistralai/Mistral-7B-v0.1", ["q_proj", "k_proj", "v_proj"]),
}
"""swift's name → ours, and the modules that its `DEFAULT` targets."""
_SWIFT_ALL = {"Qwen": ["c_attn", "c_proj", "w1", "w2"]}
_SWIFT_QUANTISED = {"int4 (bnb)": "nf4-double", "int4 (gptq)": "gptq-int4", "int8 (gptq)": "gptq-int8"}


_SWIFT_BATCHES = 48
"""The runs saw a thousand or more; what matters is that short ones come after long ones and long ones after short."""


def _swift_lengths(longest: int, batch_size: int) -> tuple[int, ...]:
    """Lengths of batches from what the page tells of its texts: 3,234.4 ± 2,547.5 tokens, at least 91.

    A logarithmic normal distribution of that mean and deviation, cut at `longest`; a batch is as long as its longest
    text. The draws are seeded, and the last batch but one has the longest text: of some thousand texts one has it.
    """
    spread = math.log(1 + (2547.5 / 3234.4) ** 2)
    middle = math.log(3234.4) - spread / 2
    draw = random.Random(0)
    found: list[int] = []
    while len(found) < _SWIFT_BATCHES:
        texts: list[int] = []
        while len(texts) < batch_size:
            length = round(draw.lognormvariate(middle, math.sqrt(spread)))
            if 91 <= length <= longest:
                texts.append(length)
        found.append(max(texts))
    return (*found[:-2], longest, found[-1])


def _ms_swift(row: Row) -> _Run | str:
    """`swift sft` with the settings that its page names: Trainer, bf16, LoRA of rank 8, checkpointing, batch 1, texts
    of at most 2,048 tokens unless the row says otherwise.

    Longer texts are left out: swift's default, which its benchmark changed no more when these figures were added
    (modelscope/ms-swift at 97e4d198b, scripts/benchmark/test_memory_time/run_single.py). The figure is what the
    allocator has reserved after a thousand texts, after all of them where at most 2,048 tokens are taken.
    """
    figure = row.get("GPU Memory (GiB)")
    if row.get("memory"):
        return "its texts' lengths are not published"
    if not figure:
        return "several GPUs: no reader yet" if row.get("Total steps") else "it has no figure"
    name = row.get("Model Type [LoRA]") or row.text("Model Type [FULL]")
    if "+" in figure or "A100" in name:
        return "several GPUs: no reader yet"
    if name not in _SWIFT_MODELS:
        return f"the blocks of {name} are not written here"
    job, targets = _SWIFT_MODELS[name]
    if row.get("LoRA Target Modules").startswith("ALL"):
        targets = _SWIFT_ALL["Qwen"]
    quantised = row.get("Quantization")
    if quantised not in ("", "bf16", *_SWIFT_QUANTISED):
        return f"{quantised} weights: no reader yet"
    accumulation = row.whole("Gradient Accumulation Steps") if row.get("Gradient Accumulation Steps") else 16
    is_full = bool(row.get("Model Type [FULL]"))
    longest = row.whole("Max Length") if row.get("Max Length") else 2048
    batch_size = row.whole("Batch Size") if row.get("Batch Size") else 1
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "lengths": _swift_lengths(longest, batch_size),
        "accumulation": min(accumulation, 2),  # gradients live from one micro-batch to the next
        "steps": 2,
        "weights": "bf16",
        "precision": "amp-bf16",
        "optimizer": "adamw",
        "checkpointing": row.get("Gradient Checkpointing") != _NO,
        "training_loop": "hf-trainer",
        "zero_grad": "after-step",
        "attention": "eager" if row.get("Use Flash Attn") == _NO else None,
        "quantization": _SWIFT_QUANTISED.get(quantised),
    }
    if not is_full:
        rank = row.whole("LoRA Rank") if row.get("LoRA Rank") else 8
        options["adapter"] = Adapter.create("lora", r=rank, lora_alpha=32, lora_dropout=0.05, target_modules=targets)
    return _Run(
        job, f"{name} {'full' if is_full else 'lora'}", "a100-80gb", "torch-2.1", options, Measure.RESERVED,
        row.gib("GPU Memory (GiB)", find_gpu("a100-80gb")),
        f"{_SWIFT_BATCHES} batches of lengths drawn from the published distribution, up to {longest} tokens",
    )  # fmt: skip


_NO = "✘"
_SWIFT_COLUMNS = (
    "GPU Memory (GiB)", "memory", "Total steps", "Model Type [LoRA]", "Model Type [FULL]", "Quantization",
    "Max Length", "Batch Size", "Use Flash Attn", "Gradient Checkpointing", "LoRA Rank", "LoRA Target Modules",
    "Gradient Accumulation Steps",
)  # fmt: skip

ADAPTER_SETS: Mapping[str, tuple[tuple[str, ...], Callable[[Row], _Run | str]]] = {
    "qwen_finetune": (("model", "method", "seq_len", "micro_batch", "grad_accum", "gpu", "memory_gb"), _qwen),
    "peft_bytes": (
        ("model", "batch_size", "dtype", "max_seq_length", "autocast", "compile", "peft_config", "system",
         "accelerator_memory_max"), _peft_bytes),
    "peft_method_comparison": (
        ("model", "gpu", "precision", "optimizer", "batch_size_per_gpu", "input_shape", "extra_settings", "metric",
         "value_gib"), _peft_comparison),
    "ms_swift": (_SWIFT_COLUMNS, _ms_swift),
}  # fmt: skip
"""Name of the file → the columns that decide, and who rebuilds a row or says why it cannot be."""
