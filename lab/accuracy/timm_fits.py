"""`timm_rtx3090_fits.csv`: the largest batch of timm's benchmark that ran on an RTX 3090, and the next that did not.

fp16 autocast without a scaler, SGD with nesterov momentum, gradients kept, `cudnn.benchmark`, torch 1.12, timm 0.6.
"""

from __future__ import annotations

from pathlib import Path

from oomcast.errors import BadInput
from oomcast.spec import Workload, parse_input_shape

from .cases import Case, CaseSet, Measure, Skipped
from .library_names import timm_modules, why_unknown
from .table import Row, read_rows
from .vision_jobs import TimmJob

__all__ = ["read_timm_fits"]

NAME = "timm_rtx3090_fits"
GPU = "rtx-3090"
STACK = "torch-1.12"
_COLUMNS = ("file", "model", "batch_size_per_gpu", "input_shape", "metric")


def read_timm_fits(path: Path) -> CaseSet:
    known = timm_modules()
    cases, skipped = [], []
    for row in read_rows(path, _COLUMNS):
        model = row.text("model")
        if model not in known:
            skipped.append(Skipped(str(row.number), why_unknown("timm", model)))
        else:
            cases.append(_case(row, model, known[model]))
    return CaseSet(NAME, tuple(cases), tuple(skipped))


def _case(row: Row, model: str, family: str) -> Case:
    batch_size = row.whole("batch_size_per_gpu")
    channels_last = "nhwc" in row.text("file")
    layout = "nhwc" if channels_last else "nchw"
    return Case(
        data=NAME,
        campaign="timm rtx3090 2022",
        row=f"{row.number} {model} x{batch_size} {layout}",
        family=family,
        workload=Workload.create(
            TimmJob(model, _shape(row, batch_size), year=2022, autocast=True),
            batch_size=batch_size,
            channels_last=channels_last,
            set_to_none=False,
        ),
        gpu=GPU,
        stack=STACK,
        measure=Measure.BOUNDARY,
        measured=None,
        ran=row.one_of("metric", ("fits", "oom")) == "fits",
        cudnn_benchmark=True,
    )


def _shape(row: Row, batch_size: int) -> tuple[int, ...]:
    """`512x3x224x224`, with the batch first."""
    try:
        batch, *shape = parse_input_shape(row.text("input_shape"))
    except BadInput:
        raise row.error("input_shape", f"{row.get('input_shape')!r} is not like 512x3x224x224") from None
    if batch != batch_size or len(shape) != 3:
        raise row.error("input_shape", f"{row.get('input_shape')!r} is not the shape of {batch_size} images")
    return tuple(shape)
