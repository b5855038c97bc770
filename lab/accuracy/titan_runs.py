"""torchtitan's published runs on several GPUs: its command lines for Qwen3, and the tables of its documents.

Many runs tried a change of torchtitan's own source, which only the run's name tells. Those that change what is held are
left out with the reason; what concerns NCCL, logging or the loader is not looked at.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from oomcast.devices import find_gpu
from oomcast.spec import Workload
from oomcast.units import GiB

from .cases import Case, CaseSet, Measure, Skipped
from .table import Row, read_rows
from .titan_2026 import LLAMA3, QWEN3, TitanDecoderJob
from .unbuilt import LOW_PRECISION

__all__ = ["TITAN_SETS", "read_titan_runs"]

_STACK = "torch-2.13-cu130"
_ALLOC_CONF = "expandable_segments:True"
"""As torchtitan's run_train.sh sets it; the logs of the runs show it."""
_CHANGED = (
    (r"(?:mx|nv)fp[48](?!\w)|fp8.*no-(?:auto-)?filter|float8", LOW_PRECISION),
    (r"cp\d|context.parallel", "context parallel flex attention is not offered for job files"),
    (r"optimizer-in-backward", "the optimizer in backward is not offered beside FSDP2"),
    (r"max-autotune", "what Inductor holds while it times kernels on the GPU is not known"),
    (
        r"symm-mem|pg-alloc|fsdp-groups|partial-reshard|(?:root-fsdp|layers?)-no-reshard|cudagraphs",
        "its source was changed: units or pools",
    ),
)
"""Words in the name of a run → why it is left out.

`fp8` alone changes nothing: torchtitan at 04c966d hands torchao's automatic filter the configuration of a layer, which
is not an `nn.Linear`, so no layer is converted. A head that is not resharded is not either: the loss in pieces keeps it
gathered.
"""
_AFTER = re.compile(r"rerun-after-[a-z0-9-]*?(?:probes|restore|closure)|no-fp8")
"""What was tried before, or left out, is in the names of runs as well."""


def read_titan_runs(name: str, path: Path) -> CaseSet:
    cases: list[Case] = []
    skipped: list[Skipped] = []
    columns, read = TITAN_SETS[name]
    for row, found in read(list(read_rows(path, columns))):
        if isinstance(found, str):
            skipped.append(Skipped(str(row.number), found))
        else:
            cases.append(found)
    return CaseSet(name, tuple(cases), tuple(skipped))


def _commands(rows: list[Row]) -> Iterator[tuple[Row, Case | str]]:
    ran = {_without_folder(row.get("command")) for row in rows if row.get("mem_gib_max") and row.get("oom") != "True"}
    for row in rows:
        is_out = row.get("oom") == "True"
        if is_out and _without_folder(row.get("command")) in ran:
            yield row, "the same command ran in another row"
        else:
            yield row, _command(row, is_out)


def _without_folder(command: str) -> str:
    return re.sub(r"--dump_folder=\S+", "", command)


