"""Deep models of equal layers from two shallow ones: the same Trace as that of the whole model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oomcast.capture.torch import run
from oomcast.capture.torch.jobs import layers_of_job
from oomcast.spec import Place, Spec, Workload
from oomcast.trace import EventKind, Trace

pytest.importorskip("transformers")

SIZES = {
    "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "vocab_size": 128, "max_position_embeddings": 64, "num_hidden_layers": 16,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "gpt2": {"n_embd": 32, "n_head": 4, "n_layer": 16, "vocab_size": 128},
    "mixtral": {"num_local_experts": 4},
    "gemma3_text": {"sliding_window": 8, "sliding_window_pattern": 2, "num_hidden_layers": 32},
    "bert": {},
}


def spec_of(folder: Path, kind: str, **options: Any) -> Spec:
    sizes = {} if kind == "gpt2" else SIZES
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": kind, **sizes, **FAMILIES[kind]}), encoding="utf-8")
    workload = Workload.create(f"hf:{path}", batch_size=2, seq_len=16, **options)
    return Spec(workload, Place("rtx-4090"))


def contents(trace: Trace) -> tuple[Any, ...]:
    """Blocks that die between two other events die in no particular order."""
    events: list[Any] = []
    dying: list[int] = []
    for event in trace.events:
        if event.kind is EventKind.FREE:
            dying.append(event.index)
        else:
            events += [sorted(dying), event]
            dying = []
    return (trace.allocations, [*events, sorted(dying)], trace.kernels, trace.marks, trace.unsupported,
            trace.assumptions, trace.settings, trace.workload)  # fmt: skip


def assert_grown_as_whole(spec: Spec) -> None:
    # From one line: the lines of code in a Trace are those of whoever is outside of the libraries.
    grown, whole = (capture(spec) for capture in (run._grown, run._captured))
    assert grown is not None
    assert whole is not None
    assert contents(grown) == contents(whole)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("llama", {"checkpointing": True, "optimizer": "adamw-forloop", "zero_grad": "after-step"}),
        ("llama", {"precision": "amp-fp16", "accumulation": 2}),
        ("gpt2", {"optimizer": "sgd"}),
        ("mixtral", {}),
        ("gemma3_text", {"checkpointing": True}),
        ("bert", {"optimizer": "adam-fused"}),
    ],
)
def test_the_trace_is_that_of_the_whole_model(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    spec = spec_of(tmp_path, kind, steps=2, **options)
    assert_grown_as_whole(spec)


@pytest.mark.parametrize(
    "options",
    [
        {"quantization": "nf4"},
        # bitsandbytes keeps the map of its 8-bit codes for the process: no capture may leave it to the next one
        {"quantization": "nf4-double", "optimizer": "paged-adamw-8bit"},
    ],
)
def test_adapters_over_quantised_weights(tmp_path: Path, options: dict[str, Any]) -> None:
    pytest.importorskip("peft")
    pytest.importorskip("bitsandbytes")
    spec = spec_of(tmp_path, "llama", steps=2, adapter="lora", weights="bf16", checkpointing=True, **options)
    assert_grown_as_whole(spec)


def test_layers_that_are_treated_differently_are_all_captured(tmp_path: Path) -> None:
    assert layers_of_job(spec_of(tmp_path, "llama").workload) == (4, 1, 16)
    for options in (
        {"trained_layers": 2},
        {"phase": "inference"},
        {"adapter": "lora,target_modules=layers.0.self_attn.q_proj"},
        {"adapter": "lora,layers_to_transform=3"},
    ):
        assert layers_of_job(spec_of(tmp_path, "llama", **options).workload) is None


def test_the_period_is_that_of_the_layers(tmp_path: Path) -> None:
    found = layers_of_job(spec_of(tmp_path, "gemma3_text").workload)
    assert found is not None
    assert found.period == 2
