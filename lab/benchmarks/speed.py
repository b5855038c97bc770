"""What an estimate costs: against plain meta-device steps and the import of torch in the same run, for large models,
and in resident memory."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import oomcast
from oomcast.zoo import find

from .process_costs import PeakResident, processor_seconds
from .report import Bar, Outcome

__all__ = ["Timing", "rows", "run"]

RATIO = 1.0
COLD_RATIO = 2.0
"""Times what importing torch takes."""
HELP_SECONDS = 0.1
SECONDS = {"zoo:llama-2-7b": 2.0, "zoo:llama-2-70b": 3.0, "hf:meta-llama/Llama-3.1-405B": 4.0}
LINEAR_LAYERS, LINEAR_SECONDS = 2000, 3.0
RESIDENT_MIB = 2048
_REPEATS = 5
_BATCH = 32
_STEPS = 3


@dataclass(frozen=True)
class Timing:
    """Seconds, and the largest sum of resident memory of the tool and its capture processes seen meanwhile (MiB)."""

    what: str
    seconds: float
    cpu: float
    """Seconds of processor time, of this process and all it started: what an idle machine would take."""
    resident: float


class _LinearLayers:
    """A job file's functions, of equal layers."""

    @staticmethod
    def model() -> torch.nn.Module:
        return torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(LINEAR_LAYERS)))

    @staticmethod
    def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(batch_size, 1024), torch.zeros(batch_size, dtype=torch.int64)


def _meta_steps() -> float:
    """Three plain training steps on the meta device, as the yardstick of the same machine in the same minute."""
    with torch.device("meta"):
        model = find("resnet50").load().model()
    optimizer = torch.optim.AdamW(model.parameters())
    started = time.perf_counter()
    for _ in range(_STEPS):
        images = torch.empty(_BATCH, 3, 224, 224, device="meta")
        labels = torch.empty(_BATCH, dtype=torch.int64, device="meta")
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return time.perf_counter() - started


def _estimate(job: Any, batch_size: int, **options: Any) -> Timing:
    with PeakResident(os.getpid(), counted_from_now=True) as resident:
        used, started = processor_seconds(), time.perf_counter()
        oomcast.estimate(job, batch_size=batch_size, device="a100-80gb", **options)
        seconds, cpu = time.perf_counter() - started, processor_seconds() - used
    what = job if isinstance(job, str) else f"{LINEAR_LAYERS:,} equal Linear layers"
    return Timing(what, seconds, cpu, resident.mib)


def _command(*words: str) -> tuple[float, float]:
    """Seconds and processor seconds of a whole process and what it starts."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, check=True, capture_output=True)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@dataclass(frozen=True)
class _Commands:
    """Seconds and processor seconds of cold processes, each the least of a few."""

    importing: tuple[float, float]
    estimate: tuple[float, float]
    help: tuple[float, float]


def _commands() -> _Commands:
    program = str(Path(sys.executable).with_name("oomcast"))
    words = [program, "estimate", "zoo:resnet50", "--batch-size", str(_BATCH), "--device", "a100-80gb"]
    importing, estimate, helped = [], [], []
    for _ in range(3):
        importing.append(_command(sys.executable, "-c", "import torch"))
        estimate.append(_command(*words))
        helped.append(_command(program, "--help"))
    return _Commands(min(importing), min(estimate), min(helped))


def rows(progress: Callable[[str], None]) -> tuple[list[float], list[Timing], _Commands, list[Timing]]:
    """Meta steps and warm estimates by turns, cold commands, then the large models."""
    progress("warming up")
    _meta_steps()
    _estimate("zoo:resnet50", _BATCH)
    meta, warm = [], []
    for number in range(_REPEATS):
        progress(f"ResNet-50, {number + 1} of {_REPEATS}")
        meta.append(_meta_steps())
        warm.append(_estimate("zoo:resnet50", _BATCH))
    progress("cold commands")
    cold = _commands()
    large = []
    for job in SECONDS:
        progress(job)
        if job.startswith("hf:"):
            _estimate(job, 1, seq_len=16)  # transformers is loaded once
        large.append(_estimate(job, 1, seq_len=2048))
    progress(f"{LINEAR_LAYERS:,} layers")
    large.append(_estimate(_LinearLayers, _BATCH))
    return meta, warm, cold, large


def run(groundtruth: Path, progress: Callable[[str], None]) -> Outcome:
    meta, warm, cold, large = rows(progress)
    yardstick = statistics.median(meta)
    seconds = statistics.median(timing.seconds for timing in warm)
    resident = max(timing.resident for timing in (*warm, *large))
    ratio = seconds / yardstick
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    is_busy = load > cores
    table = [
        ("three plain meta steps, ResNet-50, median", f"{yardstick:.2f}", "", "1.00", ""),
        (
            "estimate of ResNet-50, warm server, median",
            f"{seconds:.2f}",
            f"{statistics.median(timing.cpu for timing in warm):.2f}",
            f"{ratio:.2f}",
            f"{max(timing.resident for timing in warm):,.0f}",
        ),
        *(
            (what, f"{took[0]:.2f}", f"{took[1]:.2f}", f"{took[0] / yardstick:.2f}", "")
            for what, took in (
                ("import torch, cold", cold.importing),
                ("estimate of ResNet-50, cold command", cold.estimate),
                ("oomcast --help, cold", cold.help),
            )
        ),
    ]
    bars = [Bar(f"an estimate costs at most {RATIO} x three meta steps (warm)", f"{ratio:.2f} x", ratio <= RATIO)]
    # On a busy machine the wall clock tells of the others: the processor's own time is what is judged then.
    times = cold.estimate[is_busy] / cold.importing[is_busy]
    bars.append(
        Bar(f"a cold command takes at most {COLD_RATIO} x `import torch`", f"{times:.2f} x", times <= COLD_RATIO)
    )
    figure = f"{1000 * cold.help[1]:.0f} ms"
    bars.append(Bar("--help takes at most 100 ms of processor time", figure, cold.help[1] <= HELP_SECONDS))
    for timing in large:
        table.append(
            (
                timing.what if timing.what not in SECONDS else f"{timing.what}, 2,048 tokens",
                f"{timing.seconds:.1f}",
                f"{timing.cpu:.1f}",
                "",
                f"{timing.resident:,.0f}",
            )
        )
        limit = SECONDS.get(timing.what, LINEAR_SECONDS)
        figure = f"{timing.seconds:.1f} s, {timing.cpu:.1f} s of processor time"
        judged = timing.cpu if is_busy else timing.seconds
        bars.append(Bar(f"{table[-1][0]} within {limit:.0f} s", figure, judged <= limit))
    bars.append(Bar("resident memory below 2 GB", f"{resident:,.0f} MiB", resident < RESIDENT_MIB))
    return Outcome(
        f"What an estimate costs ({cores} cores, load {load:.1f})",
        ("what", "seconds", "processor seconds", "against three meta steps", "resident MiB"),
        table,
        bars,
        ["others used the machine meanwhile: seconds are judged by processor time"] if is_busy else [],
    )
