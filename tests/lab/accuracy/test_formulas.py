"""Formulas that others published, against figures worked out by hand."""

from __future__ import annotations

import dataclasses
import json

import pytest

from lab.accuracy.cases import Case, Measure
from lab.accuracy.formulas import (
    FORMULAS,
    Transformer,
    deepspeed_zero2,
    deepspeed_zero3,
    llmem,
    megatron_report,
    transformer_of,
    ultra_scale,
)
from lab.accuracy.titan_jobs import TitanJob, TitanShape
from oomcast.spec import Script, Workload

SMALL = Transformer(
    layers=4, width=100, inner=400, heads=10, groups=10, length=50, micro_batch=2, micro_batches=8, vocabulary=1000,
    gated=False, untied=False, tensor=1, pipeline=1, chunks=1, data=4, shares_optimizer=False, divides_tokens=False,
    recomputes_attention=False,
)  # fmt: skip
PARAMETERS = 4 * (12 * 100**2 + 4 * 100) + 1000 * 100


def test_states_are_those_of_mixed_precision() -> None:
    assert SMALL.states == 18 * PARAMETERS
    assert dataclasses.replace(SMALL, shares_optimizer=True).states == 9 * PARAMETERS
    assert dataclasses.replace(SMALL, tensor=2).states == 9 * PARAMETERS


def test_what_megatron_reports() -> None:
    kept = 100 * 100 * 34 * 4 + 100 * 108 + 2 * 100 * 1100
    assert megatron_report(SMALL) == round(18 * PARAMETERS + 1.05 * kept)
    divided = dataclasses.replace(SMALL, tensor=2, divides_tokens=True, recomputes_attention=True)
    assert megatron_report(divided) == round(9 * PARAMETERS + (100 * 100 * 34 * 4 + 100 * 108 + 4 * 100 * 1100) / 2)


def test_the_ultra_scale_formula_counts_the_scores() -> None:
    assert ultra_scale(SMALL) == 18 * PARAMETERS + 100 * 100 * 4 * (34 + 25)
    assert ultra_scale(dataclasses.replace(SMALL, recomputes_attention=True)) == 18 * PARAMETERS + 100 * 100 * 4 * 34


def test_what_deepspeed_estimates_for_stage_2() -> None:
    """On four GPUs; its own function gives the same, where it is installed."""
    assert deepspeed_zero2(SMALL) == PARAMETERS * (2 + 18 / 4)
    own = pytest.importorskip("deepspeed.runtime.zero.stage_1_and_2")
    assert deepspeed_zero2(SMALL) == own.estimate_zero2_model_states_mem_needs(PARAMETERS, 4, cpu_offload=False)[1]


@pytest.mark.parametrize("more", [{}, {"num_experts": 8}])
def test_sizes_are_read_from_the_arguments(more: dict[str, int]) -> None:
    arguments = {"hidden_size": 100, "num_attention_heads": 10, "num_layers": 4, "seq_length": 50,
                 "micro_batch_size": 2, "global_batch_size": 64, "padded_vocab_size": 1000, **more}  # fmt: skip
    case = Case.of_script(
        Script(line=("torchrun", "pretrain.py", json.dumps(arguments))), data="megatron_golden", campaign="", row="2",
        family="gpt", gpu="4xa100-80gb", stack="torch-2.8-cu128", measure=Measure.ALLOCATED, measured=1, ran=True,
    )  # fmt: skip
    assert transformer_of(case) == (None if more else SMALL)


SHARDED = dataclasses.replace(SMALL, is_sharded=True)
PAGE = 2 << 20


def pages(size: float) -> int:
    return -(-int(size) // PAGE) * PAGE


def test_what_is_sharded_and_what_is_recomputed_whole() -> None:
    """The playbook's sum for ZeRO-3: 16 bytes a parameter, over all GPUs; 2 bytes of the input of each layer."""
    assert SHARDED.states == 16 * PARAMETERS / 4
    whole = dataclasses.replace(SHARDED, recomputes_all=True)
    assert ultra_scale(whole) == 4 * PARAMETERS + 2 * 100 * 100 * 4
    halved = dataclasses.replace(whole, tensor=2, is_sharded=False)
    assert ultra_scale(halved) == 9 * PARAMETERS + 2 * 100 * 100 * 4


def test_what_deepspeed_estimates_for_stage_3() -> None:
    largest = 1000 * 100
    assert deepspeed_zero3(SHARDED) == 4 * largest + 18 * PARAMETERS / 4
    own = pytest.importorskip("deepspeed.runtime.zero.stage3")
    told = own.estimate_zero3_model_states_mem_needs(
        total_params=PARAMETERS, largest_layer_params=largest, num_gpus_per_node=4, cpu_offload=False
    )
    assert deepspeed_zero3(SHARDED) == told[1]


def test_formulas_are_silent_about_layouts_that_they_do_not_know() -> None:
    assert {name for name, formula in FORMULAS.items() if formula(SHARDED) is None} == {
        "megatron-report", "deepspeed-zero2"}  # fmt: skip
    assert {name for name, formula in FORMULAS.items() if formula(SMALL) is None} == {"deepspeed-zero3"}
    assert llmem(dataclasses.replace(SMALL, pipeline=2)) is None


def test_the_sum_of_llmem_on_one_gpu_and_on_several() -> None:
    """The equations of its paper (sections 4.2 and 5), one by one, at a size at which pages do not hide the terms."""
    large = dataclasses.replace(SMALL, width=1024, inner=4096, heads=16, groups=16, length=512, vocabulary=50_000)
    values = 4 * (12 * 1024**2 + 4 * 1024) + 50_000 * 1024
    outputs = pages(2 * 6 * 1024 * 1024)
    logits = pages(4 * 1024 * 50_000) + 2 * pages(4 * 2 * 511 * 50_000) + 2 * 50_000 * 1024
    assert llmem(large) == pages(2 * values) + pages(4 * values) + pages(8 * values) + outputs + logits
    divided = (pages(4 * values) + pages(8 * values)) // 4
    assert llmem(dataclasses.replace(large, is_sharded=True)) == pages(2 * values) + divided + outputs + logits
    gathered = pages(2 * 4 * 1024 * 1024 / 2)
    tensor = pages(2 * values) // 2 + (pages(4 * values) + pages(8 * values)) // 2 + outputs + logits + gathered
    assert llmem(dataclasses.replace(large, tensor=2)) == tensor


def test_sizes_are_read_from_a_sharded_decoder() -> None:
    job = TitanJob(TitanShape(width=64, depth=3, heads=4, kv_heads=2, inner=128, vocabulary=500), 32, "full")
    workload = Workload.create(job, batch_size=2, parallel="fsdp2")
    case = Case(
        workload=workload, data="torchtitan", campaign="", row="2", family="llama", gpu="8xh100-80gb",
        stack="torch-2.8-cu128", measure=Measure.RESERVED, measured=1, ran=True,
    )  # fmt: skip
    found = transformer_of(case)
    assert found is not None
    assert (found.layers, found.data, found.micro_batch, found.recomputes_all) == (3, 8, 2, True)
    counted = sum(parameter.numel() for parameter in job.model().parameters())
    norms = (2 * 3 + 1) * 64
    assert found.parameters == counted - norms + 3 * 4 * 64  # Megatron's layer has four vectors more
    assert (
        transformer_of(dataclasses.replace(case, workload=Workload.create(job, batch_size=2, parallel="ddp"))) is None
    )
