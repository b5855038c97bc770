"""Readers of GPUMemNet's data sets: random networks on an A100-40GB in 2024, Adam, fp32, nvidia-smi in MiB."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from oomcast.devices import find_gpu
from oomcast.methods.gpumemnet.published_plans import cnn_parameters, cnn_plans, mlp_parameters, mlp_widths
from oomcast.spec import Workload

from .cases import Case, CaseSet, Measure, Skipped
from .gpumemnet_jobs import CNN_STEPS, CnnJob, MlpJob, TransformerJob
from .table import Row, read_rows

__all__ = ["read_cnn", "read_mlp_step1", "read_mlp_step2", "read_transformer"]

GPU = "a100-40gb"
STEPS = 3
STACK = "torch-2.4-cu121-eager"
_MEMORY = "Max GPU Memory (MiB)"
_COLUMNS = ("Filename", "Total Parameters", "Batch Size", _MEMORY)
_TRANSFORMER_SIZES = ("num_classes", "embedding_size", "num_layers", "num_heads", "ff_hidden_size", "seq_length",
                      "vocab_size", "batch_size")  # fmt: skip

_KEYS = ("input", "output", "depth", "arch", "batch", "act", "dropout", "batchnorm", "input_channels", "num_classes",
         "base_filters", "input_size")  # fmt: skip
_PAIR = re.compile(r"(?:^|_)({0}):(.*?)(?=_(?:{0}):|\.out$)".format("|".join(_KEYS)))


def read_mlp_step1(path: Path) -> CaseSet:
    return _read_mlp(path, "gpumemnet_mlp_step1", softmax=False)


def read_mlp_step2(path: Path) -> CaseSet:
    return _read_mlp(path, "gpumemnet_mlp_step2", softmax=True)


def read_cnn(path: Path) -> CaseSet:
    made = [_cnn(row) for row in read_rows(path, (*_COLUMNS, "Status"))]
    cases = tuple(row for row in made if isinstance(row, Case))
    return CaseSet("gpumemnet_cnn", cases, tuple(row for row in made if isinstance(row, Skipped)))


def read_transformer(path: Path) -> CaseSet:
    return CaseSet("gpumemnet_transformer", tuple(_transformers(path)))


def _read_mlp(path: Path, name: str, softmax: bool) -> CaseSet:
    cases, skipped = [], []
    for row in read_rows(path, _COLUMNS):
        settings = _settings(row)
        arch = _setting(row, settings, "arch")
        inputs, outputs, depth = (_whole(row, settings, key) for key in ("input", "output", "depth"))
        batch_norm = settings.get("batchnorm") == "True"
        widths = mlp_widths(arch, inputs, outputs, depth)
        if mlp_parameters(widths, batch_norm) != row.whole("Total Parameters"):
            skipped.append(Skipped(str(row.number), "the settings in its name do not give its parameter count"))
            continue
        job = MlpJob(widths, settings.get("act", "relu"), batch_norm, _dropout(settings), softmax)
        cases.append(_case(name, row, arch, job, _whole(row, settings, "batch"), "gpumemnet mlp"))
    return CaseSet(name, tuple(cases), tuple(skipped))


def _cnn(row: Row) -> Case | Skipped:
    settings = _settings(row)
    arch = _setting(row, settings, "arch")
    names = ("input_channels", "base_filters", "depth", "input_size", "num_classes", "batch")
    channels, filters, depth, size, classes, batch = (_whole(row, settings, key) for key in names)
    batch_norm = settings.get("batchnorm") == "True"
    ran = row.one_of("Status", ("SUCCESSFUL", "OOM_CRASH")) == "SUCCESSFUL"
    total = row.whole("Total Parameters", least=0)
    plans = [plan for plan in cnn_plans(arch, channels, filters, depth, size) if plan]
    if total or len(plans) > 1:  # a run that failed at once printed no layers
        plans = [plan for plan in plans if cnn_parameters(plan, classes, batch_norm) == total]
    if not plans:
        return Skipped(str(row.number), "the settings in its name do not give its parameter count")
    job = CnnJob(plans[0], channels, size, classes, settings.get("act", "relu"), batch_norm, _dropout(settings), batch)
    steps = STEPS if job.last_batch == batch else CNN_STEPS
    return _case("gpumemnet_cnn", row, arch, job, batch, "gpumemnet cnn", ran, steps=steps)


def _transformers(path: Path) -> Iterator[Case]:
    for row in read_rows(path, (*_TRANSFORMER_SIZES, "max_gpu_memory_mib", "status")):
        job = TransformerJob(*(row.whole(column) for column in _TRANSFORMER_SIZES))
        ran = row.one_of("status", ("SUCCESSFUL", "OOM_CRASH")) == "SUCCESSFUL"
        # Sixteen networks drawn alike: each is its own family.
        yield _case(
            "gpumemnet_transformer",
            row,
            f"row {row.number}",
            job,
            job.batch_size,
            "gpumemnet transformer",
            ran,
            "max_gpu_memory_mib",
        )


def _case(
    data: str,
    row: Row,
    family: str,
    job: object,
    batch_size: int,
    campaign: str,
    ran: bool = True,
    column: str = _MEMORY,
    steps: int = STEPS,
) -> Case:
    measured = row.mib(column, find_gpu(GPU))
    return Case(
        data=data,
        campaign=campaign,
        row=str(row.number),
        family=family,
        workload=Workload.create(job, batch_size=batch_size, optimizer="adam", steps=steps),
        gpu=GPU,
        stack=STACK,
        measure=Measure.DEVICE_TOTAL,
        measured=measured if ran else None,
        ran=ran,
    )


def _settings(row: Row) -> Mapping[str, str]:
    """`input:1259_output:79_…`. `dropout` is there twice: the rate, then whether it is used."""
    pairs = _PAIR.findall(row.text("Filename"))
    settings: dict[str, str] = {}
    for key, value in pairs:
        settings["use_dropout" if key == "dropout" and key in settings else key] = value
    return settings


def _dropout(settings: Mapping[str, str]) -> float | None:
    return float(settings["dropout"]) if settings.get("use_dropout") == "True" else None


def _setting(row: Row, settings: Mapping[str, str], key: str) -> str:
    if key not in settings:
        raise row.error("Filename", f"it does not say {key!r}")
    return settings[key]


def _whole(row: Row, settings: Mapping[str, str], key: str) -> int:
    text = _setting(row, settings, key)
    if not text.isdigit() or int(text) < 1:
        raise row.error("Filename", f"{key!r} is {text!r}, not a whole number above 0")
    return int(text)
