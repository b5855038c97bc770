"""Traces and trained estimators made by hand, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from oomcast.estimation import QuantileCurve
from oomcast.methods.gpumemnet import Artifact, SimulatorFeatures
from oomcast.methods.gpumemnet.artifact import ClassModel, Domain, ResidualModel
from oomcast.methods.gpumemnet.estimators import GPUMEMNET_MLP, GPUMEMNET_TRANSFORMER
from oomcast.methods.gpumemnet.features import KINDS, TOKEN_NAMES, VECTOR_NAMES
from oomcast.methods.gpumemnet.networks import MlpEnsemble, QuantileTrees, SequenceEnsemble
from oomcast.trace import Allocation, Category, Event, EventKind, Mark, Phase, Trace

MIB = 1 << 20
BATCH = 4
WORKLOAD = {"job": "made up", "batch_size": BATCH, "optimizer": "adam", "precision": "fp32"}


def made(
    operator: str, module: str, shape: Sequence[int], category: Category = Category.ACTIVATION, dtype: str = "float32"
) -> Allocation:
    build = category in (Category.PARAMETER, Category.BUFFER)
    size = {"float32": 4, "bool": 1, "int64": 8}[dtype]
    return Allocation(
        nbytes=int(np.prod(shape)) * size,
        category=category,
        phase=Phase.BUILD if build else Phase.FORWARD,
        step=-1 if build else 0,
        operator=operator,
        module=module,
        source="",
        shape=tuple(shape),
        dtype=dtype,
    )


def trace_of(allocations: Sequence[Allocation], workload: dict[str, Any] | None = None) -> Trace:
    """All that is built, one forward pass, an empty backward pass; everything stays."""
    built = [one for one in allocations if one.phase is Phase.BUILD]
    passed = [one for one in allocations if one.phase is not Phase.BUILD]
    events = [Event(EventKind.ALLOCATE, number) for number in range(len(allocations))]
    marks = (
        Mark(0, Phase.BUILD, -1),
        Mark(len(built), Phase.FORWARD, 0),
        Mark(len(events), Phase.BACKWARD, 0),
    )
    return Trace(tuple(built + passed), tuple(events), marks=marks, workload=workload or dict(WORKLOAD))


def small_network() -> Trace:
    """Linear 8 → 16 with batch norm, ReLU and dropout, a sum, then Linear 16 → 2 and the loss."""
    return trace_of(
        [
            made("aten._to_copy", "0.weight", (16, 8), Category.PARAMETER),
            made("aten._to_copy", "0.bias", (16,), Category.PARAMETER),
            made("aten._to_copy", "1.weight", (16,), Category.PARAMETER),
            made("aten._to_copy", "1.running_mean", (16,), Category.BUFFER),
            made("aten._to_copy", "5.weight", (2, 16), Category.PARAMETER),
            made("aten.addmm", "0", (BATCH, 16)),
            made("aten.native_batch_norm", "1", (BATCH, 16)),
            made("aten.native_batch_norm", "1", (16,)),
            made("aten.relu", "2", (BATCH, 16)),
            made("aten.native_dropout", "3", (BATCH, 16)),
            made("aten.native_dropout", "3", (BATCH, 16), dtype="bool"),
            made("aten.add.Tensor", "4", (BATCH, 16)),
            made("aten.addmm", "5", (BATCH, 2)),
            made("aten._log_softmax", "", (BATCH, 2)),
            made("aten.nll_loss_forward", "", ()),
        ]
    )


def constant_mlp(classes: int, chosen: int) -> MlpEnsemble:
    """Always the same class, four times as likely as all others together."""
    features = len(VECTOR_NAMES)
    bias = np.zeros((1, 1, classes), dtype=np.float32)
    bias[0, 0, chosen] = np.log(4 * (classes - 1))
    weight = np.zeros((1, features, classes), dtype=np.float32)
    zero, one = np.zeros(features, dtype=np.float32), np.ones(features, dtype=np.float32)
    return MlpEnsemble(zero, one, ((weight, bias),), (classes,))


def constant_sequence(classes: int, chosen: int) -> SequenceEnsemble:
    def zeros(*shape: int) -> np.ndarray:
        return np.zeros((1, *shape), dtype=np.float32)

    head = zeros(classes)
    head[0, chosen] = np.log(4 * (classes - 1))
    arrays = {
        "embed_weight": zeros(len(TOKEN_NAMES), 2),
        "embed_bias": zeros(2),
        "position": zeros(6, 2),
        "mean": zeros(len(VECTOR_NAMES)),
        "scale": zeros(len(VECTOR_NAMES)) + 1,
        "token_mean": zeros(len(TOKEN_NAMES)),
        "token_scale": zeros(len(TOKEN_NAMES)) + 1,
        "hidden_weight": zeros(2 + len(VECTOR_NAMES), 3),
        "hidden_bias": zeros(3),
        "head_weight": zeros(3, classes),
        "head_bias": head,
    }
    return SequenceEnsemble.from_arrays(arrays, 1, [classes])


def constant_trees(*values: float) -> QuantileTrees:
    none, zero = np.array([0], dtype=np.int32), np.zeros(1, dtype=np.float32)
    return QuantileTrees((0.1, 0.5, 0.9), none, zero, none, none, np.array([values], dtype=np.float32), none, 1)


def everywhere(features: int, kinds: Sequence[str] = KINDS) -> Domain:
    return Domain(tuple(kinds), (-1e15,) * features, (1e15,) * features)


def made_up_artifact(chosen: int = 1, shift: float = 0.1, kinds: Sequence[str] = KINDS) -> Artifact:
    """Classes of 1000 MiB, always `chosen`; a residual that is always `shift`."""
    width, context = 1000 * MIB, 500 * MIB
    names = ("mlp", "cnn", "transformer")
    domain = everywhere(len(VECTOR_NAMES), kinds)
    residual = ResidualModel(
        trees=constant_trees(shift - 0.05, shift, shift + 0.05),
        domain=everywhere(len(SimulatorFeatures.names()), kinds),
        curve=QuantileCurve((0.01, 0.025, 0.5, 0.95, 0.975, 0.99), (-2.0, -1.0, 0.0, 0.8, 1.0, 2.0)),
        least_spread=0.01,
        wide_spread=0.4,
    )
    seen = {"devices": ["a100-40gb"], "optimizers": ["adam"], "precisions": ["fp32"]}
    return Artifact(
        classes={
            GPUMEMNET_MLP: {name: ClassModel(constant_mlp(4, chosen), (width,), domain, context) for name in names},
            GPUMEMNET_TRANSFORMER: {
                name: ClassModel(constant_sequence(4, chosen), (width,), domain, context) for name in names
            },
        },
        residual=residual,
        trained={"id": "made up", "residual": seen, **dict.fromkeys(names, seen)},
    )
