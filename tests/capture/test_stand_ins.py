"""Packages of kernels that are not installed: what their stand-ins hold, by formula, and when they serve."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

import oomcast
from oomcast.capture.torch.stand_ins import STAND_INS
from oomcast.trace import Trace

GPU = "a100-40gb"
BATCH, ROWS, HEADS, WIDTH = 2, 256, 4, 64


def absent(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(package) is not None, reason=f"{package} is installed")


def run(folder: Path, code: str) -> Trace:
    """The code, run from a file as a job's is."""
    path = folder / "job.py"
    path.write_text(code, encoding="utf-8")
    with oomcast.virtual_gpu(GPU) as gpu:
        exec(compile(code, str(path), "exec"), {"__name__": "job", "torch": torch})
        return gpu.trace()


def sizes(trace: Trace) -> list[int]:
    return [allocation.nbytes for allocation in trace.allocations]


ATTENTION = f"""
q = torch.randn({BATCH}, {ROWS}, {HEADS}, {WIDTH}, device="cuda", dtype=torch.bfloat16, requires_grad=True)
k = torch.randn({BATCH}, {ROWS}, 2, {WIDTH}, device="cuda", dtype=torch.bfloat16, requires_grad=True)
v = torch.randn({BATCH}, {ROWS}, 2, {WIDTH}, device="cuda", dtype=torch.bfloat16, requires_grad=True)
"""


@absent("flash_attn")
def test_flash_attention_never_holds_the_scores(tmp_path: Path) -> None:
    code = (
        f"from flash_attn import flash_attn_func\n{ATTENTION}\nflash_attn_func(q, k, v, causal=True).sum().backward()"
    )
    trace = run(tmp_path, code)
    held = sizes(trace)
    assert BATCH * HEADS * ROWS * 4 in held  # a number for each row and head
    assert BATCH * ROWS * HEADS * WIDTH * 4 in held  # dq in fp32
    assert held.count(BATCH * ROWS * HEADS * WIDTH * 2) >= 5  # q, out, dq, and dk, dv of every head
    assert max(held) < BATCH * HEADS * ROWS * ROWS * 4
    assert any("flash_attn is not installed" in sentence for sentence in trace.assumptions)


@absent("flash_attn")
def test_an_import_that_is_tried_finds_nothing(tmp_path: Path) -> None:
    code = """
import importlib.util
assert importlib.util.find_spec("flash_attn") is None
try:
    from flash_attn import flash_attn_func
except ImportError:
    flash_attn_func = None
assert flash_attn_func is None
"""
    trace = run(tmp_path, code)
    assert not any("flash_attn" in sentence for sentence in trace.assumptions)


@absent("liger_kernel")
def test_ligers_loss_holds_the_logits_of_some_rows_at_a_time(tmp_path: Path) -> None:
    rows, width, words = 2048, 128, 8192
    code = f"""
from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss
x = torch.randn({rows}, {width}, device="cuda", dtype=torch.bfloat16, requires_grad=True)
weight = torch.randn({words}, {width}, device="cuda", dtype=torch.bfloat16, requires_grad=True)
LigerFusedLinearCrossEntropyLoss()(weight, x, torch.zeros({rows}, dtype=torch.long, device="cuda")).backward()
"""
    held = sizes(run(tmp_path, code))
    chunk = rows // (words // width)
    assert chunk * words == rows * width  # as large as the input: beside the pieces, it and its gradient
    assert held.count(chunk * words * 2) == rows // chunk + 2
    assert rows * words * 2 not in held


@absent("liger_kernel")
def test_liger_makes_a_model_of_transformers_smaller(tmp_path: Path) -> None:
    code = """
import transformers
{}
from transformers import MistralConfig, MistralForCausalLM
config = MistralConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2,
                       num_key_value_heads=2, vocab_size=8192)
model = MistralForCausalLM(config).cuda()
tokens = torch.ones(2, 512, dtype=torch.long, device="cuda")
model(input_ids=tokens, labels=tokens).loss.backward()
"""
    plain = sizes(run(tmp_path, code.format("")))
    before = importlib.import_module("transformers.models.mistral.modeling_mistral")
    kept = {name: getattr(before, name).forward for name in ("MistralForCausalLM", "MistralMLP", "MistralRMSNorm")}
    applied = "from liger_kernel.transformers import apply_liger_kernel_to_mistral\napply_liger_kernel_to_mistral()"
    try:
        small = sizes(run(tmp_path, code.format(applied)))
    finally:
        for name, forward in kept.items():
            getattr(before, name).forward = forward
    assert max(plain) == 2 * 512 * 8192 * 4
    assert max(small) == 8192 * 64 * 4  # the embedding


