"""Published runs on several GPUs that job files can express: torchtitan's in bf16, llm-foundry's, DLRover's FSDP."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomcast.devices import find_gpu
from oomcast.spec import Workload

from .atorch_job import AtorchLlamaJob
from .cases import Case, CaseSet, Measure, Skipped
from .galvatron.rows import GALVATRON_COLUMNS, read_galvatron
from .megatron.rows import MEGATRON_COLUMNS, read_megatron
from .table import Row, read_rows
from .titan_jobs import SHAPES, TitanJob
from .unbuilt import LOW_PRECISION

__all__ = ["SEVERAL_GPUS_SETS", "MptJob", "read_several_gpus"]


@dataclass(frozen=True)
class MptJob:
    """MPT as llm-foundry's benchmark trains it: biases, layer norms, learned positions, tied head, flash attention."""

    width: int
    depth: int
    heads: int
    length: int

    def model(self) -> Any:
        from .mpt_model import Mpt

        return Mpt(self.width, self.depth, self.heads, self.length)

    def batch(self, batch_size: int) -> Any:
        import torch

        tokens = torch.randint(50368, (batch_size, self.length))
        return tokens, tokens.clone()

    def loss(self, model: Any, batch: Any) -> Any:
        from .mpt_model import fused_cross_entropy

        tokens, labels = batch
        return fused_cross_entropy(model(tokens).flatten(0, 1), labels.flatten()).mean()


_MPT = {
    "125m": (768, 12, 12),
    "350m": (1024, 24, 16),
    "760m": (1536, 24, 12),
    "1b": (2048, 24, 16),
    "3b": (2560, 32, 20),
    "7b": (4096, 32, 32),
    "13b": (5120, 40, 40),
    "30b": (7168, 48, 56),
    "70b": (8192, 80, 64),
}
"""Width, layers, heads, as in scripts/train/yamls/pretrain of mosaicml/llm-foundry at 8c8dd48."""
_MPT_SHARDING = {"FULL_SHARD": "fsdp", "SHARD_GRAD_OP": "fsdp,no-reshard"}
_MPT_REDUCTION = {"DEFAULT": "", "PURE": ",reduce-half"}
"""Composer's modes of mixed precision: `PURE` reduces gradients in the 16 bits of the parameters, `DEFAULT` in fp32, as
https://github.com/mosaicml/composer/blob/v0.16.4/composer/trainer/mosaic_fsdp_utils.py#L68-L99 says, which is what
llm-foundry asked for when most of the rows were written (b2a43a1)."""
_MPT_PRECISION = {
    "amp_bf16": "",
    "bf16": "",
    "amp_fp8": "its layers are taken in bf16: TransformerEngine keeps what backward needs in 8 bits, which is no more",
}
"""Its precision → what is taken otherwise. Shards are fp32 in all of them: Composer hands FSDP the precision alone."""


def _llm_foundry(row: Row) -> Case | str:
    size, length, world = row.text("Model"), row.whole("SeqLen (T)"), row.whole("# GPUs")
    precision, sharding, mixing = row.text("Precision"), row.text("Sharding Strategy"), row.text("MP Mode")
    if size not in _MPT:
        return f"the sizes of MPT {size} are not written here"
    if precision not in _MPT_PRECISION:
        return f"the precision {precision} is not written here"
    if mixing not in _MPT_REDUCTION:
        return f"the mode {mixing} of mixed precision is not written here"
    if sharding not in _MPT_SHARDING:
        return f"{sharding} is not offered for job files"
    if row.text("Activation CPUOffload") == "True":
        return "activations on the host are not offered for job files"
    return Case(
        data="llm_foundry_ran",
        campaign="llm_foundry_ran",
        row=f"{row.number} {size} {length} x{world}",
        family=f"mpt-{size}",
        workload=Workload.create(
            MptJob(*_MPT[size], length),
            batch_size=row.whole("MicroBatchSize"),
            precision="amp-bf16",
            optimizer="adamw",
            accumulation=min(row.whole("GradAccum"), 2),  # more micro-batches hold nothing more
            checkpointing=row.text("Activation Checkpointing") == "True",
            steps=2,
            parallel=_MPT_SHARDING[sharding] + _MPT_REDUCTION[mixing],
        ),
        gpu=_machines(world, row.text("GPU").replace("_", "-")),
        stack="torch-2.1",
        measure=Measure.BOUNDARY,
        measured=None,
        ran=True,
        notes=_MPT_PRECISION[precision],
    )


