"""Layer features as the numbers that networks take: logarithms for orders of magnitude, GiB for sums."""

from __future__ import annotations

import math

from ._features import KINDS, LayerFeatures, activation_code

__all__ = ["TOKEN_NAMES", "VECTOR_NAMES", "feature_vector", "token_vectors"]

_FLOAT = 4
_GIB = 2.0**30
_MOST_GIB = 64.0
"""Beyond it every job is out of memory, and a network would only be led astray."""

VECTOR_NAMES = (
    *(f"log {kind} layers" for kind in KINDS),
    "log batch size",
    "log parameters",
    "log activations",
    "log activations x batch",
    "GiB of parameters",
    "GiB of activations",
    "GiB of the largest layer",
    "activation sine",
    "activation cosine",
)
TOKEN_NAMES = (*KINDS, "another kind", "log activations", "log parameters", "log activations x batch")


def feature_vector(features: LayerFeatures) -> tuple[float, ...]:
    counts = features.counts
    return (
        *(math.log2(1 + counts.get(kind, 0)) for kind in KINDS),
        math.log2(1 + features.batch_size),
        math.log2(1 + features.parameters),
        math.log2(1 + features.activations),
        math.log2(1 + features.batch_activations),
        _gib(features.parameters),
        _gib(features.batch_activations),
        _gib(features.batch_size * max((layer.activations for layer in features.layers), default=0)),
        *activation_code(features.activation_function),
    )


def token_vectors(features: LayerFeatures, most: int | None = None) -> tuple[tuple[float, ...], ...]:
    """Every layer: its kind, what it puts out for a sample and for the batch, and its parameters; the first `most`."""
    return tuple(
        (
            *(float(layer.kind == kind) for kind in KINDS),
            float(layer.kind not in KINDS),
            math.log2(1 + layer.activations),
            math.log2(1 + layer.parameters),
            math.log2(1 + layer.activations * features.batch_size),
        )
        for layer in features.layers[:most]
    )


def _gib(values: int) -> float:
    return min(values * _FLOAT / _GIB, _MOST_GIB)
