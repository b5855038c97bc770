"""Deep models of equal layers from two shallow ones: the same Trace as that of the whole model."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from trace_contents import contents

from oomcast.capture.growth import _sentences
from oomcast.capture.torch import run
from oomcast.capture.torch.jobs import layers_of_job
from oomcast.spec import Place, Spec, Workload

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


def spec_of(folder: Path, kind: str, place: Place | None = None, layers: int | None = None, **options: Any) -> Spec:
    sizes = {} if kind == "gpt2" else SIZES
    path = folder / "config.json"
    deep = {} if layers is None else {"num_hidden_layers": layers}
    path.write_text(json.dumps({"model_type": kind, **sizes, **FAMILIES[kind], **deep}), encoding="utf-8")
    workload = Workload.create(f"hf:{path}", batch_size=2, seq_len=16, **options)
    return Spec(workload, place or Place("rtx-4090"))


def assert_grown_as_whole(spec: Spec) -> None:
    # From one line: the lines of code in a Trace are those of whoever is outside of the libraries.
    drawn = torch.get_rng_state()
    gc.disable()  # tensors in cycles are free when Python's collector comes by, which nothing of the job decides
    try:
        grown, whole = (torch.set_rng_state(drawn) or capture(spec) for capture in (run._grown, run._captured))
    finally:
        gc.enable()
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
    ("layout", "rank", "layers", "options"),
    [
        ("fsdp2,tp=2", 0, 24, {"checkpointing": True, "precision": "amp-bf16"}),
        # The modules of a later stage are named by all that stand before it, in fewer layers by fewer.
        ("tp=2,pp=2", 2, 28, {"accumulation": 2}),
    ],
)
def test_ranks_of_several_gpus(tmp_path: Path, layout: str, rank: int, layers: int, options: dict[str, Any]) -> None:
    """Its sentences count the layers of the whole model, too; and the sizes that follow from drawn values agree."""
    place = Place("2x2xrtx-4090", rank=rank)
    assert_grown_as_whole(spec_of(tmp_path, "llama", place, layers, steps=2, parallel=layout, **options))


def test_models_of_the_zoo() -> None:
    workload = Workload.create("zoo:gpt2-medium", batch_size=1, seq_len=16, steps=2)
    assert layers_of_job(workload) == (4, 1, 24, 1)
    assert_grown_as_whole(Spec(workload, Place("rtx-4090")))
    assert layers_of_job(Workload.create("zoo:resnet50", batch_size=1)) is None
    # DDP's buckets reach from one layer into the next.
    assert layers_of_job(Workload.create("zoo:gpt2-medium", batch_size=1, parallel="ddp")) is None


@pytest.mark.parametrize(
    "options",
    [
        {"quantization": "nf4"},
        {"quantization": "nf4", "loading": "device-map"},
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
    assert layers_of_job(spec_of(tmp_path, "llama").workload) == (4, 1, 16, 1)
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


def test_only_counts_grow_in_sentences() -> None:
    assert _sentences(("tp=8: 6 of 80",), ("tp=8: 7 of 80",), 3) == ("tp=8: 10 of 80",)
    assert _sentences(("holds 1.5 GiB",), ("holds 1.7 GiB",), 3) is None
    assert _sentences(("1,035 runs",), ("1,036 runs",), 3) is None
    assert _sentences(("resharded",), ("gathered",), 3) is None
