"""What an estimate costs: against plain meta-device steps in the same run, for large models, and in resident memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

import oomcast
from oomcast.zoo import find

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
    resident: float


class _Resident:
    """Watches this process and all it started, ten times a second."""

    def __init__(self) -> None:
        self.own = _resident_kib(os.getpid())
        """This process holds torch for the meta steps; the tool itself would not: only what is added counts for it."""
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Resident:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            added = _resident_kib(os.getpid()) - self.own
            self.peak = max(self.peak, added + sum(map(_proportional_kib, _descendants(os.getpid()))))


def _resident_kib(pid: int) -> int:
    return _field(pid, "status", "VmRSS:")


def _proportional_kib(pid: int) -> int:
    """Pages that a fork shares with its parent count once."""
    return _field(pid, "smaps_rollup", "Pss:")


def _field(pid: int, file: str, name: str) -> int:
    try:
        for line in Path(f"/proc/{pid}/{file}").read_text(encoding="ascii").splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def _descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return []
    found = [int(child) for child in children]
    return found + [grandchild for child in found for grandchild in _descendants(child)]


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


def _estimate(job: str, batch_size: int, **options: object) -> Timing:
    with _Resident() as resident:
        started = time.perf_counter()
        oomcast.estimate(job, batch_size=batch_size, device="a100-80gb", **options)
        seconds = time.perf_counter() - started
    return Timing(job, seconds, resident.peak / 1024)


def _cold() -> float:
    """The whole command, as a user types it."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "oomcast.cli", "estimate", "zoo:resnet50", "--batch-size", str(_BATCH)]
    subprocess.run([*command, "--device", "a100-80gb"], check=False, capture_output=True)
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
    return Outcome(
        f"What an estimate costs ({os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})",
        ("what", "seconds", "against three meta steps", "resident MiB"),
        [
            ("three plain meta steps, ResNet-50, median", f"{yardstick:.2f}", "1.00", ""),
            (
                "estimate of ResNet-50, warm server, median",
                f"{seconds:.2f}",
                f"{ratio:.2f}",
                f"{max(timing.resident for timing in warm):,.0f}",
            ),
            ("estimate of ResNet-50, cold command", f"{min(cold):.2f}", f"{min(cold) / yardstick:.2f}", ""),
            *(
                (timing.what + ", 2,048 tokens", f"{timing.seconds:.1f}", "", f"{timing.resident:,.0f}")
                for timing in large
            ),
        ],
        [
            Bar("an estimate costs at most 2.5 x three meta steps (warm)", f"{ratio:.2f} x", ratio <= RATIO),
            *(
                Bar(f"{timing.what} at 2,048 tokens within {SECONDS[timing.what]:.0f} s", f"{timing.seconds:.1f} s",
                    timing.seconds <= SECONDS[timing.what])
                for timing in large
            ),
            Bar("resident memory below 2 GB", f"{resident:,.0f} MiB", resident < RESIDENT_MIB),
        ],
    )  # fmt: skip
