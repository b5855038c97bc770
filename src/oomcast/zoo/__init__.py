"""The models the papers use, written plainly in PyTorch, each as a job ready to be estimated.

`names()` lists them, `find("resnet50")` describes one, `find("resnet50").load()` is its job. Importing this package
does not import torch; loading a job does. `find_public_model` and `find_diffusion_model` know the sizes of models of
the Hugging Face hub.
"""

from __future__ import annotations

from .catalogue import Job, ZooModel, find, names
from .public_models import (
    DiffusionModel,
    PublicModel,
    TextEncoder,
    diffusion_models,
    find_diffusion_model,
    find_public_model,
    public_models,
)

__all__ = [
    "DiffusionModel",
    "Job",
    "PublicModel",
    "TextEncoder",
    "ZooModel",
    "diffusion_models",
    "find",
    "find_diffusion_model",
    "find_public_model",
    "names",
    "public_models",
]
