"""`timm_a100_fp32.csv`: nvidia-smi peaks of timm models on an A100-40GB in 2024.

The recipe was not published. fp32, SGD with momentum and weight decay, and `cudnn.benchmark` fit best, which is what
timm's own training script does by default. Weight decay shows in large vision transformers: the copy of the gradients
that it takes moves the momentum buffers. Without it ViT-Huge, BEiT-Large, so400m and FlexiViT-Large come out 3 to 7 %
too low, with it within 0.4 %. Its loader shows too: with three batches of floats and one of bytes on a stream of their
own, 68 of 250 runs come out within 12 MiB of nvidia-smi at the context that suits best (median error 0.57 %), with one
batch 48 (0.86 %); and that context is then, to 6 MiB, that of GPUMemNet's own networks. Models are built as timm 1.0.9
did or a version soon after it, as the figures tell by the images of some (ese_vovnet57b, efficientnet_h_b5).
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import combinations
from pathlib import Path

from oomcast.devices import find_gpu
from oomcast.spec import Workload
from oomcast.units import MiB

from .cases import Case, CaseSet, Measure, Skipped
from .library_names import timm_modules, why_unknown
from .table import Row, read_rows
from .vision_jobs import TimmJob

__all__ = ["read_timm_a100"]

NAME = "timm_a100_fp32"
GPU = "a100-40gb"
STACK = "torch-2.4-cu121-eager"
WEIGHT_DECAY = 2e-5
ASTRAY = 0.25
LEAST_CONTEXT = 1731 * MiB
"""The smallest figure in the file: no run holds less beside its tensors."""


def read_timm_a100(path: Path) -> CaseSet:
    rows = list(read_rows(path, ("model", "batch_size_per_gpu", "metric", "value_gib")))
    failed, contradicted, astray = _failed(rows), _contradicted(rows), _astray(rows)
    known = timm_modules()
    cases, skipped = [], []
    for row in rows:
        model = row.text("model")
        row.one_of("metric", ("nvidia-smi",))
        if model in failed:
            skipped.append(Skipped(str(row.number), f"{model} shows the same value at two batch sizes: a failed run"))
        elif row.number in contradicted:
            skipped.append(Skipped(str(row.number), "a smaller batch took as much as a larger one: neither is trusted"))
        elif row.number in astray:
            skipped.append(Skipped(str(row.number), "more than a quarter off the line between its neighbours"))
        elif _cannot_have_run(row):
            skipped.append(Skipped(str(row.number), "its tensors, as its authors count them, exceed the GPU"))
        elif model not in known:
            skipped.append(Skipped(str(row.number), why_unknown("timm", model)))
        else:
            cases.append(_case(row, model, known[model]))
    return CaseSet(NAME, tuple(cases), tuple(skipped))


def _failed(rows: list[Row]) -> set[str]:
    values: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        values[row.text("model")].append(row.text("value_gib"))
    return {model for model, seen in values.items() if len(set(seen)) < len(seen)}


def _contradicted(rows: list[Row]) -> set[int]:
    """Pairs of which one failed (it shows only what it had reached) or shared the GPU: no one can tell which."""
    found = set()
    for batches in _by_model(rows):
        for small, large in combinations(batches, 2):
            if small.number_in("value_gib") >= large.number_in("value_gib"):
                found |= {small.number, large.number}
    return found


def _astray(rows: list[Row]) -> set[int]:
    """Memory grows almost evenly with the batch; a figure far off that line is a disturbed reading."""
    found = set()
    for batches in _by_model(rows):
        for before, row, after in zip(batches, batches[1:], batches[2:], strict=False):
            (x0, y0), (x, y), (x1, y1) = (
                (neighbour.whole("batch_size_per_gpu"), neighbour.number_in("value_gib"))
                for neighbour in (before, row, after)
            )
            line = y0 + (y1 - y0) * (x - x0) / (x1 - x0) if x1 > x0 else y
            if abs(y - line) > ASTRAY * line:
                found.add(row.number)
    return found


def _cannot_have_run(row: Row) -> bool:
    """By the count of tensors that the authors publish beside the figure, which is no estimate of ours.

    The runs agree: counts of up to 33.4 GiB come with figures some GiB above them, all larger ones with figures below.
    """
    counted = re.search(r"FakeTensor estimate by authors \(MB\): ([\d.]+)", row.cells.get("extra_settings") or "")
    return counted is not None and float(counted[1]) * MiB + LEAST_CONTEXT > find_gpu(GPU).total_memory


def _by_model(rows: list[Row]) -> list[list[Row]]:
    """The rows of each model by rising batch."""
    models: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.whole("batch_size_per_gpu")):
        models[row.text("model")].append(row)
    return list(models.values())


def _case(row: Row, model: str, family: str) -> Case:
    return Case(
        data=NAME,
        campaign="timm a100 2024",
        row=f"{row.number} {model} x{row.whole('batch_size_per_gpu')}",
        family=family,
        workload=Workload.create(
            TimmJob(model, year=2024, prefetching=True, weight_decay=WEIGHT_DECAY),
            batch_size=row.whole("batch_size_per_gpu"),
        ),
        gpu=GPU,
        stack=STACK,
        measure=Measure.DEVICE_TOTAL,
        measured=row.gib("value_gib", find_gpu(GPU)),
        ran=True,
        cudnn_benchmark=True,
    )
