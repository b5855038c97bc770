"""The libraries at hand, and what is to be said where a job is meant for others.

Their versions go into the Trace. Their Python code is what runs, so where it is known to differ in memory from that of
the environment's time, the answer says it: once, exactly, and only for jobs that use it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from importlib import metadata

import torch
from torch import nn

from ...trace import Trace
from .personality import INSTALLED, Personality

__all__ = ["LIBRARIES", "assumptions_about_versions", "library_versions", "predicts_tokens"]

LIBRARIES = (
    "timm",
    "torchvision",
    "transformers",
    "peft",
    "accelerate",
    "diffusers",
    "bitsandbytes",
    "lightning",
    "deepspeed",
)
"""Whose code decides what a job allocates; recorded where a job has loaded them."""

_LOSS_FILE = os.path.join("transformers", "loss", "loss_utils.py:")
_LOSS_WITHOUT_COPY = (4, 46)
"""Of October 2024, when torch 2.5 came."""


def library_versions() -> dict[str, str]:
    """Python, torch, and the libraries on it that are in use."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for package in LIBRARIES:
        if package in sys.modules:
            with contextlib.suppress(metadata.PackageNotFoundError):
                versions[package] = metadata.version(package)
    return versions


def assumptions_about_versions(personality: Personality, trace: Trace, *, predicted_tokens: bool) -> tuple[str, ...]:
    """Sentences for the user, where what is installed here is not what the environment has, and it matters.

    `predicted_tokens`: a model ran that `predicts_tokens`.
    """
    followed = personality.platform.torch
    sentences = []
    if personality.differences:
        sentences.append(
            f"torch {_text(followed)} is followed, not the installed {_text(INSTALLED)}, in: "
            f"{', '.join(personality.differences)}; otherwise its modules, losses and optimizers are the installed ones"
        )
    transformers = trace.versions.get("transformers")
    if transformers is not None and followed < (2, 5) and predicted_tokens and _loss_without_copy(transformers, trace):
        sentences.append(
            f"the loss is that of transformers {transformers}; versions before 4.46, usual with torch "
            f"{_text(followed)}, hold one more copy of the logits, shifted by one token"
        )
    return tuple(sentences)


def predicts_tokens(model: nn.Module) -> bool:
    """Whether a part of it is a model of transformers with the loss over the next token."""
    pretrained = getattr(sys.modules.get("transformers.modeling_utils"), "PreTrainedModel", ())
    return any(
        isinstance(module, pretrained) and getattr(module.loss_function, "__name__", "") == "ForCausalLMLoss"
        for module in model.modules()
    )


def _loss_without_copy(transformers: str, trace: Trace) -> bool:
    """Whether a loss was computed by a version of transformers that copies no logits for that over the next token."""
    newer = _numbers(transformers) >= _LOSS_WITHOUT_COPY
    return newer and any(_LOSS_FILE in made.source for made in trace.allocations)


def _text(version: tuple[int, int]) -> str:
    return "{}.{}".format(*version)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", version)[:2])
