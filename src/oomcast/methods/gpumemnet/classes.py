"""GPUMemNet's estimators: a network names the class of memory, and the class's upper edge is the estimate."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oomcast.methods import tbem

from ...capture import capture
from ...errors import BadInput
from ...estimation import ACCEPTED_RISK, Estimate, PeakMoment, Target, Verdict, agreeing_chance, constants_of
from ...spec import Spec
from ...trace import Category, Trace
from ...units import format_bytes
from .artifact import Artifact, ClassModel, network_kind, unlike_domain, unlike_runs
from .features import VECTOR_NAMES, LayerFeatures, feature_vector, layer_features, token_vectors
from .networks import MlpEnsemble, probabilities_of_one

__all__ = ["Classes", "classes_of", "estimate_by_classes", "estimate_cpu_by_classes"]

_MIB = 1 << 20
_FLOAT = 4
_HALF = 0.5
_MOST_PARAMETERS = 0.9
"""Of the class's own bytes; a class may be smaller than the parameters it is given."""


@dataclass(frozen=True)
class Classes:
    """How likely each class of memory is. Classes are equally wide, but the last one has no upper end."""

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
        """The upper edge of the lowest class that is not exceeded with a probability of at least `coverage`."""
        sums = itertools.accumulate(self.probabilities)
        number = next((n for n, total in enumerate(sums) if total >= coverage), len(self.probabilities) - 1)
        return (max(number, self.chosen) + 1) * self.width

    def above(self, limit: int) -> float:
        """The probability of more than `limit` bytes. A class stands for its upper edge, as everywhere here."""
        likely = (
            probability for number, probability in enumerate(self.probabilities) if (number + 1) * self.width > limit
        )
        return min(sum(likely), 1.0)


def classes_of(model: ClassModel, features: LayerFeatures) -> tuple[Classes, ...]:
    """The classes of a network for every width that the model was trained for, the most useful width first."""
    vector = feature_vector(features)
    tokens = () if isinstance(model.network, MlpEnsemble) else token_vectors(features, model.network.longest)
    by_width = probabilities_of_one(model.network, vector, tokens)
    return tuple(Classes(width, probabilities) for width, probabilities in zip(model.widths, by_width, strict=True))


def estimate_by_classes(trace: Trace, target: Target, artifact: Artifact, estimator: str) -> Estimate:
    features = layer_features(trace)
    model = _model(artifact, estimator, features)
    by_width = classes_of(model, features)
    unlike = _unlike(artifact, model, features, trace, target.gpu.name)
    constants = constants_of(target, trace)
    # The classes hold the context of the machine that was learnt from; this one's takes its place.
    shift = constants.context - model.context
    tensors = sum(tbem.live_peak(trace).values())
    lift = _lift(by_width[0], tensors, constants.context - shift)
    if lift:
        shift, unlike = shift + lift, (*unlike, _too_low(by_width[0], tensors))
    return _estimate(
        trace, target, features, by_width, constants.context, shift, unlike, _provenance(artifact, estimator)
    )


def estimate_cpu_by_classes(spec: Spec, artifact: Artifact, estimator: str) -> Estimate:
    """From runs on CPUs: the class is of all that the process held, tensors and framework together."""
    on_gpu = spec.with_place(device=tbem.VIRTUAL_GPU, environment=None, use_calibration=False)
    trace = capture(on_gpu)
    features = layer_features(trace)
    model = _model(artifact, estimator, features)
    if tbem.CPU not in artifact.trained.get(network_kind(features), {}).get("devices", ()):
        raise BadInput("these estimators were not trained from runs on a CPU: they tell nothing of one.")
    unlike = _unlike(artifact, model, features, trace, tbem.CPU)
    best, coverage = classes_of(model, features)[0], spec.place.coverage
    static = tbem.static_answer(trace, tbem.CPU, int(artifact.trained.get("memory", 0)))
    lift = _lift(best, static.device_total, 0)
    if lift:
        unlike = (*unlike, _too_low(best, static.device_total))
    wider = 1 if unlike else 0
    low, high = (edge + lift for edge in best.edges(coverage, wider))
    total = (best.chosen + 1) * best.width + lift
    learnt = tbem.LearntTotal(
        total=total,
        low=low,
        high=max(high, total),
        coverage=coverage,
        will_not_exceed=max(best.not_exceeded(coverage) + wider * best.width + lift, total),
        chance_above=lambda needed, usable: round(best.above(usable - lift - wider * best.width), 6),
        remarks=tuple(f"out of distribution: {sentence}" for sentence in unlike),
        provenance=_provenance(artifact, estimator)
        | {
            "calibration": f"{artifact.id}, runs on a CPU",
            "interval": "the classes' probabilities",
            "out_of_distribution": list(unlike),
        },
    )
    return tbem.with_learnt_total(static, learnt, str(trace.workload.get("job", "")))


