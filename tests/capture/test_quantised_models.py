"""Models with quantised weights, or trained as if they had them: what they hold, and while they are loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tuned_jobs import (
    HIDDEN,
    LAYERS,
    LINEAR,
    LLAMA,
    LORA,
    RANK,
    REST,
    WIDE,
    held,
    needs,
    peak,
    traced,
    write_llama,
)

from oomcast.errors import BadInput
from oomcast.trace import Category, EventKind, Phase, Trace


@pytest.fixture
def llama(tmp_path: Path) -> str:
    """A config.json of a small Llama."""
    return write_llama(tmp_path)


@needs("peft")
@needs("bitsandbytes")
def test_quantised_weights_hold_half_a_byte_and_their_scales(llama: str) -> None:
    adapter = f"lora,r={RANK},target_modules=all-linear"
    trace = traced(llama, weights="bf16", precision="amp-bf16", adapter=adapter, quantization="nf4")
    blocks = LINEAR // 64
    weights = [a.nbytes for a in trace.allocations if a.dtype == "uint8" and a.category is Category.PARAMETER]
    assert sum(weights) == LINEAR // 2
    scales = [a.nbytes for a in trace.allocations if a.operator.endswith("quantize_4bit") and a.dtype == "float32"]
    assert sum(scales) == 4 * blocks
    upcast = traced(llama, weights="bf16", precision="amp-bf16", adapter=adapter, quantization="nf4", upcast_rest=True)
    assert held(upcast, Category.PARAMETER) - held(trace, Category.PARAMETER) == 2 * REST


def _while_loading(trace: Trace) -> list[int]:
    """The bytes held after each event of the loading."""
    starts = [mark.position for mark in trace.marks if mark.phase is Phase.LOADING]
    assert len(starts) == 1
    end = next(mark.position for mark in trace.marks if mark.position > starts[0])
    now, found = 0, []
    for position, event in enumerate(trace.events[:end]):
        if event.kind in (EventKind.ALLOCATE, EventKind.FREE):
            size = trace.allocations[event.index].nbytes
            now += size if event.kind is EventKind.ALLOCATE else -size
        if position >= starts[0]:
            found.append(now)
    return found


@needs("peft")
@needs("bitsandbytes")
def test_loading_is_a_phase_of_its_own(llama: str) -> None:
    """One after the other: a weight waits in two bytes while its four bits are made."""
    options = {"weights": "bf16", "quantization": "nf4", "adapter": f"lora,r={RANK}"}
    one_by_one, mapped, whole = (
        _while_loading(traced(llama, **options, loading=way)) for way in (None, "device-map", "whole")
    )
    assert one_by_one[-1] == mapped[-1] == whole[-1] < 2 * REST + 0.6 * LINEAR
    assert max(one_by_one) < one_by_one[-1] + 3 * HIDDEN * WIDE
    # transformers takes a block for all before the first weight, and frees it; it is no part of what stays.
    assert mapped[:2] == [2 * REST + LINEAR // 2, 0]
    assert max(whole) >= 2 * (REST + LINEAR) + HIDDEN * HIDDEN // 2
    with pytest.raises(BadInput, match="--loading whole is for weights that are quantised on the GPU"):
        traced(llama, loading="whole")
    with pytest.raises(BadInput, match="on one GPU"):
        traced(llama, loading="device-map", device="2xa100-40gb", parallel="fsdp2")


def test_a_model_in_full_is_loaded_by_a_device_map_too(llama: str) -> None:
    loading = _while_loading(traced(llama, weights="bf16", loading="device-map", phase="inference"))
    assert loading[:2] == [2 * (REST + LINEAR), 0]
    assert loading[-1] >= 2 * (REST + LINEAR)


@needs("peft")
@needs("torchao")
@pytest.mark.parametrize(("name", "per_weight"), [("nf4-torchao", 0.5), ("int8-torchao", 1), ("fp8-torchao", 1)])
def test_adapters_beside_torchaos_weights(llama: str, name: str, per_weight: float) -> None:
    trace = traced(llama, weights="bf16", precision="bf16", quantization=name, adapter=f"lora,r={RANK}")
    trained = 4 * LAYERS * 2 * RANK * 2 * HIDDEN
    quantised = held(trace, Category.PARAMETER) - 2 * REST - trained
    assert per_weight * LINEAR < quantised < (per_weight + 0.05) * LINEAR  # scales are the rest
    assert held(trace, Category.GRADIENT) == trained
    assert not trace.unsupported


@needs("torchao")
def test_weights_that_torchao_cannot_train(llama: str) -> None:
    for name in ("int4-torchao", "fp8-dynamic-torchao"):
        with pytest.raises(BadInput, match="torch has no derivative for products with"):
            traced(llama, quantization=name, adapter="lora")
    trace = traced(llama, quantization="int4-torchao", phase="inference", weights="bf16")
    assert any("rounded up to 1,024" in sentence for sentence in trace.assumptions)


@needs("torchao")
def test_a_published_torchao_configuration_is_followed_with_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "config.json"

    def parameters(quantization: dict[str, Any]) -> int:
        wide = {**LLAMA, "hidden_size": 1024, "intermediate_size": 1024, "vocab_size": 64}
        path.write_text(json.dumps({**wide, "quantization_config": {"quant_method": "torchao", **quantization}}))
        trace = traced(str(path), phase="inference", weights="bf16")
        return held(trace, Category.PARAMETER) - 2 * (2 * 64 * 1024 + (2 * LAYERS + 1) * 1024)

    def written(kind: str, **settings: Any) -> dict[str, Any]:
        return {"quant_type": {"default": {"_type": kind, "_version": 2, "_data": settings}}}

    weights = LAYERS * 7 * 1024 * 1024
    for group in (32, 128):
        in_groups = weights // 2 + weights // group * 4
        assert parameters(written("Int4WeightOnlyConfig", group_size=group)) == in_groups
        old = {"quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": group}}
        assert parameters(old) == in_groups
    assert weights < parameters({"quant_type": "int8_weight_only"}) < 1.01 * weights
    by_bytes = parameters({"quant_type": "int8_dynamic_activation_int4_weight"})  # groups of 32 by default
    grouped = {"quant_type": "int8_dynamic_activation_int4_weight", "quant_type_kwargs": {"group_size": 128}}
    assert parameters(grouped) < by_bytes
    with pytest.raises(BadInput, match="does not read the quantization_config"):
        parameters({"quant_type": "int8_weight_only", "quant_type_kwargs": {"layout": "plain"}})
    kept = {"quant_type": "int8_weight_only", "modules_to_not_convert": ["model.layers.0.mlp.up_proj"]}
    assert parameters(kept) > parameters({"quant_type": "int8_weight_only"}) + 0.99 * 1024 * 1024


@needs("torchao")
def test_training_as_if_quantised_trains_all_weights(llama: str) -> None:
    plain, rounded = (traced(llama, weights="bf16", precision="bf16", qat=name) for name in (None, "int8-int4"))
    for category in (Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE):
        assert held(rounded, category) == held(plain, category)
    assert peak(rounded) > peak(plain)
    with pytest.raises(BadInput, match="--qat trains plain weights"):
        traced(llama, qat="int4", quantization="nf4", adapter="lora")


@needs("bitsandbytes")
def test_transposed_layers_are_quantised_as_transformers_does(tmp_path: Path) -> None:
    """GPT-2's; a model without linear layers says so."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gpt2", "n_layer": 2, "n_embd": 128, "n_head": 2, "vocab_size": 512}))
    trace = traced(str(path), phase="inference", quantization="nf4", weights="bf16", seq_len=16)
    packed = [a.nbytes for a in trace.allocations if a.dtype == "uint8" and a.category is Category.PARAMETER]
    assert sum(packed) == 2 * 12 * 128 * 128 // 2
    with pytest.raises(BadInput, match="no linear layer that gptq-int4 quantises"):
        traced(str(path), phase="inference", quantization="gptq-int4", seq_len=16)


