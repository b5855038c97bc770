"""Diffusion models: what the denoiser, the frozen parts beside it and an adapter hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tuned_jobs import held, needs, peak, traced

from oomcast import zoo
from oomcast.errors import BadInput, UnknownName
from oomcast.spec import Job, JobKind, Spec, Workload
from oomcast.trace import Category, Phase, Trace

pytestmark = needs("diffusers")

UNET = {"sample_size": 8, "block_out_channels": [32, 64], "layers_per_block": 1, "cross_attention_dim": 96,
        "norm_num_groups": 8, "attention_head_dim": 8, "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"]}  # fmt: skip
HEADS = {"num_layers": 1, "num_attention_heads": 2, "attention_head_dim": 16}
CONFIGS: dict[str, dict[str, Any]] = {
    "UNet2DConditionModel": UNET,
    "SD3Transformer2DModel": {
        **HEADS, "sample_size": 8, "in_channels": 16, "joint_attention_dim": 96, "caption_projection_dim": 32,
        "pooled_projection_dim": 64, "pos_embed_max_size": 16,
    },
    "FluxTransformer2DModel": {
        **HEADS, "num_single_layers": 1, "joint_attention_dim": 96, "pooled_projection_dim": 64,
        "axes_dims_rope": [4, 6, 6], "guidance_embeds": True,
    },
    "PixArtTransformer2DModel": {
        **HEADS, "sample_size": 8, "cross_attention_dim": 32, "caption_channels": 96, "norm_type": "ada_norm_single",
    },
}  # fmt: skip


def _written(folder: Path, class_name: str) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps({"_class_name": class_name, **CONFIGS[class_name]}))
    return str(path)


def _parameters(trace: Trace) -> int:
    return held(trace, Category.PARAMETER)


@pytest.mark.parametrize("class_name", CONFIGS)
def test_a_denoisers_own_configuration_is_trained_on_latents(tmp_path: Path, class_name: str) -> None:
    """The weights, as many gradients and twice as much for Adam: all of it is trained, whatever the class calls its
    inputs."""
    import diffusers

    job = _written(tmp_path, class_name)
    assert Job.parse(job).kind is JobKind.DIFFUSERS
    trace = traced(job, seq_len=7, input_shape=(3, 64, 64))
    model = getattr(diffusers, class_name).from_config(CONFIGS[class_name])
    weights = sum(4 * parameter.numel() for parameter in model.parameters())
    assert _parameters(trace) == weights
    assert held(trace, Category.GRADIENT) <= weights
    assert held(trace, Category.GRADIENT) > 0.95 * weights
    assert any("encoded before" in sentence for sentence in trace.assumptions)


TINY = zoo.DiffusionModel(
    names=("tiny",),
    family="tiny",
    source="this test",
    denoiser={"_class_name": "UNet2DConditionModel", **UNET},
    autoencoder={
        "_class_name": "AutoencoderKL",
        "down_block_types": ["DownEncoderBlock2D"] * 4,
        "up_block_types": ["UpDecoderBlock2D"] * 4,
        "block_out_channels": [32, 32, 32, 32],
    },
    autoencoder_in_fp32=True,
    text_encoders=(
        zoo.TextEncoder(
            {
                "model_type": "clip_text_model",
                "vocab_size": 1000,
                "hidden_size": 96,
                "intermediate_size": 128,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
            },
            tokens=77,
        ),
    ),
    image=64,
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> str:
    """A pipeline in the catalogue that is small enough to be captured in a moment."""
    monkeypatch.setattr(zoo, "find_diffusion_model", {"tiny": TINY}.get)
    return "diffusers:tiny"


def _bytes_of_frozen_parts() -> tuple[int, int]:
    """In fp32 and in bf16: the autoencoder stays in fp32, the text encoder takes the type of the precision."""
    import diffusers
    import transformers

    autoencoder = diffusers.AutoencoderKL.from_config(dict(TINY.autoencoder))
    encoder = transformers.CLIPTextModel(transformers.CLIPTextConfig(**dict(TINY.text_encoders[0].facts)))
    return (
        sum(4 * parameter.numel() for parameter in autoencoder.parameters()),
        sum(2 * parameter.numel() for parameter in encoder.parameters()),
    )


def test_the_autoencoder_and_the_text_encoders_stand_frozen_beside_the_denoiser(tiny: str) -> None:
    whole = traced(tiny, precision="amp-bf16", seq_len=None)
    alone = traced(tiny, precision="amp-bf16", seq_len=None, precomputed="latents,text")
    autoencoder, encoder = _bytes_of_frozen_parts()
    assert _parameters(whole) - _parameters(alone) == autoencoder + encoder
    assert held(whole, Category.GRADIENT) == held(alone, Category.GRADIENT)
    latents = traced(tiny, precision="amp-bf16", seq_len=None, precomputed="latents")
    assert _parameters(latents) - _parameters(alone) == encoder


def test_frozen_parts_run_in_the_forward_of_a_step(tiny: str) -> None:
    phases = {allocation.phase for allocation in traced(tiny, seq_len=None).allocations}
    assert Phase.FORWARD in phases
    assert Phase.EVALUATION not in phases


def test_frozen_parts_are_not_run_under_autocast(tiny: str) -> None:
    """The autoencoder in fp32 computes in fp32: its activations are twice what autocast would make of them."""
    trace = traced(tiny, precision="amp-bf16", seq_len=None)
    convolved = {
        allocation.dtype
        for allocation in trace.allocations
        if allocation.operator.startswith("aten.convolution") and allocation.shape[-2:] == (64, 64)
    }
    assert convolved == {"float32"}


@needs("peft")
def test_an_adapter_goes_beside_the_attention_and_checkpointing_saves(tiny: str) -> None:
    options: dict[str, Any] = {"weights": "bf16", "precision": "amp-bf16", "seq_len": None, "batch_size": 16,
                               "precomputed": "latents"}  # fmt: skip
    tuned = traced(tiny, adapter="lora,r=4", **options)
    assert 0 < held(tuned, Category.GRADIENT) < _parameters(tuned) / 20
    assert any("to_k+to_q+to_v+to_out.0, trained in bf16" in sentence for sentence in tuned.assumptions)
    assert peak(traced(tiny, adapter="lora,r=4", checkpointing=True, **options)) < peak(tuned)


@needs("peft")
@needs("bitsandbytes")
def test_a_denoiser_is_quantised_beside_its_adapter(tmp_path: Path) -> None:
    job = _written(tmp_path, "FluxTransformer2DModel")
    options = {"weights": "bf16", "precision": "amp-bf16", "adapter": "lora,r=4", "input_shape": (3, 64, 64)}
    assert _parameters(traced(job, quantization="nf4", **options)) < 0.4 * _parameters(traced(job, **options))


def test_what_cannot_be_is_told_in_a_sentence(tiny: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="multiples of 64"):
        traced(tiny, seq_len=None, input_shape=(3, 100, 64))
    with pytest.raises(BadInput, match="always have 77 tokens"):
        traced(tiny, seq_len=12)
    with pytest.raises(BadInput, match="give a script to oomcast run"):
        traced(tiny, seq_len=None, phase="inference")
    with pytest.raises(UnknownName, match="diffusion model"):
        traced("diffusers:nobody/nothing")
    with pytest.raises(UnknownName, match="unknown precomputed part 'latent'"):
        Workload.create("diffusers:tiny", precomputed="latent")
    with pytest.raises(BadInput, match="--objective is for models of transformers"):
        traced(tiny, objective="dpo")
    with pytest.raises(BadInput, match="--precomputed is for diffusion models"):
        traced("zoo:resnet18", seq_len=None, precomputed="text")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"_class_name": "CogVideoXTransformer3DModel"}))
    with pytest.raises(UnknownName, match="by a job file or a script"):
        traced(str(path))
    path.write_text(json.dumps({"_class_name": "UNet2DConditionModel", "block_out_channels": [32]}))
    with pytest.raises(BadInput, match="diffusers rejects the configuration"):
        traced(str(path))


def test_the_libraries_of_a_diffusion_job_are_named() -> None:
    spec = Spec.read("diffusers:black-forest-labs/FLUX.1-dev", device="rtx-4090", adapter="lora")
    assert spec.workload.libraries == ("diffusers", "transformers", "peft")
