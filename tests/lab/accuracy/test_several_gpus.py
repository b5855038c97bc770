"""Published runs on several GPUs are read from their own columns; what job files cannot express says why."""

from __future__ import annotations

import csv
from pathlib import Path

from lab.accuracy.cases import CaseSet, Measure
from lab.accuracy.several_gpus import SEVERAL_GPUS_SETS, read_several_gpus
from oomcast.units import GiB


def read(folder: Path, name: str, *rows: dict[str, str]) -> CaseSet:
    path = folder / f"{name}.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, SEVERAL_GPUS_SETS[name][0], restval="")
        writer.writeheader()
        writer.writerows(rows)
    return read_several_gpus(name, path)


def test_torchtitan_rows_that_run_eagerly(tmp_path: Path) -> None:
    row = {
        "model": "Llama 3.1 8B",
        "gpu": "16x H100 96GB",
        "batch_size_per_gpu": "2",
        "input_shape": "2x4096 tokens",
        "extra_settings": "FSDP; AC=full; ",
        "value_gib": "50.5",
    }
    found = read(
        tmp_path,
        "torchtitan",
        row,
        {**row, "extra_settings": "FSDP + torch.compile; AC=full; "},
        {**row, "model": "a model of nobody"},
    )
    (case,) = found.cases
    assert (case.gpu, case.measure, case.measured) == ("16xgh200-96gb", Measure.RESERVED, round(50.5 * GiB))
    assert str(case.spec.workload.parallel) == "fsdp2"
    assert case.workload.job.target.recompute == "full"
    assert case.target.gpu.name == "gh200-96gb"
    assert [skipped.reason.split()[0] for skipped in found.skipped] == ["compiled:", "the"]


def test_llm_foundry_configurations_must_fit(tmp_path: Path) -> None:
    row = {
        "Model": "1b",
        "SeqLen (T)": "2048",
        "# GPUs": "16",
        "GPU": "a100_80gb",
        "MicroBatchSize": "20",
        "GradAccum": "4",
        "Precision": "amp_bf16",
        "Sharding Strategy": "FULL_SHARD",
        "Activation Checkpointing": "False",
        "Activation CPUOffload": "False",
    }
    found = read(
        tmp_path,
        "llm_foundry_ran",
        row,
        {**row, "Precision": "amp_fp8"},
        {**row, "Sharding Strategy": "SHARD_GRAD_OP"},
        {**row, "Model": "3b"},
    )
    (case,) = found.cases
    assert (case.gpu, case.measure, case.ran) == ("2x8xa100-80gb", Measure.BOUNDARY, True)
    assert case.spec.place.machines.world_size == 16
    assert len(found.skipped) == 3