@needs("peft")
def test_experts_in_one_tensor_are_not_quantised_and_the_answer_says_so(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "model_type": "mixtral", "num_local_experts": 4}))
    trace = traced(str(path), weights="bf16", adapter="lora,r=4,target_modules=q_proj+v_proj", quantization="gptq-int4")
    (said,) = [sentence for sentence in trace.assumptions if "experts in one tensor" in sentence]
    assert said.endswith("they stay in bfloat16")
    largest = max(a.nbytes for a in trace.allocations if a.category is Category.PARAMETER)
    assert largest == 4 * 2 * WIDE * HIDDEN * 2  # of both halves of all experts


def packed_bytes(library: str) -> dict[str, int]:
    """What the layers of the blocks hold instead of their weights: groups of 128 inputs share a scale and a zero."""
    shapes = LAYERS * ([(HIDDEN, HIDDEN)] * 4 + [(HIDDEN, WIDE)] * 2 + [(WIDE, HIDDEN)])
    words = sum(-(-inputs // 128) * outputs // 8 + inputs * outputs // 8 for inputs, outputs in shapes)
    indices = sum(inputs + 8 for inputs, _ in shapes) if library == "gptq" else 0
    return {
        "int32": 4 * (words + indices),
        "float16": sum(2 * -(-inputs // 128) * outputs for inputs, outputs in shapes),
    }


@needs("peft")
@pytest.mark.parametrize("library", ["gptq", "awq"])
def test_packed_weights_hold_words_and_scales(llama: str, library: str) -> None:
    adapter = f"lora,r={RANK},target_modules=all-linear"
    trace = traced(llama, weights="bf16", precision="amp-bf16", adapter=adapter, quantization=f"{library}-int4")
    for dtype, expected in packed_bytes(library).items():
        buffers = [a.nbytes for a in trace.allocations if a.dtype == dtype and a.category is Category.BUFFER]
        assert sum(buffers) == expected
    assert held(trace, Category.PARAMETER) == 2 * REST + 4 * LORA


@needs("peft")
def test_awq_repeats_the_weight_for_each_sample_in_backward(llama: str) -> None:
    """`weights.transpose(0, 1).unsqueeze(0).repeat(batch_size, 1, 1)`, for a batched product."""
    trace = traced(llama, batch_size=3, adapter="lora", quantization="awq-int4", weights="bf16")
    repeated = [one for one in trace.allocations if one.shape == (3, WIDE, HIDDEN) and one.phase is Phase.BACKWARD]
    assert len(repeated) >= 2 * LAYERS


def test_hqq_holds_three_unpacked_weights_for_a_moment(llama: str) -> None:
    """Unpacked, less its zeros, times its scales: each a tensor of its own, and the first two live until the third is
    there."""
    trace = traced(llama, adapter="lora", quantization="hqq-int4", weights="bf16", steps=1)
    live, most = 0, 0
    for event in trace.events:
        if event.kind in (EventKind.ALLOCATE, EventKind.FREE):
            one = trace.allocations[event.index]
            if one.nbytes == HIDDEN * WIDE * 2 and one.phase is Phase.FORWARD and one.operator != "aten.mm":
                live += 1 if event.kind is EventKind.ALLOCATE else -1
                most = max(most, live)
    assert most >= 3


def test_gptq_keeps_unpacked_weights_for_backward_and_awq_unpacks_again(llama: str) -> None:
    """A layer whose input needs no gradient keeps nothing: the first block's, but for those behind an adapter."""
    traces = {
        name: traced(llama, adapter="lora", quantization=name, weights="bf16") for name in ("gptq-int4", "awq-int4")
    }
    kept = {
        name: sum(
            one.nbytes
            for one in trace.allocations
            if one.category is Category.ACTIVATION and one.dtype == "float16" and one.step == 0
        )
        for name, trace in traces.items()
    }
    without_gradient = 3 * HIDDEN * HIDDEN  # the first block's queries, keys and values
    assert kept == {"gptq-int4": 2 * (LINEAR - without_gradient), "awq-int4": 0}


@needs("peft")
def test_a_published_quantisation_is_followed_beside_an_adapter(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 4}}))
    trace = traced(str(path), weights="fp16", adapter=f"lora,r={RANK}")
    assert held(trace, Category.PARAMETER) < 2 * REST + 2 * LINEAR
    assert any("gptq-int4" in sentence for sentence in trace.assumptions)
    full = traced(str(path), weights="fp16")
    assert any("not followed" in sentence for sentence in full.assumptions)
