"""XLA's compiler for GPUs, asked without a GPU for what it would allocate; JAX' and TensorFlow's captures share it."""

from __future__ import annotations

import os

__all__ = ["only_describe"]


def only_describe() -> None:
    """Before JAX is loaded: nothing runs on a card that may be in use, and the compiler for GPUs needs none."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    # The compiler is asked without a driver and without NVIDIA's libraries.
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
