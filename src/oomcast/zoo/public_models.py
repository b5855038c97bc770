"""Sizes of public models by the name they have on the Hugging Face hub, so that they need not be fetched.

`public_models.json` holds facts alone (sizes, heads, layers, vocabulary), by family, each with its source. The keys
are those of transformers' configuration classes, which build the model. Importing this loads no framework.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

__all__ = ["PublicModel", "find_public_model", "public_models"]


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
    text = (resources.files(__package__) / "public_models.json").read_text(encoding="utf-8")
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
        for family in json.loads(text)["families"]
        for model in family["models"]
    )


@cache
def _by_name() -> Mapping[str, PublicModel]:
    return {name.lower(): model for model in public_models() for name in model.names}


def find_public_model(name: str) -> PublicModel | None:
    """The model of this name, capitals aside; None for one that is not among them."""
    return _by_name().get(name.lower())
