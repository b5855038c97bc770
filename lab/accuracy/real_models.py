"""`real_models.csv`: named models in four campaigns, one column each; nvidia-smi in MiB."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from oomcast.devices import find_gpu
from oomcast.spec import Workload
from oomcast.units import MiB

from .cases import Case, CaseSet, Measure, Skipped
from .table import Row, read_rows
from .text_jobs import HfJob
from .vision_jobs import TimmJob, TorchvisionJob, UnetJob

__all__ = ["read_real_models"]

NAME = "real_models"


class _Campaign(NamedTuple):
    column: str
    gpu: str
    stack: str
    more_context: int = 0


BEYOND_GPUMEMNET = 34 * MiB
"""What BERT's process of 2024, which loads no cuDNN, holds beyond those of GPUMemNet's MLPs on the same machine."""
CAMPAIGNS = (
    _Campaign("a100_2024_10_mib", "a100-40gb", "torch-2.4-cu121-eager", BEYOND_GPUMEMNET),
    _Campaign("a100_2025_09_mib", "a100-40gb", "torch-2.8-cu128"),
    _Campaign("a100_2026_aegis_mib", "a100-40gb", "torch-2.8-cu128"),
    _Campaign("rtx2080ti_2026_06_mib", "rtx-2080-ti", "torch-2.8-cu128"),
)
_BERT = HfJob("BertForMaskedLM", "BertConfig", (("vocab_size", 28996),), 512)
JOBS: dict[str, Any] = {
    "torchvision vgg16": TorchvisionJob("vgg16"),
    "torchvision resnet50": TorchvisionJob("resnet50"),
    "torchvision mobilenet_v2": TorchvisionJob("mobilenet_v2"),
    "timm efficientnet_b0 100 classes": TimmJob("efficientnet_b0", (3, 32, 32), classes=100),
    "timm resnet18 100 classes": TimmJob("resnet18", (3, 32, 32), classes=100),
    "HF BertForMaskedLM 12L 768 vocab 28996": _BERT,
    "segmentation_models_pytorch Unet(resnet34) 21 classes": UnetJob(classes=21, side=512),
}


VALIDATED_WITH_GRADIENTS = ("unet_resnet34_voc_bs8", "a100_2025_09_mib")
"""A run whose script kept the graph of its validation: the figure is not that of a training step."""


def read_real_models(path: Path) -> CaseSet:
    columns = ("workload", "framework_model", "batch_size", "optimizer", *(c.column for c in CAMPAIGNS))
    cases: list[Case] = []
    skipped = []
    for row in read_rows(path, columns):
        model = row.text("framework_model")
        if not _can_be_built(model):
            skipped.append(Skipped(str(row.number), f"{model}: its package is not installed"))
            continue
        for campaign in CAMPAIGNS:
            if (row.text("workload"), campaign.column) == VALIDATED_WITH_GRADIENTS and row.get(campaign.column):
                skipped.append(Skipped(str(row.number), f"{campaign.column}: validated with gradients"))
            elif row.get(campaign.column):
                cases.append(_case(row, campaign))
    return CaseSet(NAME, tuple(cases), tuple(skipped))


def _can_be_built(model: str) -> bool:
    """segmentation_models_pytorch is for one row and no extra of oomcast's: without it the row is left out."""
    job = JOBS.get(model)
    return job is not None and (not isinstance(job, UnetJob) or find_spec(UnetJob.libraries[0]) is not None)


def _case(row: Row, campaign: _Campaign) -> Case:
    measured = campaign.column.removesuffix("_mib")
    return Case(
        data=NAME,
        campaign=measured,
        row=f"{row.number} {row.text('workload')} {measured}",
        family=row.text("framework_model").split()[1],
        workload=Workload.create(
            JOBS[row.text("framework_model")],
            batch_size=row.whole("batch_size"),
            optimizer=row.text("optimizer").split()[0].lower(),
        ),
        gpu=campaign.gpu,
        stack=campaign.stack,
        measure=Measure.DEVICE_TOTAL,
        measured=row.mib(campaign.column, find_gpu(campaign.gpu)),
        ran=True,
        more_context=campaign.more_context,
    )
