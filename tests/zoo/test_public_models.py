"""The sizes of public models that ship: each name once, each with its source, and the models come out as published."""

from __future__ import annotations

import importlib.util
from collections import Counter

import pytest

from oomcast import zoo
from oomcast.capture.torch.jobs.hf import load_hf
from oomcast.errors import BadInput, UnknownName
from oomcast.spec import Workload

# Numbers of parameters as the model cards on the Hugging Face hub state them (safetensors' count).
PUBLISHED = {
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "Qwen/Qwen2.5-0.5B-Instruct": 494_032_768,
    "google/gemma-3-4b-it": 4_300_079_472,
    "deepseek-ai/DeepSeek-V2-Lite": 15_706_484_224,
    "google/flan-t5-base": 247_577_856,
    "openai/whisper-tiny": 37_760_640,
}


def test_at_least_sixty_families_each_with_a_source_and_each_name_once() -> None:
    models = zoo.public_models()
    assert len({model.family for model in models}) >= 60
    assert all(model.source and model.facts["model_type"] for model in models)
    names = Counter(name.lower() for model in models for name in model.names)
    assert [name for name, times in names.items() if times > 1] == []


def test_capitals_do_not_matter_and_unknown_names_are_none() -> None:
    found = zoo.find_public_model("META-LLAMA/llama-3.1-8b")
    assert found is not None
    assert found.facts["hidden_size"] == 4096
    assert zoo.find_public_model("nobody/nothing") is None


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_model_has_the_published_number_of_parameters(name: str) -> None:
    import torch

    job = load_hf(name, Workload.create(f"hf:{name}", seq_len=8))
    with torch.device("meta"):
        model = job.model()
    assert sum(parameter.numel() for parameter in model.parameters()) == PUBLISHED[name]


DENOISERS = {
    "stable-diffusion-v1-5/stable-diffusion-v1-5": 859_520_964,
    "stabilityai/stable-diffusion-xl-base-1.0": 2_567_463_684,
    "stabilityai/stable-diffusion-3-medium": 2_028_328_000,
    "stabilityai/stable-diffusion-3.5-large": 8_056_627_520,
    "black-forest-labs/FLUX.1-dev": 11_901_408_320,
}
"""The same for the denoisers of diffusion models."""


@pytest.mark.skipif(importlib.util.find_spec("diffusers") is None, reason="diffusers is not installed")
@pytest.mark.parametrize("name", DENOISERS)
def test_the_denoiser_has_the_published_number_of_parameters(name: str) -> None:
    import torch

    from oomcast.capture.torch.jobs.diffusion import load_diffusers

    job = load_diffusers(name, Workload.create(f"diffusers:{name}"))
    with torch.device("meta"):
        model = job.model()
    assert sum(parameter.numel() for parameter in model.parameters()) == DENOISERS[name]


def test_every_diffusion_model_has_its_parts_and_its_source() -> None:
    models = zoo.diffusion_models()
    names = Counter(name.lower() for model in models for name in model.names)
    assert [name for name, times in names.items() if times > 1] == []
    for model in models:
        assert model.source
        assert model.denoiser["_class_name"]
        assert model.text_encoders
    assert zoo.find_diffusion_model("Black-Forest-Labs/flux.1-DEV") is not None


def test_a_diffusion_model_among_those_of_transformers_is_told_by_its_name() -> None:
    with pytest.raises(BadInput, match=r"write diffusers:black-forest-labs/FLUX\.1-dev"):
        load_hf("black-forest-labs/FLUX.1-dev", Workload.create("hf:black-forest-labs/FLUX.1-dev"))


def test_a_name_that_does_not_ship_says_how_to_give_its_configuration() -> None:
    with pytest.raises(UnknownName, match=r"save the config\.json"):
        load_hf("meta-llama/Llama-9-8B", Workload.create("hf:meta-llama/Llama-9-8B"))
