"""Whole commands on large models, as a user types them: seconds, processor time and resident memory of each."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .process_costs import PeakResident
from .report import Bar, Outcome

__all__ = ["run"]


@dataclass(frozen=True)
class _Command:
    what: str
    words: str
    seconds: float
    mib: int


_QLORA = (
    "--batch-size 1 --seq-len 4096 --weights bf16 --precision amp-bf16 --quantization nf4-double "
    "--adapter lora,r=16,target_modules=all-linear --optimizer paged-adamw-8bit --checkpointing "
    "--training-loop hf-trainer --steps 2"
)
_LORA = (
    "--batch-size 1 --seq-len 4096 --weights bf16 --precision amp-bf16 --checkpointing --training-loop hf-trainer "
    "--steps 2 --adapter lora,r=16,target_modules=q_proj+v_proj"
)
_COMMANDS = (
    _Command("QLoRA, 8B", f"estimate hf:meta-llama/Llama-3.1-8B {_QLORA} --device rtx-4090", 10, 1536),
    _Command("QLoRA, 70B", f"estimate hf:meta-llama/Llama-3.1-70B {_QLORA} --device h100-80gb", 15, 1536),
    _Command("LoRA, 100 layers of 256 experts", f"estimate {{experts}} {_LORA} --device b200", 60, 1536),
    _Command(
        "plan of a 70B model over 64 GPUs",
        "plan zoo:llama-2-70b --batch-size 1 --seq-len 4096 --precision amp-bf16 --device 8x8xh100-80gb --captures 8",
        180,
        2048,
    ),
    _Command(
        "a 70B model on 1,024 GPUs",
        "estimate zoo:llama-3-70b --batch-size 1 --seq-len 8192 --precision amp-bf16 --checkpointing --steps 2 "
        "--device 128x8xh100-80gb --parallel fsdp2,tp=8",
        60,
        2048,
    ),
)
_EXPERTS = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 4096, "num_hidden_layers": 100,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 12288,
    "moe_intermediate_size": 1536, "num_experts": 256, "num_experts_per_tok": 8, "vocab_size": 151936,
}  # fmt: skip
"""No public model has as many; the sizes of one layer are a public model's (Qwen3-235B), with twice its experts."""


def run(groundtruth: Path, progress: Callable[[str], None]) -> Outcome:
    table, bars = [], []
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        experts = Path(folder) / "config.json"
        experts.write_text(json.dumps(_EXPERTS), encoding="utf-8")
        for command in _COMMANDS:
            progress(command.what)
            seconds, cpu, mib = _cost(command.words.format(experts=experts).split())
            load = os.getloadavg()[0]
            table.append((command.what, f"{seconds:.1f}", f"{cpu:.1f}", f"{mib:,.0f}", f"{load:.1f}"))
            # On a busy machine the wall clock tells of the others: the processor's own time is what is judged then.
            judged = cpu if load > cores else seconds
            figure = f"{judged:.1f} s{' of processor time' if load > cores else ''}, {mib:,.0f} MiB"
            holds = judged <= command.seconds and mib < command.mib
            bars.append(Bar(f"{command.what}: within {command.seconds:.0f} s and {command.mib} MiB", figure, holds))
    columns = ("command", "seconds", "processor seconds", "resident MiB", "load")
    return Outcome(f"Cold commands on large models ({cores} cores)", columns, table, bars)


def _cost(words: list[str]) -> tuple[float, float, float]:
    """Seconds, processor seconds, and MiB of the command and all that it started."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    program = [str(Path(sys.executable).with_name("oomcast")), *words]
    process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with process, PeakResident(process.pid) as resident:
        _, said = process.communicate()
    if process.returncode not in (0, 3):
        raise RuntimeError(f"oomcast {' '.join(words)} ended with {process.returncode}: {said.strip()}")
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - started
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, resident.mib
