"""Data sets of labelled networks: drawn evenly over their features, labelled by the simulator or by real runs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..errors import BadInput

if TYPE_CHECKING:
    from ._build import build_dataset
    from ._files import read_dataset, write_dataset
    from ._gpumemnet import read_any, read_gpumemnet
    from ._network import ARCHITECTURES, KINDS, Network
    from ._render import render
    from ._rows import COLUMNS, Column, Dataset, Label, Row
    from ._settings import LABELS, Settings
    from ._space import ACTIVATION_NAMES, SPACE
    from ._train import render as render_training
    from ._train import train
    from ._uniformity import uniformity_of

__all__ = [
    "ACTIVATION_NAMES",
    "ARCHITECTURES",
    "COLUMNS",
    "KINDS",
    "LABELS",
    "SPACE",
    "Column",
    "Dataset",
    "Label",
    "Network",
    "Row",
    "Settings",
    "build_dataset",
    "read_any",
    "read_dataset",
    "read_gpumemnet",
    "render",
    "render_training",
    "train",
    "uniformity_of",
    "write_dataset",
]

_HOMES = {
    "_build": ("build_dataset",),
    "_files": ("read_dataset", "write_dataset"),
    "_gpumemnet": ("read_any", "read_gpumemnet"),
    "_network": ("ARCHITECTURES", "KINDS", "Network"),
    "_render": ("render",),
    "_rows": ("COLUMNS", "Column", "Dataset", "Label", "Row"),
    "_settings": ("LABELS", "Settings"),
    "_space": ("ACTIVATION_NAMES", "SPACE"),
    "_train": ("train",),
    "_uniformity": ("uniformity_of",),
}


_RENAMED = {"render_training": ("_train", "render")}


def __getattr__(name: str) -> Any:
    # Drawing needs numpy and scipy, Parquet pyarrow, training torch: each only where it is used.
    module, own = _RENAMED.get(name, ("", name))
    module = module or next((home for home, names in _HOMES.items() if name in names), "")
    if not module:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f".{module}", __name__), own)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("oomcast"):
            raise
        raise BadInput(
            f"data sets need the package {error.name}; install it with: pip install 'oomcast[dataset]'"
        ) from None
