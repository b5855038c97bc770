"""Estimators that learnt from measured runs: GPUMemNet's two, and a residual over the simulator.

Features need nothing but a Trace; everything else needs numpy, and is loaded when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._bare import reserved_without_workspaces
from ._features import Layer, LayerFeatures, SimulatorFeatures, layer_features, simulator_features

if TYPE_CHECKING:
    from ._artifact import Artifact, load_artifact, read_artifact, write_artifact
    from ._estimators import (
        TRACE_ESTIMATORS,
        estimate_by_learned,
        estimate_by_mlp_classes,
        estimate_by_transformer_classes,
    )

__all__ = [
    "TRACE_ESTIMATORS",
    "Artifact",
    "Layer",
    "LayerFeatures",
    "SimulatorFeatures",
    "estimate_by_learned",
    "estimate_by_mlp_classes",
    "estimate_by_transformer_classes",
    "layer_features",
    "load_artifact",
    "read_artifact",
    "reserved_without_workspaces",
    "simulator_features",
    "write_artifact",
]

_HOMES = {
    "_artifact": ("Artifact", "load_artifact", "read_artifact", "write_artifact"),
    "_estimators": (
        "TRACE_ESTIMATORS",
        "estimate_by_learned",
        "estimate_by_mlp_classes",
        "estimate_by_transformer_classes",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
