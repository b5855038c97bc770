"""A job's files and what its user gave beside them, in one set of options: what the user gave counts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import BadInput
from ..parallel import read_machines
from .found import Recipe
from .reading import read_configuration

__all__ = ["with_configurations"]

_MOST_NAMED = 12
_FOLLOWED = 2
"""Micro-batches, and steps: the first allocates gradients and states, the second has everything; more repeat it."""


def with_configurations(main: str | None, given: Mapping[str, Any], model: str | None = None) -> dict[str, Any]:
    """The options that `main` and the files in `configs` stand for, beneath those that are given.

    `main` is the job itself where it is a configuration; `model` is its name where it is a model.
    """
    further = given.get("configs", ())
    files = [*([main] if main else []), *(further.split(",") if isinstance(further, str) else further)]
    recipes = [(str(file).strip(), read_configuration(str(file).strip(), tuple(given))) for file in files]
    recipe = recipes[0][1]
    for _, other in recipes[1:]:
        recipe = recipe.merged(other)
    options = dict(recipe.options)
    notes = [sentence for file, each in recipes for sentence in _said(Path(file).name, each)]
    used = model or str(given.get("model", options.get("model")))
    notes += [sentence for file, each in recipes for sentence in _of_another_model(Path(file).name, each, used)]
    if main is None:
        options.pop("model", None)  # the job is the model
    layout = options.pop("parallel", None)
    if layout is not None and layout != "ddp":
        if read_machines(str(given.get("device", ""))).world_size > 1:
            options["parallel"] = layout
            if options.pop("master_weights", False):  # DeepSpeed's own engine keeps them
                options["precision"] = f"amp-{options.pop('weights')}"
        elif "parallel" not in given:
            gpus = f" over {recipe.world_size} GPUs" if recipe.world_size > 1 else ""
            notes.append(
                f"the files spread the job by {layout}{gpus}; the figures are those of one GPU that holds everything: "
                "name several, like --device 8xh100-80gb"
            )
    if options.get("accumulation", 1) > _FOLLOWED:
        notes.append(
            f"of {options['accumulation']} micro-batches a step {_FOLLOWED} are followed; the others repeat them"
        )
        options["accumulation"] = _FOLLOWED
    options.setdefault("steps", _FOLLOWED)
    options.update(given)
    if main is not None:
        _require(options, Path(main).name)
    return {**options, "notes": (*notes, *given.get("notes", ()))}


def _said(file: str, recipe: Recipe) -> list[str]:
    said = [f"{file} is read as a configuration of {recipe.format}"]
    said += [f"{file}: {sentence}" for sentence in recipe.notes]
    if recipe.not_followed:
        named = ", ".join(recipe.not_followed[:_MOST_NAMED])
        more = len(recipe.not_followed) - _MOST_NAMED
        said.append(
            f"{file}: keys that may matter and are not followed: {named}" + (f" and {more} more" if more > 0 else "")
        )
    return said


def _of_another_model(file: str, recipe: Recipe, model: str) -> list[str]:
    """An adapter's file names the model that it was made for. Where the sizes in both names differ, it cannot be meant;
    another name of the same size may be a copy, or what was made from it."""
    made_for = recipe.options.get("model")
    if recipe.format != "peft" or not made_for:
        return []
    names = [str(name).removeprefix("hf:").rpartition("/")[2].lower() for name in (made_for, model)]
    if names[0] == names[1]:
        return []
    sizes = [re.findall(r"(?<![0-9.])[0-9.]+[bm](?![a-z])", name) for name in names]
    if all(sizes) and sizes[0] != sizes[1]:
        raise BadInput(f"{file} is an adapter of {made_for}, not of {model.removeprefix('hf:')}.")
    return [f"{file}: the adapter was made for {made_for}, and is put on {model.removeprefix('hf:')} here"]


def _require(options: dict[str, Any], file: str) -> None:
    model = options.get("model")
    if not model:
        raise BadInput(f"{file} names no model; give it with --model, like --model hf:meta-llama/Llama-3.1-8B.")
    if "batch_size" not in options:
        raise BadInput(f"{file} names no batch size for one GPU; give it with --batch-size.")
    options["model"] = str(model).removeprefix("hf:")
