"""`timm_a100_fp32.csv`: nvidia-smi peaks of timm models on an A100-40GB in 2024.

The recipe was not published. fp32 and SGD with momentum fit best.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from ..devices import find_gpu
from ..workload import Workload
from ._cases import Case, CaseSet, Measure, Skipped
from ._table import Row, read_rows
from ._timm_names import timm_modules
from ._vision_jobs import TimmJob

__all__ = ["read_timm_a100"]

NAME = "timm_a100_fp32"
GPU = "a100-40gb"
STACK = "torch-2.4-cu121-eager"


def read_timm_a100(path: Path) -> CaseSet:
    rows = list(read_rows(path, ("model", "batch_size_per_gpu", "metric", "value_gib")))
    failed, fallen = _failed(rows), _fallen(rows)
    known = timm_modules()
    cases, skipped = [], []
    for row in rows:
        model = row.text("model")
        row.one_of("metric", ("nvidia-smi",))
        if model in failed:
            skipped.append(Skipped(str(row.number), f"{model} shows the same value at two batch sizes: a failed run"))
        elif row.number in fallen:
            skipped.append(Skipped(str(row.number), "a smaller batch of the same model took more: a failed run"))
        elif model not in known:
            skipped.append(Skipped(str(row.number), f"the installed timm has no {model}"))
        else:
            cases.append(_case(row, model, known[model]))
    return CaseSet(NAME, tuple(cases), tuple(skipped))


def _failed(rows: list[Row]) -> set[str]:
    values: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        values[row.text("model")].append(row.text("value_gib"))
    return {model for model, seen in values.items() if len(set(seen)) < len(seen)}


def _fallen(rows: list[Row]) -> set[int]:
    """A run that failed shows only what it had reached."""
    most: dict[str, float] = defaultdict(float)
    fallen = set()
    for row in sorted(rows, key=lambda row: row.whole("batch_size_per_gpu")):
        value = row.number_in("value_gib")
        if value < most[row.text("model")]:
            fallen.add(row.number)
        most[row.text("model")] = max(most[row.text("model")], value)
    return fallen


def _case(row: Row, model: str, family: str) -> Case:
    return Case(
        data=NAME,
        campaign="timm a100 2024",
        row=f"{row.number} {model} x{row.whole('batch_size_per_gpu')}",
        family=family,
        workload=Workload.create(TimmJob(model), batch_size=row.whole("batch_size_per_gpu")),
        gpu=GPU,
        stack=STACK,
        measure=Measure.DEVICE_TOTAL,
        measured=row.gib("value_gib", find_gpu(GPU)),
        ran=True,
        cudnn_benchmark=True,
    )
