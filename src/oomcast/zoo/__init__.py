"""The models the papers use, written plainly in PyTorch, each as a job ready to be estimated.

`names()` lists them, `find("resnet50")` describes one, `find("resnet50").load()` is its job. Importing this package
does not import torch; loading a job does. `find_public_model` knows the sizes of models of the Hugging Face hub.
"""

from __future__ import annotations

from .catalogue import Job, ZooModel, find, names
from .public_models import PublicModel, find_public_model, public_models

__all__ = ["Job", "PublicModel", "ZooModel", "find", "find_public_model", "names", "public_models"]
