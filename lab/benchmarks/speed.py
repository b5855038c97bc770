"""What an estimate costs: against plain meta-device steps in the same run, for large models, and in resident memory."""

from __future__ import annotations

import os
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

RATIO = 2.5
SECONDS = {"zoo:llama-2-7b": 15.0, "zoo:llama-2-70b": 40.0}
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


def _estimate(job: str, batch_size: int, **options: Any) -> Timing:
    with PeakResident(os.getpid(), counted_from_now=True) as resident:
        used, started = processor_seconds(), time.perf_counter()
        oomcast.estimate(job, batch_size=batch_size, device="a100-80gb", **options)
        seconds, cpu = time.perf_counter() - started, processor_seconds() - used
    return Timing(job, seconds, cpu, resident.mib)


def _cold() -> float:
    """The whole command, as a user types it."""
    started = time.perf_counter()
    command = [str(Path(sys.executable).with_name("oomcast")), "estimate", "zoo:resnet50", "--batch-size", str(_BATCH)]
    subprocess.run([*command, "--device", "a100-80gb"], check=True, capture_output=True)
    return time.perf_counter() - started


def rows(progress: Callable[[str], None]) -> tuple[list[float], list[Timing], list[float], list[Timing]]:
    """Meta steps and warm estimates by turns, cold commands, then the large models."""
    progress("warming up")
    _meta_steps()
    _estimate("zoo:resnet50", _BATCH)
    meta, warm = [], []
    for number in range(_REPEATS):
        progress(f"ResNet-50, {number + 1} of {_REPEATS}")
        meta.append(_meta_steps())
        warm.append(_estimate("zoo:resnet50", _BATCH))
    progress("cold command")
    cold = [_cold() for _ in range(2)]
    large = []
    for job in SECONDS:
        progress(job)
        large.append(_estimate(job, 1, seq_len=2048))
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
        ("estimate of ResNet-50, cold command", f"{min(cold):.2f}", "", f"{min(cold) / yardstick:.2f}", ""),
    ]
    bars = [Bar("an estimate costs at most 2.5 x three meta steps (warm)", f"{ratio:.2f} x", ratio <= RATIO)]
    for timing in large:
        table.append(
            (
                f"{timing.what}, 2,048 tokens",
                f"{timing.seconds:.1f}",
                f"{timing.cpu:.1f}",
                "",
                f"{timing.resident:,.0f}",
            )
        )
        limit = SECONDS[timing.what]
        figure = f"{timing.seconds:.1f} s, {timing.cpu:.1f} s of processor time"
        judged = timing.cpu if is_busy else timing.seconds
        bars.append(Bar(f"{timing.what} at 2,048 tokens within {limit:.0f} s", figure, judged <= limit))
    bars.append(Bar("resident memory below 2 GB", f"{resident:,.0f} MiB", resident < RESIDENT_MIB))
    return Outcome(
        f"What an estimate costs ({cores} cores, load {load:.1f})",
        ("what", "seconds", "processor seconds", "against three meta steps", "resident MiB"),
        table,
        bars,
        ["others used the machine meanwhile: seconds are judged by processor time"] if is_busy else [],
    )
