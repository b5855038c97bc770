"""Named models measured by nvidia-smi in four campaigns: reserved bytes plus one constant a campaign."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import oomcast

from .report import MIB, Bar, Outcome

__all__ = ["CAMPAIGNS", "Row", "rows", "run"]

TOLERANCE = 0.03
CAMPAIGNS = {
    "a100_2024_10_mib": ("a100-40gb", "torch-2.4-cu121-eager"),
    "a100_2025_09_mib": ("a100-40gb", "torch-2.8-cu128"),
    "a100_2026_aegis_mib": ("a100-40gb", "torch-2.13-cu130"),
    "rtx2080ti_2026_06_mib": ("rtx-2080-ti", "torch-2.13-cu130"),
}
"""Column → GPU and software stack."""
_JOBS = {
    "vgg16_imagenet": ("zoo:vgg16", "adam", None),
    "resnet50_imagenet": ("zoo:resnet50", "adam", None),
    "mobilenetv2_imagenet": ("zoo:mobilenet_v2", "adam", None),
    "bert_base_wiki": ("zoo:bert-base-mlm", "adamw", 512),
}
"""CIFAR and segmentation rows use other models than the zoo's (timm with 100 classes, segmentation_models_pytorch)."""
_PROMISED = ("resnet50_imagenet", "mobilenetv2_imagenet")


@dataclass(frozen=True)
class Row:
    """One workload in one campaign; MiB."""

    workload: str
    campaign: str
    measured: float
    allocated: float
    reserved: float
    constant: float = 0.0

    @property
    def promised(self) -> bool:
        return self.workload.startswith(_PROMISED)

    @property
    def error(self) -> float:
        return (self.reserved + self.constant) / self.measured - 1


def rows(groundtruth: Path, progress: Callable[[str], None]) -> list[Row]:
    """Every workload that the zoo has, in every campaign that measured it."""
    found: list[Row] = []
    estimates: dict[tuple[str, str, str], tuple[float, float]] = {}
    with (groundtruth / "real_models.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            known = _JOBS.get(row["workload"].rpartition("_bs")[0])
            if known is None:
                continue
            for campaign, (device, environment) in CAMPAIGNS.items():
                if not row[campaign]:
                    continue
                key = row["workload"], device, environment
                if key not in estimates:
                    progress(f"{key[0]} on {device}, {environment}")
                    estimates[key] = _estimate(*known, int(row["batch_size"]), device, environment)
                found.append(Row(row["workload"], campaign, float(row[campaign]), *estimates[key]))
    return found


def _estimate(
    job: str, optimizer: str, seq_len: int | None, batch_size: int, device: str, environment: str
) -> tuple[float, float]:
    answer = oomcast.estimate(
        job, batch_size=batch_size, device=device, optimizer=optimizer, seq_len=seq_len, environment=environment
    )
    return answer.peak_allocated / MIB, answer.peak_reserved / MIB


def fitted(found: list[Row], choose: Callable[[list[Row]], float]) -> list[Row]:
    """The rows with the constant of their campaign, chosen on its promised rows."""
    constants = {
        campaign: choose([row for row in found if row.campaign == campaign and row.promised])
        for campaign in {row.campaign for row in found}
    }
    return [replace(row, constant=constants[row.campaign]) for row in found]


def median_difference(campaign: list[Row]) -> float:
    return statistics.median(row.measured - row.reserved for row in campaign)


def least_worst(campaign: list[Row]) -> float:
    """The constant with the smallest worst error: the bar asks whether there is one that serves all rows."""
    differences = [row.measured - row.reserved for row in campaign]
    candidates = range(round(min(differences)), round(max(differences)) + 1)
    return float(min(candidates, key=lambda c: max(abs((row.reserved + c) / row.measured - 1) for row in campaign)))


def _bar(what: str, found: list[Row], is_promise: bool) -> Bar:
    promised = [row for row in found if row.promised]
    worst = max(promised, key=lambda row: abs(row.error))
    within = sum(abs(row.error) <= TOLERANCE for row in promised)
    figure = f"{within} of {len(promised)}, worst {worst.error:+.1%} ({worst.workload}, {worst.campaign})"
    return Bar(what, figure, within == len(promised) if is_promise else None)


def run(groundtruth: Path, progress: Callable[[str], None]) -> Outcome:
    measured = rows(groundtruth, progress)
    found = fitted(measured, least_worst)
    return Outcome(
        "Named models, nvidia-smi peak (MiB)",
        ("workload", "campaign", "measured", "allocated", "reserved", "constant", "error"),
        [
            (
                row.workload + ("" if row.promised else " (shown)"),
                row.campaign.removesuffix("_mib"),
                f"{row.measured:,.0f}",
                f"{row.allocated:,.0f}",
                f"{row.reserved:,.0f}",
                f"{row.constant:,.0f}",
                f"{row.error:+.1%}",
            )
            for row in sorted(found, key=lambda row: (row.campaign, not row.promised))
        ],
        [
            _bar("ResNet-50 and MobileNetV2 within 3 %, one constant a campaign", found, is_promise=True),
            _bar("the same with the median difference for it", fitted(measured, median_difference), is_promise=False),
        ],
        [
            "a campaign's constant is the one with the smallest worst error over its ResNet-50 and MobileNetV2 rows",
            "with cuDNN installed its own answers are used for convolution workspaces, else the table's",
        ],
    )
