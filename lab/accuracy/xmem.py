"""`xmem_runs.csv`: the runs that xMem's authors published, most of them on consumer cards.

The loop has four iterations; `outputs` of one lives until the next has its own. Nothing in xMem's public code sets
cuDNN's benchmark or determinism, and gradients are set to zero at the start where a row names no other mode. Images are
CIFAR's at 86 × 86, texts are wikitext's, cut at 128 tokens. The figure is NVML's use of the device less its first
record: what the allocator has reserved, with some kernels that were loaded late. The runs of the sets anova1, mc1 and
mc_new gave cuBLAS no workspace (CUBLAS_WORKSPACE_CONFIG=:0:0), which is not followed here: the kernels that were loaded
late take about as much as these workspaces (RegNetX on an RTX 3060 comes out 20 to 22 MiB too low without them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oomcast.devices import Gpu, find_gpu
from oomcast.errors import UnknownName
from oomcast.spec import OPTIMIZERS, Workload, ZeroGrad

from .cases import Case, CaseSet, Measure, Skipped
from .kept_outputs import ImageClassifierJob, LanguageModelJob
from .library_names import torchvision_modules, why_unknown
from .public_models import find_public_model
from .table import Row, read_rows

__all__ = ["read_xmem_runs"]

NAME = "xmem_runs"
STACK = "torch-2.6"
TOKENS = 128
"""What the longest line of a batch is cut at. Small batches may have none that long."""
SQUEEZED = 0.93
"""Of the card. Above it a run may have had to give memory back and try again: its figure tells only that it ran."""
_COLUMNS = ("set", "kind", "model", "optimizer", "batch_size", "gpu", "gpu_total_bytes", "ground_bytes", "real_oom",
            "zero_grad_mode", "target_iteration", "input_size")  # fmt: skip
_ZERO_GRAD: Mapping[str, ZeroGrad] = {
    "": ZeroGrad.BEFORE_FORWARD,
    "0": ZeroGrad.BEFORE_FORWARD,
    "1": ZeroGrad.BEFORE_BACKWARD,
    "2": ZeroGrad.AFTER_STEP,
}
_TEN_CLASSES = ("mobilenet_v3", "mnasnet")
"""Models that are built for CIFAR's ten classes; the others keep ImageNet's head."""
_SPELLINGS = {"mobenetv3large": "mobilenet_v3_large", "mobenetv3small": "mobilenet_v3_small", "mnasnet": "mnasnet1_0"}


def read_xmem_runs(path: Path) -> CaseSet:
    made = [_case(row) for row in read_rows(path, _COLUMNS)]
    cases = tuple(row for row in made if isinstance(row, Case))
    return CaseSet(NAME, cases, tuple(row for row in made if isinstance(row, Skipped)))


def _case(row: Row) -> Case | Skipped:
    job = _job(row)
    if isinstance(job, str):
        return Skipped(str(row.number), job)
    try:
        gpu = find_gpu(row.text("gpu"))
    except UnknownName:
        return Skipped(str(row.number), f"{row.text('gpu')} is not in the catalogue of devices")
    optimizer = row.text("optimizer").lower()
    if optimizer not in OPTIMIZERS:
        return Skipped(str(row.number), f"the optimizer {row.text('optimizer')} is not offered")
    ran = row.one_of("real_oom", ("False", "True")) == "False"
    measured = _measured(row, gpu) if ran else None
    batch_size = row.whole("batch_size")
    return Case(
        data=NAME,
        campaign=f"xmem {gpu.name}",
        row=f"{row.number} {row.text('model')} {optimizer} x{batch_size} {gpu.name}",
        family=_family(row.text("model")),
        workload=Workload.create(
            job,
            batch_size=batch_size,
            optimizer=optimizer,
            zero_grad=_ZERO_GRAD[_mode(row)],
            steps=row.whole("target_iteration") + 1,
        ),
        gpu=gpu.name,
        stack=STACK,
        measure=Measure.BOUNDARY if ran and measured is None else Measure.RESERVED,
        measured=measured,
        ran=ran,
        notes=row.text("set"),
    )


def _measured(row: Row, gpu: Gpu) -> int | None:
    """None near the card's limit, where the figure is what was left and not what the job takes."""
    measured = row.whole("ground_bytes")
    return measured if measured < SQUEEZED * min(row.whole("gpu_total_bytes"), gpu.total_memory) else None


def _mode(row: Row) -> str:
    mode = row.get("zero_grad_mode").removesuffix(".0")
    if mode not in _ZERO_GRAD:
        raise row.error("zero_grad_mode", f"{mode!r} is none of {', '.join(filter(None, _ZERO_GRAD))}")
    return mode


def _job(row: Row) -> Any | str:
    """The job, or why there is none."""
    model = row.text("model")
    if row.one_of("kind", ("cnn", "transformer")) == "transformer":
        found = find_public_model(model)
        if found is None:
            return f"the configuration of {model} is not written here"
        return LanguageModelJob(found, TOKENS, of_spring_2025=True)
    name = _torchvision_name(model)
    if name is None:
        return why_unknown("torchvision", model)
    shape = re.fullmatch(r"(\d+)x(\d+)x(\d+)", row.text("input_size"))
    if shape is None:
        raise row.error("input_size", f"{row.get('input_size')!r} is not like 86x86x3")
    height, width, channels = map(int, shape.groups())
    classes = 10 if name.startswith(_TEN_CLASSES) else 1000
    return ImageClassifierJob(name, (channels, height, width), classes)


def _torchvision_name(model: str) -> str | None:
    """`RegNetX400MF` → `regnet_x_400mf`."""
    plain = _letters(model)
    wanted = _letters(_SPELLINGS.get(plain, plain))
    return next((name for name in torchvision_modules() if _letters(name) == wanted), None)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _family(model: str) -> str:
    """`ResNet101` and `ResNet152` resemble each other, as `opt-125m` and `opt-350m` do."""
    found = re.match(r"[A-Za-z]+(?:-[A-Za-z]+)*", model.rpartition("/")[2])
    return found[0].lower() if found else model
