"""Classifiers and quantile trees: fitted with torch and scikit-learn, run with numpy alone."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._bytes import arrays_from_bytes, arrays_to_bytes
from ._infer import (
    Arrays,
    Floats,
    MlpEnsemble,
    SequenceEnsemble,
    pad_sequences,
    probabilities_of_one,
    softmax,
)
from ._trees import QuantileTrees

if TYPE_CHECKING:
    from ._fit import FitSettings, fit_mlp_ensemble, fit_sequence_ensemble
    from ._fit_trees import TreeSettings, fit_quantile_trees

__all__ = [
    "Arrays",
    "FitSettings",
    "Floats",
    "MlpEnsemble",
    "QuantileTrees",
    "SequenceEnsemble",
    "TreeSettings",
    "arrays_from_bytes",
    "arrays_to_bytes",
    "fit_mlp_ensemble",
    "fit_quantile_trees",
    "fit_sequence_ensemble",
    "pad_sequences",
    "probabilities_of_one",
    "softmax",
]

_HOMES = {
    "_fit": ("FitSettings", "fit_mlp_ensemble", "fit_sequence_ensemble"),
    "_fit_trees": ("TreeSettings", "fit_quantile_trees"),
}


def __getattr__(name: str) -> Any:
    # Fitting needs torch or scikit-learn; what was fitted does not.
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
