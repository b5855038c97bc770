"""How the estimators of this room are learnt: rows, fits, and scores on rows that were kept out.

Why here and not in the laboratory: whoever has a GPU, a stack or networks of their own learns from these. torch and
scikit-learn are loaded for it; an estimate needs neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomcast.lazy import lazy_names

if TYPE_CHECKING:
    from .rows import LearningRow, read_learning_rows
    from .train import Training, render_training, train_estimators

__all__ = ["LearningRow", "Training", "read_learning_rows", "render_training", "train_estimators"]

__getattr__ = lazy_names(
    __name__,
    {
        ".rows": ("LearningRow", "read_learning_rows"),
        ".train": ("Training", "render_training", "train_estimators"),
    },
    extra="dataset",
)
