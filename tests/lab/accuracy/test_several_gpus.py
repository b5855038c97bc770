"""Published runs on several GPUs are read from their own columns; what job files cannot express says why."""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from lab.accuracy.atorch_job import AtorchLlamaJob
from lab.accuracy.cases import CaseSet, Measure
from lab.accuracy.moments import allocated_at
from lab.accuracy.several_gpus import SEVERAL_GPUS_SETS, read_several_gpus
from oomcast.capture import capture
from oomcast.units import GiB, MiB


def read(folder: Path, name: str, *rows: dict[str, str]) -> CaseSet:
    path = folder / f"{name}.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, SEVERAL_GPUS_SETS[name][0], restval="")
        writer.writeheader()
        writer.writerows(rows)
    return read_several_gpus(name, path)


def test_torchtitan_rows_in_bf16(tmp_path: Path) -> None:
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
        {**row, "extra_settings": "FSDP + CP + torch.compile; AC=full; "},
    )
    case, compiled = found.cases
    assert (case.workload.compile, compiled.workload.compile) == (None, "blocks")
    assert (case.gpu, case.measure, case.measured) == ("16xgh200-96gb", Measure.RESERVED, round(50.5 * GiB))
    assert str(case.spec.workload.parallel) == "fsdp2"
    assert case.workload.job.target.recompute == "full"
    assert case.target.gpu.name == "gh200-96gb"
    assert [skipped.reason.split()[0] for skipped in found.skipped] == ["the", "FSDP"]


def test_llm_foundry_configurations_must_fit(tmp_path: Path) -> None:
    row = {
        "Model": "1b",
        "SeqLen (T)": "2048",
        "# GPUs": "16",
        "GPU": "a100_80gb",
        "MicroBatchSize": "20",
        "GradAccum": "4",
        "Precision": "amp_bf16",
        "MP Mode": "DEFAULT",
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
        {**row, "Model": "30b", "Precision": "bf16", "MP Mode": "PURE"},
        {**row, "Model": "2b"},
        {**row, "MP Mode": "FULL"},
        {**row, "Activation CPUOffload": "True"},
    )
    case, eight_bits, gathered, large = found.cases
    assert (case.gpu, case.measure, case.ran, case.notes) == ("2x8xa100-80gb", Measure.BOUNDARY, True, "")
    assert case.spec.place.machines.world_size == 16
    assert "taken in bf16" in eight_bits.notes
    assert str(gathered.workload.parallel) == "fsdp,no-reshard"
    assert large.workload.job.target.width == 7168
    assert [str(each.workload.parallel) for each in (case, large)] == ["fsdp", "fsdp,reduce-half"]
    assert len(found.skipped) == 3


def test_dlrover_rows_of_fsdp(tmp_path: Path) -> None:
    row = {
        "model": "Llama2-7b",
        "gpu": "A100-80GB",
        "method": "FSDP",
        "Use LoRA": "No",
        "Num of GPUs": "16",
        "Batch Per GPU": "2",
        "Grad Accu Steps": "1",
        "Mem Max allocated(MB)": "30000.5",
    }
    found = read(tmp_path, "dlrover_llama2", row, {**row, "Use LoRA": "Yes"}, {**row, "method": "DS 3D"})
    (case,) = found.cases
    assert (case.gpu, case.measure, case.measured) == ("2x8xa100-80gb", Measure.ALLOCATED, round(30000.5 * MiB))
    assert str(case.spec.workload.parallel) == "fsdp,reduce-half"
    assert (case.workload.precision.value, case.workload.checkpointing) == ("amp-bf16", True)
    assert len(found.skipped) == 2


