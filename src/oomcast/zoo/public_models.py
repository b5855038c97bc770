"""Sizes of public models by the name they have on the Hugging Face hub, so that they need not be fetched.

`public_models.json` and `diffusion_models.json` hold facts alone (sizes, heads, layers, vocabulary), by family, each
with its source. The keys are those of the configuration classes of transformers and of diffusers, which build the
models. Importing this loads no framework.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

__all__ = [
    "DiffusionModel",
    "PublicModel",
    "TextEncoder",
    "diffusion_models",
    "find_diffusion_model",
    "find_public_model",
    "public_models",
]


@dataclass(frozen=True)
class PublicModel:
    """One set of sizes, which several names may share (a base model and what was tuned from it)."""

    names: tuple[str, ...]
    family: str
    source: str
    facts: Mapping[str, Any]
    """What a `config.json` would say of its sizes, `model_type` among it."""


@cache
def public_models() -> tuple[PublicModel, ...]:
    """All of them, family by family."""
    return tuple(
        PublicModel(
            tuple(model["names"]),
            family["family"],
            family["source"],
            {
                "model_type": family["model_type"],
                **family.get("common", {}),
                **{key: value for key, value in model.items() if key != "names"},
            },
        )
        for family in _shipped("public_models.json")["families"]
        for model in family["models"]
    )


@cache
def _by_name() -> Mapping[str, PublicModel]:
    return {name.lower(): model for model in public_models() for name in model.names}


def find_public_model(name: str) -> PublicModel | None:
    """The model of this name, capitals aside; None for one that is not among them."""
    return _by_name().get(name.lower())


@dataclass(frozen=True)
class TextEncoder:
    """A model of transformers that reads a diffusion model's captions."""

    facts: Mapping[str, Any]
    tokens: int
    """As many as every caption is padded to."""


@dataclass(frozen=True)
class DiffusionModel:
    """The parts of a diffusion pipeline. The denoiser is what is trained."""

    names: tuple[str, ...]
    family: str
    source: str
    denoiser: Mapping[str, Any]
    """What its `config.json` would say of its sizes, diffusers' `_class_name` among it."""
    autoencoder: Mapping[str, Any]
    autoencoder_in_fp32: bool
    """Whether diffusers' training scripts keep it so, whatever the precision is."""
    text_encoders: tuple[TextEncoder, ...]
    image: int
    """Height and width of the images that it was made for."""


@cache
def diffusion_models() -> tuple[DiffusionModel, ...]:
    """All of them, family by family."""
    plain = _shipped("diffusion_models.json")
    parts = plain["parts"]
    return tuple(
        DiffusionModel(
            tuple(family["names"]),
            family["family"],
            family["source"],
            family["denoiser"],
            parts[family["vae"]],
            family.get("vae_in_fp32", False),
            tuple(TextEncoder(parts[text["encoder"]], text["tokens"]) for text in family["text"]),
            family["image"],
        )
        for family in plain["families"]
    )


def find_diffusion_model(name: str) -> DiffusionModel | None:
    """The model of this name, capitals aside; None for one that is not among them."""
    names = {one.lower(): model for model in diffusion_models() for one in model.names}
    return names.get(name.lower())


def _shipped(name: str) -> Any:
    return json.loads((resources.files(__package__) / name).read_text(encoding="utf-8"))
