"""`python -m lab endurance`: thousands of estimates in one process, and many at a time: same bytes, flat memory.

Large models too: 10,000 linear layers and 100,000 modules must be captured within the time limit that users have.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import oomcast
from oomcast.errors import OomcastError
from oomcast.units import format_bytes

from .resident import resident

__all__ = ["add_to"]

_JOBS = ("zoo:mlp", "zoo:mobilenet_v2")
_MOST_GROWTH = 64 << 20
_WARM = 0.2
"""The share of the estimates after which memory must not grow any more."""
_LARGE = """
import torch
from torch import nn

def model():
    return {model}

def batch(batch_size):
    return torch.randn(batch_size, 4), torch.randn(batch_size, 4)

def loss(model, batch):
    return (model(batch[0]) - batch[1]).pow(2).mean()
"""
_MODELS = {
    "10,000 linear layers": "nn.Sequential(*[nn.Linear(4, 4) for _ in range(10_000)])",
    "100,000 modules": "nn.Sequential(*[nn.Identity() for _ in range(99_998)], nn.Linear(4, 4))",
}


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("endurance", help="thousands of estimates; large models")
    parser.add_argument("--estimates", type=int, default=2000, metavar="N", help="in one process (default: 2000)")
    parser.add_argument("--parallel", type=int, default=200, metavar="N", help="in batches of 8 (default: 200)")
    parser.add_argument("--no-large", action="store_true", help="leave the large models out")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    known = {job: _peaks(job) for job in _JOBS}
    faults = _one_by_one(options.estimates, known) + _at_a_time(options.parallel, known)
    if not options.no_large:
        faults += sum(_large(name, model) for name, model in _MODELS.items())
    print(f"{faults} faults")
    return 1 if faults else 0


def _peaks(job: str) -> tuple[int, ...]:
    found = oomcast.estimate(job, batch_size=2, device="a100-40gb", steps=1)
    return found.peak_allocated, found.peak_reserved, found.device_total, found.low, found.high, found.will_not_exceed


def _one_by_one(count: int, known: dict[str, tuple[int, ...]]) -> int:
    started, other, before, most = time.monotonic(), 0, 0, 0
    for number in range(count):
        job = list(known)[number % len(known)]
        other += _peaks(job) != known[job]
        held = sum(resident(os.getpid()))
        if number >= count * _WARM:
            before = before or held
            most = max(most, held)
    grown = most - before
    print(
        f"{count} estimates in one process: {other} with other bytes, memory of it and its server grew by "
        f"{format_bytes(max(grown, 0))} after the first {_WARM:.0%} ({time.monotonic() - started:.0f} s)",
        flush=True,
    )
    return other + (grown > _MOST_GROWTH)


def _at_a_time(count: int, known: dict[str, tuple[int, ...]]) -> int:
    asked = [list(known)[number % len(known)] for number in range(count)]
    with ThreadPoolExecutor(8) as pool:
        other = sum(found != known[job] for job, found in zip(asked, pool.map(_peaks, asked), strict=True))
    print(f"{count} estimates, 8 at a time: {other} with other bytes", flush=True)
    return other


def _large(name: str, model: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "large.py"
        job.write_text(_LARGE.format(model=model))
        started = time.monotonic()
        try:
            found = oomcast.estimate(str(job), batch_size=2, device="a100-40gb")
        except OomcastError as error:
            print(f"{name}: {error}", flush=True)
            return True
    print(f"{name}: {format_bytes(found.device_total)} in {time.monotonic() - started:.0f} s", flush=True)
    return False
