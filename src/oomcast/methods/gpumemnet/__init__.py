"""Estimators that learnt from measured runs: GPUMemNet's two classifiers, and a residual over the simulator.

Why: real machines hold more than any simulation knows of, and runs of many networks tell how much. GPUMemNet names the
class of memory that a network falls into, from features of its layers (`features`, `classes`); the residual corrects
the simulator's own answer instead (`residual`), which errs far less outside of what was learnt. Networks and trees run
in numpy alone (`networks`); they come trained, in one checked file (`artifact`). `dataset` draws and labels networks
that such estimators learn from, and `training` learns: from those, from campaigns and from calibrations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomcast.lazy import lazy_names

if TYPE_CHECKING:
    from .artifact import (
        Artifact,
        ClassModel,
        Domain,
        ResidualModel,
        load_artifact,
        network_kind,
        read_artifact,
        write_artifact,
    )
    from .classes import Classes, classes_of
    from .estimators import GPUMEMNET_MLP, GPUMEMNET_TRANSFORMER, LEARNED, Learned, MlpClasses, TransformerClasses
    from .features import (
        Layer,
        LayerFeatures,
        SimulatorFeatures,
        feature_vector,
        layer_features,
        layers_with_memory,
        reserved_without_workspaces,
        simulator_features,
        token_vectors,
    )

__all__ = [
    "GPUMEMNET_MLP",
    "GPUMEMNET_TRANSFORMER",
    "LEARNED",
    "Artifact",
    "ClassModel",
    "Classes",
    "Domain",
    "Layer",
    "LayerFeatures",
    "Learned",
    "MlpClasses",
    "ResidualModel",
    "SimulatorFeatures",
    "TransformerClasses",
    "classes_of",
    "feature_vector",
    "layer_features",
    "layers_with_memory",
    "load_artifact",
    "network_kind",
    "read_artifact",
    "reserved_without_workspaces",
    "simulator_features",
    "token_vectors",
    "write_artifact",
]

__getattr__ = lazy_names(
    __name__,
    {
        ".artifact": (
            "Artifact",
            "ClassModel",
            "Domain",
            "ResidualModel",
            "load_artifact",
            "network_kind",
            "read_artifact",
            "write_artifact",
        ),
        ".classes": ("Classes", "classes_of"),
        ".estimators": (
            "GPUMEMNET_MLP",
            "GPUMEMNET_TRANSFORMER",
            "LEARNED",
            "Learned",
            "MlpClasses",
            "TransformerClasses",
        ),
        ".features": (
            "Layer",
            "LayerFeatures",
            "SimulatorFeatures",
            "feature_vector",
            "layer_features",
            "layers_with_memory",
            "reserved_without_workspaces",
            "simulator_features",
            "token_vectors",
        ),
    },
    extra="torch",
)
