"""Trained estimators as one file, and whether a job is like those that they have learnt from."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from ...errors import OomcastError, UnreadableFile
from ...estimation import QuantileCurve
from ...files import write_atomically
from .features import TOKEN_NAMES, VECTOR_NAMES, LayerFeatures, SimulatorFeatures
from .networks import Arrays, MlpEnsemble, QuantileTrees, SequenceEnsemble, arrays_from_bytes, arrays_to_bytes

__all__ = [
    "ARTIFACT_SCHEMA",
    "Artifact",
    "ClassModel",
    "Domain",
    "ResidualModel",
    "load_artifact",
    "network_kind",
    "read_artifact",
    "unlike_domain",
    "unlike_runs",
    "write_artifact",
]

ARTIFACT_SCHEMA = 1
_MAGIC = b"oomlearn"
_FILE = "learned.bin"
_LARGEST = 64 << 20
_AGAIN = "train it again with: oomcast dataset train"


@dataclass(frozen=True)
class Domain:
    """What a model has seen: the kinds of layers, and the range of every feature."""

    kinds: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class ClassModel:
    """One of GPUMemNet's classifiers, for one kind of networks: MLPs, CNNs or Transformers."""

    network: MlpEnsemble | SequenceEnsemble
    widths: tuple[int, ...]
    """Bytes of a class, one for each head; the finest that is good enough comes first."""
    domain: Domain
    context: int
    """Bytes beside the allocator in the runs it learnt from: they are part of its classes."""