@pytest.mark.parametrize(
    ("package", "code"),
    [
        (
            "xformers",
            f"import xformers.ops\n{ATTENTION}\nxformers.ops.memory_efficient_attention(q, q, q).sum().backward()",
        ),
        (
            "cut_cross_entropy",
            "from cut_cross_entropy import linear_cross_entropy\n"
            "e = torch.randn(64, 32, device='cuda', requires_grad=True)\n"
            "c = torch.randn(512, 32, device='cuda', requires_grad=True)\n"
            "linear_cross_entropy(e, c, torch.zeros(64, dtype=torch.long, device='cuda')).backward()",
        ),
        (
            "apex",
            "from apex.optimizers import FusedAdam\nfrom apex.normalization import FusedLayerNorm\n"
            "layer = FusedLayerNorm(64).cuda()\noptimizer = FusedAdam(layer.parameters())\n"
            "layer(torch.randn(4, 64, device='cuda')).sum().backward()\noptimizer.step()",
        ),
        (
            "transformer_engine",
            "import transformer_engine.pytorch as te\nlayer = te.LayerNormMLP(64, 128, params_dtype=torch.bfloat16)\n"
            "layer(torch.randn(4, 64, device='cuda', dtype=torch.bfloat16)).sum().backward()",
        ),
    ],
)  # fmt: skip
def test_the_others_run_and_are_told(tmp_path: Path, package: str, code: str) -> None:
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    trace = run(tmp_path, code)
    assert any(f"{package} is not installed" in sentence for sentence in trace.assumptions)


def test_every_name_of_the_table_is_written() -> None:
    for stand_in in STAND_INS.values():
        written: Any = importlib.import_module(f"oomcast.capture.torch.stand_ins.{stand_in.module}")
        assert set(stand_in.names) <= set(written.__all__)
        assert stand_in.source


@pytest.mark.skipif(importlib.util.find_spec("apex") is not None, reason="apex is installed")
def test_the_states_of_apex_are_fp32_whatever_the_weights_are(tmp_path: Path) -> None:
    """apex/optimizers/fused_adam.py: `torch.zeros_like(p.data).float()`, twice."""
    trace = run(
        tmp_path,
        "from apex.optimizers import FusedAdam\nlayer = torch.nn.Linear(512, 256, False).cuda().bfloat16()\n"
        "optimizer = FusedAdam(layer.parameters(), master_weights=True)\n"
        "layer(torch.randn(4, 512, device='cuda', dtype=torch.bfloat16)).sum().backward()\noptimizer.step()",
    )  # fmt: skip
    copies = [one for one in trace.allocations if one.shape == (256, 512) and one.dtype == "float32"]
    assert len([one for one in copies if one.operator == "aten._to_copy"]) >= 3  # two states and the copy


@pytest.mark.skipif(importlib.util.find_spec("transformer_engine") is not None, reason="it is installed")
def test_a_gated_layer_of_transformer_engine_keeps_its_input_alone(tmp_path: Path) -> None:
    trace = run(
        tmp_path,
        "import transformer_engine.pytorch as te\n"
        "layer = te.LayerNormMLP(64, 128, activation='swiglu', params_dtype=torch.bfloat16)\n"
        "layer(torch.randn(4, 64, device='cuda', dtype=torch.bfloat16)).sum().backward()",
    )  # fmt: skip
    assert not any("silu" in one.operator for one in trace.allocations)
    halves = [one for one in trace.allocations if one.shape == (4, 128)]
    assert len(halves) == 2  # what fc2 reads, and its gradient
