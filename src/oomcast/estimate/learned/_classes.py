"""GPUMemNet's estimators: a network names the class of memory, and the class's upper edge is the estimate."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ...learn.networks import MlpEnsemble, probabilities_of_one
from ...simulate.cudnn import has_convolutions
from ...trace import Category, Trace
from .._calibration import constants_of
from .._estimate import Estimate, PeakMoment, Verdict
from .._estimators import Target
from .._simulator import ACCEPTED_RISK
from ._artifact import Artifact, ClassModel
from ._domain import network_kind, unlike_domain, unlike_runs
from ._features import LayerFeatures, layer_features
from ._vectors import VECTOR_NAMES, feature_vector, token_vectors

__all__ = ["Classes", "classes_of", "estimate_by_classes"]

_MIB = 1 << 20
_FLOAT = 4
_MOST_PARAMETERS = 0.9
"""Of the class's own bytes; a class may be smaller than the parameters it is given."""


@dataclass(frozen=True)
class Classes:
    """Probabilities of classes of equal width, the last one open above."""

    width: int
    probabilities: tuple[float, ...]

    @property
    def chosen(self) -> int:
        return max(range(len(self.probabilities)), key=lambda number: self.probabilities[number])

    def edges(self, coverage: float, wider: int = 0) -> tuple[int, int]:
        """Bytes around the chosen class: the fewest neighbours that together are as sure as asked, and some more."""
        low = high = self.chosen
        last = len(self.probabilities) - 1
        sure = self.probabilities[low]
        while sure < coverage and (low > 0 or high < last):
            below = self.probabilities[low - 1] if low > 0 else -1.0
            above = self.probabilities[high + 1] if high < last else -1.0
            if above >= below:
                high += 1
            else:
                low -= 1
            sure += max(above, below)
        return max(low - wider, 0) * self.width, (high + 1 + wider) * self.width

    def not_exceeded(self, coverage: float) -> int:
        """The upper edge of the class up to which it is as sure as asked."""
        sums = itertools.accumulate(self.probabilities)
        number = next((n for n, total in enumerate(sums) if total >= coverage), len(self.probabilities) - 1)
        return (max(number, self.chosen) + 1) * self.width

    def above(self, limit: int) -> float:
        """The probability of more than `limit` bytes: even within a class, but the open one is above all near it."""
        total = 0.0
        for number, probability in enumerate(self.probabilities):
            share = min(max(((number + 1) * self.width - limit) / self.width, 0.0), 1.0)
            last = number == len(self.probabilities) - 1
            total += probability * (1.0 if last and limit <= number * self.width else share)
        return min(total, 1.0)


def classes_of(model: ClassModel, features: LayerFeatures) -> tuple[Classes, ...]:
    """For every width that the model knows, its best first."""
    vector = feature_vector(features)
    tokens = () if isinstance(model.network, MlpEnsemble) else token_vectors(features, model.network.longest)
    found = probabilities_of_one(model.network, vector, tokens)
    return tuple(Classes(width, one) for width, one in zip(model.widths, found, strict=True))


def estimate_by_classes(trace: Trace, target: Target, artifact: Artifact, estimator: str) -> Estimate:
    features = layer_features(trace)
    kind = network_kind(features)
    model = artifact.classes[estimator][kind]
    found = classes_of(model, features)
    unlike = (
        *unlike_domain(features, feature_vector(features), VECTOR_NAMES, model.domain),
        *unlike_runs(artifact.trained.get(kind, {}), trace.workload, target.gpu.name),
    )
    constants = constants_of(target.gpu, target.stack, has_convolutions(trace), target.calibration)
    # The classes hold the context of the machine that was learnt from; this one's takes its place.
    shift = constants.context - model.context
    return _estimate(trace, target, features, found, constants.context, shift, unlike, _provenance(artifact, estimator))


def _provenance(artifact: Artifact, estimator: str) -> dict[str, str]:
    return {"estimator": estimator, "trained": artifact.id, "calibration": "none: the catalogue's context"}


def _estimate(
    trace: Trace,
    target: Target,
    features: LayerFeatures,
    found: Sequence[Classes],
    context: int,
    shift: int,
    unlike: tuple[str, ...],
    provenance: dict[str, str],
) -> Estimate:
    best, coverage, usable = found[0], target.coverage, target.gpu.usable_memory
    low, high = best.edges(coverage, wider=1 if unlike else 0)
    total = max((best.chosen + 1) * best.width + shift, context + _MIB)
    p_oom = round(best.above(usable - shift), 6)
    parameters = min(features.parameters * _FLOAT, int((total - context) * _MOST_PARAMETERS))
    return Estimate(
        peak_allocated=total - context,
        peak_reserved=total - context,
        device_total=total,
        low=min(max(low + shift, context), total),
        high=max(high + shift, total),
        coverage=coverage,
        will_not_exceed=max(best.not_exceeded(coverage) + (best.width if unlike else 0) + shift, total),
        p_oom=p_oom,
        verdict=Verdict.OOM if p_oom > 0.5 else Verdict.TIGHT if p_oom > ACCEPTED_RISK else Verdict.FITS,
        breakdown={Category.PARAMETER.value: parameters, "class": total - context - parameters, "context": context},
        top_tensors=(),
        peak=PeakMoment("whole job", -1, "", ""),
        phase_peaks=(),
        least_capacity=total,
        device=target.gpu.name,
        device_usable=usable,
        unsupported=trace.unsupported,
        assumptions=(*trace.assumptions, *(f"out of distribution: {sentence}" for sentence in unlike)),
        workload=trace.workload,
        seconds=0.0,
        provenance={
            **provenance,
            "interval": "the classes' probabilities",
            "environment": target.stack.name,
            "out_of_distribution": list(unlike),
            "classes": [
                {"width": one.width, "chosen": one.chosen, "probability": round(one.probabilities[one.chosen], 4)}
                for one in found
            ],
            "versions": dict(trace.versions),
        },
    )
