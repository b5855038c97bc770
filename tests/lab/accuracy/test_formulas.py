"""Formulas that others published, against figures worked out by hand."""

from __future__ import annotations

import dataclasses
import json

import pytest

from lab.accuracy.cases import Case, Measure
from lab.accuracy.formulas import Transformer, deepspeed_zero2, megatron_report, transformer_of, ultra_scale
from oomcast.spec import Script

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
