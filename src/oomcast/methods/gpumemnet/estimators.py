"""GPUMemNet's two classifiers and the residual over the simulator, each as an estimator.

The command line asks every estimator for its options, so that numpy is only loaded when one answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...capture import capture
from ...errors import BadInput
from ...estimation import Estimate, Estimator, Target, target_of
from ...spec import Spec, Text, option
from ...trace import Trace

if TYPE_CHECKING:
    from .artifact import Artifact

__all__ = [
    "GPUMEMNET_MLP",
    "GPUMEMNET_TRANSFORMER",
    "LEARNED",
    "ArtifactOptions",
    "Learned",
    "MlpClasses",
    "TransformerClasses",
]

GPUMEMNET_MLP = "gpumemnet-mlp"
GPUMEMNET_TRANSFORMER = "gpumemnet-transformer"
LEARNED = "learned"
_CPU = "cpu"


@dataclass(frozen=True)
class ArtifactOptions:
    artifact: str | None = option(
        None,
        Text("artifact"),
        help="of oomcast dataset train, for the learned estimators (default: what comes with oomcast)",
        metavar="FILE",
    )


class _FromTrace(Estimator):
    """An estimator that looks at the captured job alone."""

    name: ClassVar[str]
    options = ArtifactOptions

    def estimate(self, spec: Spec, options: ArtifactOptions) -> Estimate:
        if spec.place.device.strip().lower() == _CPU:
            return self.estimate_on_cpu(spec, _artifact(options))
        target = target_of(spec)
        return self.estimate_trace(capture(spec), target, options)

    def estimate_on_cpu(self, spec: Spec, artifact: Artifact) -> Estimate:
        raise BadInput(f"the estimator {self.name} corrects the simulator of GPUs; it tells nothing of a CPU.")


class _ByClasses(_FromTrace):
    def estimate_trace(self, trace: Trace, target: Target, options: ArtifactOptions | None = None) -> Estimate:
        from .classes import estimate_by_classes

        return estimate_by_classes(trace, target, _artifact(options), self.name)

    def estimate_on_cpu(self, spec: Spec, artifact: Artifact) -> Estimate:
        from .classes import estimate_cpu_by_classes

        return estimate_cpu_by_classes(spec, artifact, self.name)


class MlpClasses(_ByClasses):
    """GPUMemNet's multilayer perceptron over sums of layer features."""

    name = GPUMEMNET_MLP


class TransformerClasses(_ByClasses):
    """GPUMemNet's Transformer over the sequence of layers."""

    name = GPUMEMNET_TRANSFORMER


class Learned(_FromTrace):
    """The simulator's answer, corrected by what real runs teach about the rest of it."""

    name = LEARNED

    def estimate_trace(self, trace: Trace, target: Target, options: ArtifactOptions | None = None) -> Estimate:
        from .residual import estimate_by_residual

        return estimate_by_residual(trace, target, _artifact(options))


def _artifact(options: ArtifactOptions | None) -> Artifact:
    from .artifact import load_artifact, read_artifact

    return load_artifact() if options is None or options.artifact is None else read_artifact(options.artifact)
