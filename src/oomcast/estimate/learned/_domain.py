"""Whether a job is like those that a model has learnt from; if not, in what it differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ._artifact import Domain
from ._features import LayerFeatures

__all__ = ["network_kind", "unlike_domain", "unlike_runs"]

_MARGIN = 0.1
"""Of a feature's range: a little outside is still like the inside."""
_STEM_CONVOLUTIONS = 3
"""As many convolutions cut images into patches: a Transformer with no more of them is still one."""


def network_kind(features: LayerFeatures) -> str:
    """Which of GPUMemNet's data sets it belongs to: `mlp`, `cnn` or `transformer`."""
    counts = features.counts
    if counts.get("attention", 0) and counts.get("convolution", 0) <= _STEM_CONVOLUTIONS:
        return "transformer"
    return "cnn" if counts.get("convolution", 0) else "mlp"


def unlike_domain(
    features: LayerFeatures, values: Sequence[float], names: Sequence[str], domain: Domain
) -> tuple[str, ...]:
    """Sentences; none where it is alike."""
    found = [
        f"layers of the kind {kind} were never seen in training" for kind in features.kinds if kind not in domain.kinds
    ]
    for name, value, low, high in zip(names, values, domain.low, domain.high, strict=True):
        margin = _MARGIN * (high - low)
        if not low - margin <= value <= high + margin:
            found.append(f"its {name} of {value:.4g} is outside of {low:.4g} to {high:.4g}, which training covered")
    if not features.layers:
        found.append("no layer was found in its first forward pass")
    return tuple(found)


def unlike_runs(told: Mapping[str, Any], workload: Mapping[str, Any], device: str) -> tuple[str, ...]:
    """The runs that were learnt from had these devices, optimizers and precisions."""
    asked = {"devices": device, "optimizers": workload.get("optimizer"), "precisions": workload.get("precision")}
    return tuple(
        f"training had the {name} {', '.join(map(str, told[name]))}, not {value}"
        for name, value in asked.items()
        if name in told and str(value) not in told[name]
    )