def _lift(best: Classes, tensors: int, context: int) -> int:
    """By how much all classes lie too low: a job cannot hold less than its tensors, whatever a network says of it."""
    return max(context + tensors - (best.chosen + 1) * best.width, 0)


def _too_low(best: Classes, tensors: int) -> str:
    low, high = (format_bytes((best.chosen + above) * best.width) for above in (0, 1))
    return (
        f"its tensors alone hold {format_bytes(tensors)}, more than its class ({low} to {high}); all classes were "
        "moved up by that"
    )


def _model(artifact: Artifact, estimator: str, features: LayerFeatures) -> ClassModel:
    """Raises BadInput where nothing was learnt about such networks."""
    kind, known = network_kind(features), artifact.classes.get(estimator, {})
    if kind not in known:
        learnt = f"it has learnt {', '.join(sorted(known))} only" if known else "it is not among those trained"
        raise BadInput(
            f"the estimator {estimator} of {artifact.id} tells nothing of {kind} networks: {learnt}; oomcast dataset "
            f"train with rows of the kind {kind} adds them."
        )
    return known[kind]


def _unlike(
    artifact: Artifact, model: ClassModel, features: LayerFeatures, trace: Trace, device: str
) -> tuple[str, ...]:
    return (
        *unlike_domain(features, feature_vector(features), VECTOR_NAMES, model.domain),
        *unlike_runs(artifact.trained.get(network_kind(features), {}), trace.workload, device),
    )


def _provenance(artifact: Artifact, estimator: str) -> dict[str, Any]:
    return {"estimator": estimator, "trained": artifact.id, "calibration": "none: the catalogue's context"}


def _estimate(
    trace: Trace,
    target: Target,
    features: LayerFeatures,
    by_width: Sequence[Classes],
    context: int,
    shift: int,
    unlike: tuple[str, ...],
    provenance: dict[str, Any],
) -> Estimate:
    best, coverage, usable = by_width[0], target.coverage, target.gpu.usable_memory
    low, high = best.edges(coverage, wider=1 if unlike else 0)
    total = max((best.chosen + 1) * best.width + shift, context + _MIB)
    # What lies outside of what was learnt may be a class off: the bound says so, and P(OOM) with it.
    wider = best.width if unlike else 0
    runs = total <= usable and best.above(usable - shift) <= _HALF
    p_oom = round(agreeing_chance(best.above(usable - shift - wider), runs), 6)
    parameters = min(features.parameters * _FLOAT, int((total - context) * _MOST_PARAMETERS))
    will_not_exceed = max(best.not_exceeded(coverage) + wider + shift, total)
    tight = p_oom > ACCEPTED_RISK or will_not_exceed > usable
    return Estimate(
        peak_allocated=total - context,
        peak_reserved=total - context,
        device_total=total,
        low=min(max(low + shift, context), total),
        high=max(high + shift, total),
        coverage=coverage,
        will_not_exceed=will_not_exceed,
        p_oom=p_oom,
        verdict=Verdict.OOM if not runs else Verdict.TIGHT if tight else Verdict.FITS,
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
            "environment": target.stack.environment,
            "out_of_distribution": list(unlike),
            "classes": [
                {
                    "width": classes.width,
                    "chosen": classes.chosen,
                    "probability": round(classes.probabilities[classes.chosen], 4),
                }
                for classes in by_width
            ],
            "versions": dict(trace.versions),
        },
    )