def _machines(world: int, gpu: str) -> str:
    """In nodes of eight, as all of these campaigns have them."""
    return f"{world // 8}x8x{gpu}" if world % 8 == 0 else f"{world}x{gpu}"


_CARDS = {"H100 96GB": "gh200-96gb"}
"""The H100 with 96 GB that Meta's servers have is in no shop; its memory is that of this one."""


def _torchtitan(row: Row) -> Case | str:
    extra = row.get("extra_settings")
    if "loat8" in extra or "loat8" in row.get("precision"):
        return LOW_PRECISION
    size = re.search(r"(\d+B)", row.text("model"))
    world = re.match(r"\s*(\d+)x\s*(.+)", row.text("gpu"))
    length = re.match(r"\d+x(\d+) tokens", row.get("input_shape"))
    recompute = re.search(r"AC=(selective|full|none)", extra)
    if size is None or size[1] not in SHAPES or world is None or length is None:
        return "the row does not tell enough to rebuild it"
    ways = extra.partition(";")[0]
    if ways not in ("FSDP", "FSDP + torch.compile"):
        return f"{ways}: no reader yet"
    gpu = find_gpu(_CARDS.get(world[2].strip(), world[2]))
    return Case(
        data="torchtitan",
        campaign="torchtitan",
        row=f"{row.number} {size[1]} x{world[1]}",
        family="llama",
        workload=Workload.create(
            TitanJob(SHAPES[size[1]], int(length[1]), recompute[1] if recompute else "none"),
            batch_size=row.whole("batch_size_per_gpu"),
            precision="amp-bf16",
            parallel="fsdp2",
            compile="blocks" if "compile" in ways else None,
        ),
        gpu=f"{world[1]}x{gpu.name}",
        stack="torch-2.6",
        measure=Measure.RESERVED,
        measured=row.gib("value_gib", gpu),
        ran=True,
        notes=extra,
    )


def _dlrover(row: Row) -> Case | str:
    world = row.whole("Num of GPUs")
    if row.text("method") != "FSDP":
        return "DeepSpeed's pipeline engine is not offered for job files"
    if row.text("Use LoRA") != "No":
        return "ATorch's own way to wrap what an adapter trains is not offered for job files"
    if row.text("model") != "Llama2-7b" or world % 8:
        return "the row does not tell enough to rebuild it"
    gpu = find_gpu(row.text("gpu").lower())
    return Case(
        data="dlrover_llama2",
        campaign="dlrover_llama2",
        row=f"{row.number} FSDP x{world}",
        family="llama",
        workload=Workload.create(
            AtorchLlamaJob(),
            batch_size=row.whole("Batch Per GPU"),
            precision="amp-bf16",
            optimizer="adamw",
            accumulation=min(row.whole("Grad Accu Steps"), 2),
            checkpointing=True,
            zero_grad="after-step",
            steps=2,
            parallel="fsdp,reduce-half",
        ),
        gpu=_machines(world, gpu.name),
        stack="torch-2.1",
        measure=Measure.ALLOCATED,
        measured=row.mib("Mem Max allocated(MB)", gpu),
        ran=True,
    )


SEVERAL_GPUS_SETS: Mapping[str, tuple[tuple[str, ...], Callable[[Row], Case | str]]] = {
    "megatron_golden": (MEGATRON_COLUMNS, read_megatron),
    "galvatron_profiles": (GALVATRON_COLUMNS, read_galvatron),
    "torchtitan": (("model", "gpu", "precision", "batch_size_per_gpu", "input_shape", "extra_settings", "value_gib"),
                   _torchtitan),
    "llm_foundry_ran": (("Model", "SeqLen (T)", "# GPUs", "GPU", "MicroBatchSize", "GradAccum", "Precision",
                         "MP Mode", "Sharding Strategy", "Activation Checkpointing", "Activation CPUOffload"),
                        _llm_foundry),
    "dlrover_llama2": (("model", "gpu", "method", "Use LoRA", "Num of GPUs", "Batch Per GPU", "Grad Accu Steps",
                        "Mem Max allocated(MB)"), _dlrover),
}  # fmt: skip
"""Name of the file → the columns that are read, and who reads a row."""


def read_several_gpus(name: str, path: Path) -> CaseSet:
    columns, read = SEVERAL_GPUS_SETS[name]
    cases, skipped = [], []
    for row in read_rows(path, columns):
        found = read(row)
        if isinstance(found, str):
            skipped.append(Skipped(str(row.number), found))
        else:
            cases.append(found)
    return CaseSet(name, tuple(cases), tuple(skipped))