def test_a_step_of_atorch_keeps_the_keys_and_values_of_all_layers() -> None:
    """Once, not a second time when the layers are run again for backward."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(1000, 8)
            self.layers = nn.ModuleList(
                nn.ModuleDict({name: nn.Linear(8, 8) for name in ("q_proj", "k_proj", "v_proj")}) for _ in range(3)
            )
            self.head = nn.Linear(8, 1000)

        def run(self, x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
            assert isinstance(layer, nn.ModuleDict)
            return x + layer["q_proj"](x) + layer["k_proj"](x) + layer["v_proj"](x)

        def forward(self, input_ids: torch.Tensor) -> SimpleNamespace:
            x = self.embedding(input_ids)
            for layer in self.layers:
                x = checkpoint(self.run, x, layer, use_reentrant=False)
            return SimpleNamespace(logits=self.head(x))

    job, model = AtorchLlamaJob(length=16), Model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # autocast for CUDA on a host without a GPU
        job.loss(model, job.batch(2)).backward()
    logits, cache = model.outputs
    assert logits.shape == (2, 16, 1000)
    assert [tuple(kept.shape) for kept in cache] == [(2, 16, 8)] * 6


def test_profiles_of_single_layers_say_their_counter_and_their_rank(tmp_path: Path) -> None:
    row = {
        "file": "galvatron/models/gpt_hf/configs/memory_profiling_bf16_hidden512_head8_seqlen256.json",
        "strategy_pp_tp_dp": "2_2_2_vtp_sp",
        "layers": "2",
        "batch": "8",
        "rank": "7",
        "counter": "act",
        "value_mb": "12.5",
    }
    newer = "galvatron/models/bert_hf/configs/memory_profiling_bf16_hidden512_head8.json"
    found = read(
        tmp_path,
        "galvatron_profiles",
        row,
        {**row, "strategy_pp_tp_dp": "1_1_8_c", "counter": "ms", "rank": "0"},
        {**row, "file": newer, "seq": "128", "counter": "act_peak"},
        {**row, "file": newer},
        {**row, "file": "galvatron/models/T5/configs/memory_profiling_bf16_t5-3B.json"},
        {**row, "rank": "3"},
    )
    cut, of_2023, bert = found.cases
    layouts = [json.loads(case.script.line[-1]) for case in found.cases if case.script is not None]
    assert (cut.measure, cut.measured, cut.rank, cut.gpu) == (
        Measure.FORWARD_KEPT, round(12.5 * MiB), 7, "8xa100-40gb",
    )  # fmt: skip
    assert (layouts[0]["length"], layouts[0]["vocabulary"], layouts[0]["whole_positions"]) == (256, 50304, True)
    assert of_2023.measure is Measure.STATES
    assert (layouts[1]["model"], layouts[1]["of_2023"], layouts[1]["recomputes"]) == ("gpt_fa", True, True)
    assert (bert.measure, layouts[2]["inner"], layouts[2]["length"]) == (Measure.PEAK_ABOVE_STATES, 3072, 128)
    assert [skip.reason.split()[-1] for skip in found.skipped] == ["sequences", "here", "pipeline"]


def test_a_profile_holds_what_is_counted_by_hand(tmp_path: Path) -> None:
    """States are 16 bytes a parameter and GPU beside two cuBLAS workspaces; a further layer keeps 34 bytes for each
    token and feature, and a sum for each token and head."""
    row = {
        "file": "galvatron/models/gpt_hf/configs/memory_profiling_bf16_hidden1024_head8.json",
        "strategy_pp_tp_dp": "1_1_8_sp",
        "batch": "8",
        "seq": "1024",
        "rank": "0",
        "value_mb": "1",
    }
    rows = [{**row, "layers": layers, "counter": counter} for layers in ("1", "2") for counter in ("ms", "act")]
    cases = read(tmp_path, "galvatron_profiles", *rows).cases
    traces = {case.script: capture(case.spec) for case in cases}
    states, kept, states_of_two, kept_of_two = (
        allocated_at(traces[case.script], case.target, case.measure) for case in cases
    )
    width, length, words = 1024, 1024, 50304
    layer = 12 * width**2 + 13 * width
    around = 2 * words * width + length * width + 2 * width
    assert states == pytest.approx(2 * (layer + around) + 2 * 8_519_680, rel=0.02)
    assert states_of_two - states == pytest.approx(2 * layer, rel=0.05)
    assert kept_of_two - kept == pytest.approx(34 * length * width + 4 * length * 8, rel=0.03)
