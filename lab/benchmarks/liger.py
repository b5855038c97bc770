"""`max_memory_allocated` of single operators and layers, measured by Liger's benchmark, against the virtual GPU."""

from __future__ import annotations

import csv
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import oomcast

from .report import MIB, Bar, Outcome

__all__ = ["Row", "rows", "run"]

TOLERANCE = 0.01
SHARE = 0.90
_ITERATIONS = 3
"""The scripts run ten and take the median; from the second on all are the same."""
_DEVICES = {
    "NVIDIA A100-SXM4-80GB": "a100-80gb",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA B200": "b200",
    "NVIDIA GeForce RTX 3090": "rtx-3090",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
}
_MATMUL_KINDS = ("swiglu", "geglu", "tiled_swiglu", "tiled_geglu")
NOT_REBUILT = {
    "fused_moe": "how many tokens each expert gets depends on data",
    "multi_token_attention": "convolution workspaces are not modelled yet",
    "sparse_multi_token_attention": "convolution workspaces are not modelled yet",
    "qwen2vl_mrope": "not written yet",
    "fused_linear_cpo_loss": "not written yet",
    "fused_linear_orpo_loss": "not written yet",
    "fused_linear_simpo_loss": "not written yet",
    "fused_linear_grpo_loss_sequence": "not written yet",
    "fused_linear_grpo_loss_token": "not written yet",
    "kto_loss": "not written yet",
    "distill_cosine_loss": "not written yet",
    "distill_jsd_loss": "not written yet",
}


@dataclass(frozen=True)
class Row:
    """One measured row; `estimated` is None where it was not rebuilt, and then `reason` says why."""

    kind: str
    device: str
    settings: str
    sweep: str
    """What stays the same while one size is varied."""
    measured: float
    """MiB."""
    estimated: float | None
    reason: str = ""
    leftover: float = 0.0
    """MiB that earlier runs in the same process still held, the same for all rows of a sweep."""

    @property
    def error(self) -> float:
        assert self.estimated is not None
        return (self.estimated + self.leftover) / self.measured - 1


def _settings(row: dict[str, str]) -> dict[str, Any]:
    first, _, rest = row["input_shape"].partition("; ")
    name, _, value = first.partition("=")
    found: dict[str, Any] = {key: item for key, item in json.loads(rest).items() if item is not None}
    found[name] = int(value) if value.isdigit() else value
    if "dtype" in found:
        found["dtype"] = getattr(torch, found["dtype"].removeprefix("torch."))
    mode = re.search(r"mode=(\w+)", row["task"])
    found["mode"] = mode.group(1) if mode else "full"
    return found


def _measure(kind: str, settings: dict[str, Any], device: str) -> float:
    from .liger_builders import BUILDERS

    with oomcast.virtual_gpu(device):
        if settings["mode"] != "full" and kind in _MATMUL_KINDS:
            _use_both_cublas_handles()
        iteration = BUILDERS[kind](settings)
        peak = 0
        for _ in range(_ITERATIONS):
            torch.cuda.reset_peak_memory_stats()
            iteration()
            peak = torch.cuda.max_memory_allocated()
    return peak / MIB


def _use_both_cublas_handles() -> None:
    """The modes were measured one after the other in one process: forward rows too have the workspace of backward."""
    x = torch.ones(1, 1, device="cuda", requires_grad=True)
    (x @ x).backward()


def rows(groundtruth: Path, progress: Callable[[str], None]) -> list[Row]:
    """One for each measured row of the plain versions."""
    from .liger_builders import BUILDERS

    found = []
    with (groundtruth / "liger_ops.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            kind, _, provider = row["model"].partition("/")
            measured = float(row["value_gib"]) * 1024
            text = f"{row['input_shape'].partition(';')[0]} {row['task'].rpartition('=')[2]}"
            sweep = row["input_shape"].partition(";")[2]
            blank = Row(kind, row["gpu"].removeprefix("NVIDIA "), text, sweep, measured, None)
            if provider == "torch_compile":
                found.append(replace(blank, reason="compiled by Inductor, not plain PyTorch"))
            elif kind not in BUILDERS:
                found.append(replace(blank, reason=NOT_REBUILT.get(kind, "not known")))
            else:
                progress(f"{kind}, {blank.device}, {text}")
                estimated = _measure(kind, _settings(row), _DEVICES[row["gpu"]])
                found.append(replace(blank, estimated=estimated))
    return _with_leftovers(found)


def _with_leftovers(found: list[Row]) -> list[Row]:
    """The embedding rows came after compiled runs in the same process, which still held 12 GiB: one figure a sweep."""
    held: dict[str, list[float]] = defaultdict(list)
    for row in found:
        if row.kind == "embedding" and row.estimated is not None:
            held[row.sweep].append(row.measured - row.estimated)
    return [
        replace(row, leftover=statistics.median(held[row.sweep]))
        if row.kind == "embedding" and row.estimated is not None
        else row
        for row in found
    ]


def run(groundtruth: Path, progress: Callable[[str], None]) -> Outcome:
    found = rows(groundtruth, progress)
    rebuilt = [row for row in found if row.estimated is not None]
    within = [row for row in rebuilt if abs(row.error) <= TOLERANCE]
    by_kind: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rebuilt:
        by_kind[row.kind, row.device].append(row)
    reasons: dict[tuple[str, str], int] = defaultdict(int)
    for row in found:
        if row.estimated is None:
            reasons[row.kind, row.reason] += 1
    share = len(within) / len(rebuilt)
    return Outcome(
        "Liger's operator benchmark, plain versions: max_memory_allocated",
        ("kind", "GPU", "rows", "within 1 %", "exact to 0.01 %", "median error", "worst error", "worst row"),
        [
            (
                kind,
                device,
                str(len(group)),
                str(sum(abs(row.error) <= TOLERANCE for row in group)),
                str(sum(abs(row.error) <= 1e-4 for row in group)),
                f"{statistics.median(row.error for row in group):+.2%}",
                f"{(worst := max(group, key=lambda row: abs(row.error))).error:+.2%}",
                f"{worst.settings}: {worst.measured:,.2f} MiB",
            )
            for (kind, device), group in sorted(by_kind.items())
        ],
        [
            Bar(
                "within 1 %, at least 90 % of the rows rebuilt",
                f"{len(within)} of {len(rebuilt)} = {share:.1%}",
                share >= SHARE,
            )
        ],
        [f"{kind}: {count} rows not rebuilt: {reason}" for (kind, reason), count in sorted(reasons.items())]
        + [
            f"embedding,{sweep}: {leftover:,.2f} MiB that the process already held are added to each row"
            for sweep, leftover in sorted({(row.sweep, row.leftover) for row in rebuilt if row.leftover})
        ],
    )
