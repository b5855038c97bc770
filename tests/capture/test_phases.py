"""Inference, evaluation and generation: no gradients, a cache of the right size, prefill and decode told apart."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from oomcast.capture.torch.run import capture_here
from oomcast.errors import BadInput
from oomcast.spec import Spec
from oomcast.trace import Category, Phase, Trace

HIDDEN, LAYERS, HEADS, KV_HEADS, PROMPT, NEW, BATCH = 64, 2, 4, 2, 32, 40, 3
LLAMA = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "intermediate_size": 128,
    "vocab_size": 512,
}


def traced(folder: Path, config: dict[str, Any], **options: Any) -> Trace:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return capture_here(Spec.read(path, **{"device": "a100-40gb", "batch_size": BATCH, "seq_len": PROMPT, **options}))


def phases(trace: Trace) -> set[Phase]:
    return {mark.phase for mark in trace.marks}


@pytest.mark.parametrize("phase", ["inference", "eval"])
def test_a_forward_pass_makes_no_gradients_and_no_states(phase: str, tmp_path: Path) -> None:
    trace = traced(tmp_path, LLAMA, phase=phase)
    made = {allocation.category for allocation in trace.allocations}
    assert Category.PARAMETER in made
    assert not made & {Category.GRADIENT, Category.OPTIMIZER_STATE}
    assert Phase.BACKWARD not in phases(trace)


def test_the_cache_of_a_generation_holds_prompt_and_new_tokens(tmp_path: Path) -> None:
    trace = traced(tmp_path, LLAMA, phase="generate", new_tokens=NEW)
    assert {Phase.PREFILL, Phase.DECODE} <= phases(trace)
    per_layer = BATCH * KV_HEADS * (HIDDEN // HEADS) * 4
    cached = [
        a.nbytes for a in trace.allocations if a.phase is Phase.DECODE and a.nbytes == per_layer * (PROMPT + NEW - 1)
    ]
    assert len(cached) == 2 * LAYERS  # keys and values of the last step, each layer's
    assert any("of 39 steps after the prompt" in sentence for sentence in trace.assumptions)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "t5", "d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 4, "d_kv": 8, "vocab_size": 256},
        {"model_type": "mamba", "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 256, "state_size": 8},
        {**LLAMA, "model_type": "mistral", "sliding_window": 8},
        {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "output_router_logits": True},
    ],
    ids=lambda config: config["model_type"],
)
def test_other_kinds_of_caches_generate_too(config: dict[str, Any], tmp_path: Path) -> None:
    trace = traced(tmp_path, config, phase="generate", new_tokens=4)
    assert {Phase.PREFILL, Phase.DECODE} <= phases(trace)


def test_latent_attention_caches_its_latent(tmp_path: Path) -> None:
    latent, rotated = 24, 8
    config = {**LLAMA, "model_type": "deepseek_v3", "num_key_value_heads": HEADS, "moe_intermediate_size": 32,
              "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "n_shared_experts": 1,
              "q_lora_rank": 16, "kv_lora_rank": latent, "qk_nope_head_dim": 16, "qk_rope_head_dim": rotated,
              "v_head_dim": 16, "first_k_dense_replace": 1}  # fmt: skip
    trace = traced(tmp_path, config, phase="generate", new_tokens=NEW)
    for width in (latent, rotated):
        whole = (BATCH, 1, PROMPT + NEW - 1, width)
        cached = [a for a in trace.allocations if a.phase is Phase.DECODE and a.shape == whole]
        assert len(cached) == LAYERS


@pytest.mark.parametrize(("kind", "bits"), [("int4", 4), ("int2", 2), ("fp8", 8)])
def test_a_quantised_cache_keeps_few_bits_a_value(kind: str, bits: int, tmp_path: Path) -> None:
    """Of int4 and int2 two numbers of 16 bits for each group of 64; fp8 has one scale for all."""
    config = {**LLAMA, "head_dim": 64, "num_key_value_heads": HEADS}
    values = BATCH * HEADS * PROMPT * 64
    trace = traced(tmp_path, config, phase="generate", new_tokens=3, weights="bf16", kv_cache=kind)
    packed = [a.nbytes for a in trace.allocations if a.phase is Phase.PREFILL and a.dtype in ("uint8", "float8_e4m3fn")]
    assert packed.count(values * bits // 8) >= 2 * LAYERS
    scales = [a for a in trace.allocations if a.phase is Phase.PREFILL and a.shape == (values // 64, 1)]
    assert bool(scales) == (kind != "fp8")
    wide = (2 * values, 2 * values + 2 * values // PROMPT)  # without or with the new token
    widened = [a for a in trace.allocations if a.phase is Phase.DECODE and a.nbytes in wide]
    assert widened
    assert any(f"kept as {kind}" in sentence for sentence in trace.assumptions)


def test_a_quantised_cache_grows_between_the_steps_that_are_followed(tmp_path: Path) -> None:
    config = {**LLAMA, "head_dim": 64, "num_key_value_heads": HEADS}
    trace = traced(tmp_path, config, phase="generate", new_tokens=600, weights="bf16", kv_cache="int4")
    most = max(a.nbytes for a in trace.allocations if a.dtype == "uint8")
    assert most > BATCH * HEADS * 500 * 64 // 2


def test_a_quantised_cache_that_cannot_be_is_told(tmp_path: Path) -> None:
    sliding = {**LLAMA, "model_type": "mistral", "sliding_window": 4}
    with pytest.raises(BadInput, match="--kv-cache int4: only full attention"):
        traced(tmp_path, sliding, phase="generate", kv_cache="int4")
    with pytest.raises(BadInput, match="has its cache in its share"):
        traced(tmp_path, LLAMA, objective="grpo", vllm_share=0.3, kv_cache="int4")
    with pytest.raises(BadInput, match="--kv-cache is for what generates"):
        traced(tmp_path, LLAMA, kv_cache="int4")


def test_a_new_token_after_an_image_attends_as_one_token(tmp_path: Path) -> None:
    """Qwen-VL counts positions of the whole mask, unless it is told where the new token stands."""
    text = {**LLAMA, "vocab_size": 152_064, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
    vision = {"depth": 1, "hidden_size": 32, "out_hidden_size": HIDDEN, "num_heads": 2, "intermediate_size": 64,
              "fullatt_block_indexes": [0]}  # fmt: skip
    text.pop("model_type")
    config = {"model_type": "qwen2_5_vl", "text_config": text, "vision_config": vision}
    trace = traced(tmp_path, config, phase="generate", new_tokens=3, seq_len=40, input_shape="3x56x56")
    assert any(a.phase is Phase.DECODE and a.shape == (BATCH, HIDDEN) for a in trace.allocations)


def test_what_cannot_generate_is_told(tmp_path: Path) -> None:
    bert = {
        "model_type": "vit",
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    with pytest.raises(BadInput, match="use --phase inference"):
        traced(tmp_path, bert, phase="generate", seq_len=None)
    with pytest.raises(BadInput, match="for models of transformers"):
        capture_here(Spec.read("zoo:mlp", device="a100-40gb", batch_size=1, phase="generate"))


def test_a_model_in_eval_mode_or_without_labels_is_said_to_be_trained() -> None:
    def model() -> torch.nn.Module:
        return torch.nn.Linear(4, 4).eval()

    job = SimpleNamespace(model=model, batch=lambda batch_size: torch.randn(batch_size, 4))
    said = capture_here(Spec.read(job, device="a100-40gb", batch_size=2, steps=1)).assumptions
    assert any("eval mode" in sentence for sentence in said)
    assert any("the batch has no labels" in sentence for sentence in said)
    quiet = SimpleNamespace(
        model=lambda: torch.nn.Linear(4, 4), batch=lambda n: (torch.randn(n, 4), torch.zeros(n, dtype=torch.long))
    )
    said = capture_here(Spec.read(quiet, device="a100-40gb", batch_size=2, steps=1)).assumptions
    assert not any("eval mode" in sentence or "no labels" in sentence for sentence in said)