def _command(row: Row, is_out: bool) -> Case | str:
    size = re.search(r"--config qwen3_(\w+)", row.get("command"))
    if size is None or size[1] not in QWEN3:
        return "the row does not tell enough to rebuild it"
    run = _AFTER.sub("", row.text("run"))
    for pattern, reason in _CHANGED:
        if re.search(pattern, run):
            return reason
    if not is_out and not row.get("mem_gib_max"):
        return "it has no figure"
    said = dict(_said(row.text("command")))
    world, length = row.whole("world"), int(said.get("training.seq_len", 4096))
    batch = int(said.get("training.local_batch_size", 4))
    compiled = tuple(re.findall(r"[a-z_]+", said.get("compile.components", "model,loss")))
    job = TitanDecoderJob(
        QWEN3[size[1]],
        length,
        int(said.get("loss.num_chunks", 8)),
        compiled if "compile.enable" in said else (),
        bf16=said.get("training.dtype") == "bfloat16",
        prefetches="prefetch" in row.text("run"),
        recompute="full" if "full-ac" in row.text("run") else "none",
        memory_budget=float(said.get("activation_checkpoint.memory_budget", 1)),
        attention="flex" if "flex" in row.text("run") else "sdpa",
        reshards=said.get("parallelism.fsdp_reshard_after_forward") != "never",
    )
    if not set(job.compiled) <= {"model", "loss", "feed_forward", "norms"}:
        return f"torch.compile of {', '.join(job.compiled)} is not written here"
    gpu = find_gpu(row.text("gpu").removeprefix("NVIDIA "))
    copies = int(said.get("parallelism.data_parallel_replicate_degree", 1))
    tokens = int(said.get("training.global_batch_size", batch * world))
    return Case(
        data="torchtitan_qwen3_14b",
        campaign="torchtitan_qwen3_14b",
        row=f"{row.number} {batch}x{length} {'+'.join(job.compiled) or 'eager'} {job.attention}",
        family=f"qwen3 {batch * length}",
        workload=Workload.create(
            job,
            batch_size=batch,
            precision="amp-bf16",
            parallel=f"fsdp2,replicate={copies}" if copies > 1 else "fsdp2",
            accumulation=min(tokens // (batch * world), 2),
        ),
        gpu=f"{world}x{gpu.name}",
        stack=_STACK,
        measure=Measure.RESERVED,
        measured=None if is_out else row.gib("mem_gib_max", gpu),
        ran=not is_out,
        alloc_conf=_ALLOC_CONF,
        notes=row.text("run"),
    )


def _said(command: str) -> Iterator[tuple[str, str]]:
    words = shlex.split(command)
    for place, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            following = words[place + 1] if place + 1 < len(words) else ""
            yield name, value if equals or following.startswith("--") else following


def _tables(rows: list[Row]) -> Iterator[tuple[Row, Case | str]]:
    return ((row, _table(row)) for row in rows)


def _table(row: Row) -> Case | str:
    try:
        cells = json.loads(row.text("row"))
    except ValueError:
        return "the row is cut short in the file"
    method = str(cells.get("Run") or cells.get("Scaling Method") or "")
    if not re.search(r"bf(loat)?16", method, re.IGNORECASE) or re.search(r"fp\d", method, re.IGNORECASE):
        return LOW_PRECISION
    figure = re.match(r"([\d.]+) GiB", str(cells.get("Memory") or cells.get("Peak Reserved Memory") or ""))
    layout = re.search(r"local batch size (\d+), FSDP degree\s+(\d+)", row.get("context"))
    if figure is None:
        return "the row does not tell its model, its batch and its GPUs"
    if layout is not None and "Llama 3 8B" in row.get("section"):
        batch, world, name = int(layout[1]), int(layout[2]), "llama 8B"
        shape, attention = LLAMA3["8B"], "flex"
    elif "layers 30-35 plus the LM head" in row.get("context"):
        # The document's words above the table: Qwen3 8B, local batch size 16, FSDP degree 4, sequence length 2048. Its
        # kernel for sequences of several lengths keeps what flash attention keeps.
        batch, world, name = 16, 4, "qwen3 8B"
        shape, attention = replace(QWEN3["8b"], fused_qkv=True), "sdpa"
    else:
        return "the row does not tell its model, its batch and its GPUs"
    job = TitanDecoderJob(
        shape,
        2048,
        8,
        ("model",),
        bf16=False,
        prefetches=False,
        recompute="selective",
        attention=attention,
        embeds_apart=True,
    )
    return Case(
        data="torchtitan_tables",
        campaign="torchtitan_tables",
        row=f"{row.number} {name} x{batch}",
        family=name.split()[0],
        workload=Workload.create(job, batch_size=batch, precision="amp-bf16", parallel="fsdp2"),
        gpu=f"{world}xb200",
        stack=_STACK,
        measure=Measure.RESERVED,
        measured=round(float(figure[1]) * GiB),
        ran=True,
        # Their command is torchrun itself, not run_train.sh: no expandable segments.
        notes="length 2048, as in the command of the same document",
    )


TITAN_SETS: Mapping[str, tuple[tuple[str, ...], Callable[[list[Row]], Iterator[tuple[Row, Case | str]]]]] = {
    "torchtitan_qwen3_14b": (("run", "gpu", "world", "mem_gib_max", "oom", "command"), _commands),
    "torchtitan_tables": (("section", "context", "row"), _tables),
}
"""Name of the file → the columns that are read, and who reads the rows."""
