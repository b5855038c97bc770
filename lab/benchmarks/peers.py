"""oomcast beside what else there is, on runs with a known truth: torch's MemTracker, and the formulas people use."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import oomcast
from oomcast.zoo import find

from .report import MIB, Bar, Outcome

__all__ = ["Row", "rows", "run"]

_COLUMN = "a100_2025_09_mib"
_WORKLOADS = {
    "resnet50_imagenet_bs32": "resnet50",
    "resnet50_imagenet_bs128": "resnet50",
    "mobilenetv2_imagenet_bs64": "mobilenet_v2",
    "vgg16_imagenet_bs32": "vgg16",
    "bert_base_wiki_bs32": "bert-base-mlm",
}
_PEERS = ("oomcast", "MemTracker", "accelerate's rule", "DeepSpeed's rule", "FakeTensor", "Horus", "GPUMemNet")


@dataclass(frozen=True)
class Row:
    """One workload: nvidia-smi's figure, and each tool's (MiB); None where a tool has none."""

    workload: str
    measured: float
    answers: dict[str, float | None]


def rows(groundtruth: Path, progress: Callable[[str], None]) -> list[Row]:
    """A handful of workloads, each by every tool that answers."""
    found = []
    with (groundtruth / "real_models.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            name = _WORKLOADS.get(row["workload"])
            if name is None:
                continue
            progress(row["workload"])
            batch = int(row["batch_size"])
            seq_len = 512 if "bert" in name else None
            answer = oomcast.estimate(
                f"zoo:{name}", batch_size=batch, device="a100-40gb", optimizer="adam", seq_len=seq_len
            )
            parameters = _parameter_bytes(name)
            answers = {
                "oomcast": answer.device_total / MIB,
                "MemTracker": _mem_tracker(name, batch, seq_len),
                # `accelerate estimate-memory`: four times the model for Adam in fp32; no activations.
                "accelerate's rule": 4 * parameters / MIB,
                # `estimate_zero2_model_states_mem_needs`: 4 + 16 bytes a parameter on one GPU; no activations.
                "DeepSpeed's rule": 5 * parameters / MIB,
                "FakeTensor": _number(row["faketensor_mib"]),
                "Horus": _number(row["horus_mib"]),
                "GPUMemNet": _number(row["gpumemnet_mib"]),
            }
            found.append(Row(row["workload"], float(row[_COLUMN]), answers))
    return found


def _number(text: str) -> float | None:
    return float(text) if text else None


def _parameter_bytes(name: str) -> int:
    with torch.device("meta"):
        model = find(name).load().model()
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def _mem_tracker(name: str, batch_size: int, seq_len: int | None) -> float | None:
    """torch's own tracker, on fake CPU tensors: fake CUDA ones do not survive backward where there is no GPU."""
    from torch.distributed._tools.mem_tracker import MemTracker

    job = find(name).load()
    try:
        with FakeTensorMode():
            model: nn.Module = job.model()
            optimizer = torch.optim.Adam(model.parameters(), foreach=True)
            tracker = MemTracker()
            tracker.track_external(model, optimizer)
            with tracker:
                for _ in range(2):
                    job.loss(model, job.batch(batch_size, seq_len=seq_len)).backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    tracker.reset_mod_stats()
            peaks = tracker.get_tracker_snapshot("peak")
    except Exception:  # a peer that fails is shown as one that has no answer
        return None
    return sum(held["Total"] for held in peaks.values()) / MIB


def run(groundtruth: Path, progress: Callable[[str], None]) -> Outcome:
    found = rows(groundtruth, progress)

    def cell(row: Row, peer: str) -> str:
        answer = row.answers[peer]
        return "-" if answer is None else f"{answer:,.0f} ({answer / row.measured - 1:+.0%})"

    errors = {
        peer: [abs(answer / row.measured - 1) for row in found if (answer := row.answers[peer]) is not None]
        for peer in _PEERS
    }
    medians = {peer: statistics.median(values) for peer, values in errors.items() if values}
    return Outcome(
        "oomcast and others: nvidia-smi peak on an A100 (2025), MiB and error",
        ("workload", "measured", *_PEERS),
        [(row.workload, f"{row.measured:,.0f}", *(cell(row, peer) for peer in _PEERS)) for row in found],
        [Bar("median error", ", ".join(f"{peer} {value:.1%}" for peer, value in medians.items()), None)],
        [
            "FakeTensor, Horus and GPUMemNet: as published with the measurements",
            "MemTracker knows CPU kernels, neither the allocator nor the context",
        ],
    )
