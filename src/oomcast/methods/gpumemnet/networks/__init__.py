"""Classifiers and quantile trees that run with numpy alone; `training` fits them.

Why not torch: an estimator is asked for one job at a time, and loading torch would take longer than its answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomcast.lazy import lazy_names

if TYPE_CHECKING:
    from .inference import (
        Arrays,
        Floats,
        MlpEnsemble,
        SequenceEnsemble,
        arrays_from_bytes,
        arrays_to_bytes,
        pad_sequences,
        probabilities_of_one,
        softmax,
    )
    from .trees import QuantileTrees

__all__ = [
    "Arrays",
    "Floats",
    "MlpEnsemble",
    "QuantileTrees",
    "SequenceEnsemble",
    "arrays_from_bytes",
    "arrays_to_bytes",
    "pad_sequences",
    "probabilities_of_one",
    "softmax",
]

__getattr__ = lazy_names(
    __name__,
    {
        ".inference": (
            "Arrays",
            "Floats",
            "MlpEnsemble",
            "SequenceEnsemble",
            "arrays_from_bytes",
            "arrays_to_bytes",
            "pad_sequences",
            "probabilities_of_one",
            "softmax",
        ),
        ".trees": ("QuantileTrees",),
    },
    extra="torch",
)
