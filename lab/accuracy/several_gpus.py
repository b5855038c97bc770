"""Published runs on several GPUs that job files can express: torchtitan's eager rows, llm-foundry's configurations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomcast.devices import find_gpu
from oomcast.spec import Workload

from .cases import Case, CaseSet, Measure, Skipped
from .megatron.rows import MEGATRON_COLUMNS, read_megatron
from .table import Row, read_rows
from .titan_jobs import SHAPES, TitanJob
from .unbuilt import COMPILED, QUANTISED

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
        from torch.nn import functional

        tokens, labels = batch
        return functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())


_MPT = {"1b": (2048, 24, 16), "70b": (8192, 80, 64)}
"""Width, layers, heads: their product is the published number of parameters, biases included."""


def _llm_foundry(row: Row) -> Case | str:
    size, length, world = row.text("Model"), row.whole("SeqLen (T)"), row.whole("# GPUs")
    if size not in _MPT:
        return f"the sizes of MPT {size} are not written here"
    precision = row.text("Precision")
    if "fp8" in precision:
        return QUANTISED
    if row.text("Sharding Strategy") != "FULL_SHARD":
        return f"{row.text('Sharding Strategy')} is not offered for job files"
    if row.text("Activation CPUOffload") == "True":
        return "activations on the host are not offered for job files"
    job = MptJob(*_MPT[size], length)
    return Case(
        data="llm_foundry_ran",
        campaign="llm_foundry_ran",
        row=f"{row.number} {size} {length} x{world}",
        family=f"mpt-{size}",
        workload=Workload.create(
            job,
            batch_size=row.whole("MicroBatchSize"),
            precision="amp-bf16" if precision == "amp_bf16" else "bf16",
            optimizer="adamw",
            accumulation=min(row.whole("GradAccum"), 2),  # more micro-batches hold nothing more
            checkpointing=row.text("Activation Checkpointing") == "True",
            steps=2,
            parallel="fsdp",
        ),
        gpu=f"{world // 8}x8x{row.text('GPU').replace('_', '-')}",
        stack="torch-2.1",
        measure=Measure.BOUNDARY,
        measured=None,
        ran=True,
    )


_CARDS = {"H100 96GB": "gh200-96gb"}
"""The H100 with 96 GB that Meta's servers have is in no shop; its memory is that of this one."""


def _torchtitan(row: Row) -> Case | str:
    extra = row.get("extra_settings")
    if "compile" in extra:
        return COMPILED
    if "loat8" in extra or "loat8" in row.get("precision"):
        return QUANTISED
    size = re.search(r"(\d+B)", row.text("model"))
    world = re.match(r"\s*(\d+)x\s*(.+)", row.text("gpu"))
    length = re.match(r"\d+x(\d+) tokens", row.get("input_shape"))
    recompute = re.search(r"AC=(selective|full|none)", extra)
    if size is None or size[1] not in SHAPES or world is None or length is None or not extra.startswith("FSDP;"):
        return "the row does not tell enough to rebuild it"
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
        ),
        gpu=f"{world[1]}x{gpu.name}",
        stack="torch-2.6",
        measure=Measure.RESERVED,
        measured=row.gib("value_gib", gpu),
        ran=True,
        notes=extra,
    )


SEVERAL_GPUS_SETS: Mapping[str, tuple[tuple[str, ...], Callable[[Row], Case | str]]] = {
    "megatron_golden": (MEGATRON_COLUMNS, read_megatron),
    "torchtitan": (("model", "gpu", "precision", "batch_size_per_gpu", "input_shape", "extra_settings", "value_gib"),
                   _torchtitan),
    "llm_foundry_ran": (("Model", "SeqLen (T)", "# GPUs", "GPU", "MicroBatchSize", "GradAccum", "Precision",
                         "Sharding Strategy", "Activation Checkpointing", "Activation CPUOffload"), _llm_foundry),
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