@dataclass(frozen=True)
class ResidualModel:
    """log(truth / simulated device total) by its quantiles, given the simulator's features."""

    trees: QuantileTrees
    domain: Domain
    curve: QuantileCurve
    """Of log(truth / estimate) in units of the predicted spread, over groups that were left out."""
    least_spread: float
    """A prediction that is surer than this is not believed."""
    wide_spread: float
    """The spread for a job that is unlike anything seen in training."""

    def answer(self, features: SimulatorFeatures) -> tuple[float, float]:
        """The median of log(truth / simulated), and its spread: what lies between the lowest and the highest level."""
        quantiles = self.trees.predict_one(features.values())
        return quantiles[len(quantiles) // 2], max(quantiles[-1] - quantiles[0], self.least_spread)


@dataclass(frozen=True)
class Artifact:
    """All trained estimators; `trained` says which runs they have learnt from."""

    classes: Mapping[str, Mapping[str, ClassModel]]
    """The model by the estimator's name, then by the kind of network."""
    residual: ResidualModel | None
    trained: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return str(self.trained.get("id", "unnamed"))


@functools.cache
def load_artifact() -> Artifact:
    """The trained estimators that come with oomcast."""
    place = resources.files(__package__).joinpath(_FILE)
    try:
        content = place.read_bytes()
    except OSError:
        raise OomcastError(
            f"the data file oomcast/methods/gpumemnet/{_FILE} is missing; install oomcast again."
        ) from None
    return _parsed(content, f"oomcast/methods/gpumemnet/{_FILE}")


def read_artifact(path: str | os.PathLike[str]) -> Artifact:
    """Read what `write_artifact` wrote; a file that is damaged or of another kind raises UnreadableFile."""
    source = Path(path)
    try:
        if source.stat().st_size > _LARGEST:
            raise UnreadableFile(f"{source} is too large to be trained estimators.")
        return _parsed(source.read_bytes(), str(source))
    except OSError as error:
        raise UnreadableFile(f"{source} cannot be read: {error.strerror}.") from None


def write_artifact(artifact: Artifact, path: str | os.PathLike[str]) -> Path:
    """Write it to a file, which is replaced in one step: a reader never meets half of it."""
    arrays: dict[str, Any] = {}
    header: dict[str, Any] = {
        "schema": ARTIFACT_SCHEMA,
        "trained": dict(artifact.trained),
        "vector": list(VECTOR_NAMES),
        "token": list(TOKEN_NAMES),
        "simulator": list(SimulatorFeatures.names()),
        "classes": {
            estimator: {kind: _class_to_json(model) for kind, model in models.items()}
            for estimator, models in artifact.classes.items()
        },
    }
    for estimator, models in artifact.classes.items():
        for kind, model in models.items():
            arrays |= {f"{estimator}/{kind}/{name}": array for name, array in model.network.to_arrays().items()}
    if artifact.residual is not None:
        residual = artifact.residual
        header["residual"] = {
            "levels": list(residual.trees.levels),
            "domain": _domain_to_json(residual.domain),
            "curve": {"levels": list(residual.curve.levels), "values": list(residual.curve.values)},
            "least_spread": residual.least_spread,
            "wide_spread": residual.wide_spread,
        }
        arrays |= {f"residual/{name}": array for name, array in residual.trees.to_arrays().items()}
    header["arrays"] = [[name, list(array.shape)] for name, array in arrays.items()]
    body = arrays_to_bytes(arrays)
    header["digest"] = _digest(body)
    text = json.dumps(header).encode()
    target = Path(path)
    write_atomically(target, _MAGIC + struct.pack("<I", len(text)) + text + body)
    return target


def _parsed(content: bytes, name: str) -> Artifact:
    if not content.startswith(_MAGIC) or len(content) < len(_MAGIC) + 4:
        raise UnreadableFile(f"{name} is no file of trained estimators (oomcast dataset train).")
    start = len(_MAGIC) + 4
    (length,) = struct.unpack("<I", content[len(_MAGIC) : start])
    try:
        header = json.loads(content[start : start + length])
        schema = header["schema"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UnreadableFile(f"{name} is damaged; {_AGAIN}.") from None
    if schema != ARTIFACT_SCHEMA:
        raise UnreadableFile(f"{name} has schema {schema!r}, this oomcast reads {ARTIFACT_SCHEMA}; {_AGAIN}.")
    body = content[start + length :]
    try:
        if header["digest"] != _digest(body):
            raise ValueError("its numbers are not those that were written")
        for key, own in (("vector", VECTOR_NAMES), ("token", TOKEN_NAMES), ("simulator", SimulatorFeatures.names())):
            if tuple(header[key]) != own:
                raise ValueError("it was trained on other features")
        return _artifact(header, body)
    except (KeyError, TypeError, ValueError, OverflowError, IndexError, AttributeError) as error:
        raise UnreadableFile(f"{name} is damaged ({error}); {_AGAIN}.") from None


def _artifact(header: Mapping[str, Any], body: bytes) -> Artifact:
    shapes = [(str(name), tuple(int(size) for size in shape)) for name, shape in header["arrays"]]
    arrays = arrays_from_bytes(body, shapes)
    classes = {
        str(estimator): {
            str(kind): _class_from_json(described, _under(arrays, f"{estimator}/{kind}/"))
            for kind, described in models.items()
        }
        for estimator, models in header["classes"].items()
    }
    residual = None
    if "residual" in header:
        residual = _residual_from_json(header["residual"], _under(arrays, "residual/"))
    return Artifact(classes, residual, dict(header["trained"]))


def _class_to_json(model: ClassModel) -> dict[str, Any]:
    network = model.network
    return {
        "network": "sequence" if isinstance(network, SequenceEnsemble) else "mlp",
        "attention_heads": network.attention_heads if isinstance(network, SequenceEnsemble) else 0,
        "heads": list(network.heads),
        "widths": list(model.widths),
        "domain": _domain_to_json(model.domain),
        "context": model.context,
    }


def _class_from_json(plain: Mapping[str, Any], arrays: Arrays) -> ClassModel:
    heads, widths = [int(value) for value in plain["heads"]], tuple(int(value) for value in plain["widths"])
    if len(heads) != len(widths) or not heads or min(heads) < 2 or min(widths) < 1:
        raise ValueError("its classes are none")
    network: MlpEnsemble | SequenceEnsemble
    if plain["network"] == "sequence":
        network = SequenceEnsemble.from_arrays(arrays, int(plain["attention_heads"]), heads)
    else:
        network = MlpEnsemble.from_arrays(arrays, heads)
    return ClassModel(network, widths, _domain_from_json(plain["domain"], len(VECTOR_NAMES)), int(plain["context"]))


def _domain_to_json(domain: Domain) -> dict[str, Any]:
    return {"kinds": list(domain.kinds), "low": list(domain.low), "high": list(domain.high)}


def _domain_from_json(plain: Mapping[str, Any], features: int) -> Domain:
    low, high = (tuple(float(value) for value in plain[name]) for name in ("low", "high"))
    if not len(low) == len(high) == features or not all(math.isfinite(v) for v in (*low, *high)):
        raise ValueError("its ranges do not fit the features")
    return Domain(tuple(str(kind) for kind in plain["kinds"]), low, high)


def _residual_from_json(plain: Mapping[str, Any], arrays: Arrays) -> ResidualModel:
    features = len(SimulatorFeatures.names())
    levels = [float(level) for level in plain["levels"]]
    least, wide = float(plain["least_spread"]), float(plain["wide_spread"])
    if len(levels) % 2 == 0 or not 0 < least <= wide < math.inf:
        raise ValueError("its levels have no middle, or its spreads are none")
    return ResidualModel(
        trees=QuantileTrees.from_arrays(arrays, levels, features),
        domain=_domain_from_json(plain["domain"], features),
        curve=QuantileCurve(*(tuple(map(float, plain["curve"][name])) for name in ("levels", "values"))),
        least_spread=least,
        wide_spread=wide,
    )


def _under(arrays: Arrays, prefix: str) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


_MARGIN = 0.1
"""The share of a feature's range by which a job may lie outside of it and still count as alike."""
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
    """In what a job differs from those that the model has learnt from, a sentence each; empty where it is alike."""
    differences = [
        f"layers of the kind {kind} were never seen in training" for kind in features.kinds if kind not in domain.kinds
    ]
    for name, value, low, high in zip(names, values, domain.low, domain.high, strict=True):
        margin = _MARGIN * (high - low)
        if not low - margin <= value <= high + margin:
            differences.append(
                f"its {name} of {value:.4g} is outside of {low:.4g} to {high:.4g}, which training covered"
            )
    if not features.layers:
        differences.append("no layer was found in its first forward pass")
    return tuple(differences)


def unlike_runs(learnt_from: Mapping[str, Any], workload: Mapping[str, Any], device: str) -> tuple[str, ...]:
    """The runs that were learnt from had these devices, optimizers and precisions."""
    asked = {"devices": device, "optimizers": workload.get("optimizer"), "precisions": workload.get("precision")}
    return tuple(
        f"training had the {name} {', '.join(map(str, learnt_from[name]))}, not {value}"
        for name, value in asked.items()
        if name in learnt_from and str(value) not in learnt_from[name]
    )
