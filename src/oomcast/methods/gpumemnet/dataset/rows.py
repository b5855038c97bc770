"""A labelled row, and the table it is kept in: every column with its type and what it says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from ..features import KINDS as LAYER_KINDS
from ..features import Layer, LayerFeatures, SimulatorFeatures, activation_code
from .network import Network, NetworkJob

__all__ = ["COLUMNS", "Column", "Dataset", "Label", "Row", "flatten", "row_id", "unflatten"]

ColumnType = Literal["text", "whole", "number", "flag", "layers"]


@dataclass(frozen=True)
class Label:
    """How much memory the network held, and whether the simulator or a real run says so."""

    source: str
    device: str
    environment: str
    optimizer: str
    precision: str
    peak_allocated: int | None
    peak_reserved: int | None
    device_total: int | None
    outcome: str


@dataclass(frozen=True)
class Row:
    id: str
    network: Network
    label: Label
    features: LayerFeatures | None
    simulator: SimulatorFeatures | None

    @property
    def job(self) -> NetworkJob:
        """Builds the network again. Rows of GPUMemNet's files are rebuilt by `lab.accuracy` instead."""
        return NetworkJob(self.network)


@dataclass(frozen=True)
class Dataset:
    rows: tuple[Row, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Plain JSON data: the settings it was built with, versions, uniformity, what failed."""


@dataclass(frozen=True)
class Column:
    name: str
    type: ColumnType
    meaning: str
    derived: bool = False
    """Follows from other columns: written for readers of the file, not read back."""


COLUMNS: tuple[Column, ...] = (
    Column("id", "text", "the row: kind, architecture, a digest of the network; for GPUMemNet's rows file and line"),
    Column("kind", "text", "mlp, cnn or transformer"),
    Column("architecture", "text", "pyramid, uniform, bottleneck, gradual, hourglass, residual or dense"),
    Column("activation", "text", "the activation function that was drawn"),
    Column("batch_norm", "flag", "whether layers are followed by batch norm (Transformers: in place of layer norm)"),
    Column("dropout", "number", "rate of dropout; empty where there is none"),
    Column("depth", "whole", "hidden layers (mlp), convolutions (cnn), encoder layers (transformer)"),
    Column("width", "whole", "features of the first hidden layer (mlp), filters of the first convolution (cnn), "
           "features of a token (transformer)"),
    Column("input_size", "whole", "features (mlp), edge of the image in pixels (cnn), tokens (transformer)"),
    Column("output_size", "whole", "classes"),
    Column("batch_size", "whole", "samples of a step"),
    Column("channels", "whole", "of the image (cnn)"),
    Column("hidden", "whole", "features of the widest feed-forward part (transformer)"),
    Column("heads", "whole", "attention heads (transformer)"),
    Column("vocabulary", "whole", "tokens that the embedding knows (transformer)"),
    Column("label_source", "text", "simulator, runs or gpumemnet"),
    Column("device", "text", "the GPU, or cpu"),
    Column("environment", "text", "the software stack"),
    Column("optimizer", "text", "as in oomcast estimate --optimizer"),
    Column("precision", "text", "as in oomcast estimate --precision"),
    Column("peak_allocated", "whole", "bytes that tensors held at most; empty where it was not measured"),
    Column("peak_reserved", "whole", "bytes that the caching allocator held at most; empty where it was not measured"),
    Column("device_total", "whole", "bytes that the device showed at most (nvidia-smi); for runs on a CPU the peak of "
           "the process; empty where a real run did not fit"),
    Column("outcome", "text", "fits or oom; the simulator's bytes of a row with oom are those on a device without end"),
    Column("parameters", "whole", "numbers that are trained"),
    Column("activations", "whole", "values that all layers put out for one sample"),
    Column("activation_function", "text", "what most layers have, as the trace shows it (torch runs selu as elu)"),
    Column("layers", "layers", "the layers in order: kind, values put out for one sample, parameters"),
    Column("batch_activations", "whole", "activations × batch_size", derived=True),
    Column("activation_sin", "number", "the activation function's code, first half", derived=True),
    Column("activation_cos", "number", "the activation function's code, second half", derived=True),
    *(Column(f"count_{kind}", "whole", f"layers of the kind {kind}", derived=True) for kind in LAYER_KINDS),
    *(Column(f"sim_{name}", "number", f"SimulatorFeatures.{name} of oomcast.methods.gpumemnet; empty for runs on a CPU")
      for name in SimulatorFeatures.names()),
)  # fmt: skip

_NETWORK = tuple(known.name for known in fields(Network))
_LABEL = {known.name: "label_source" if known.name == "source" else known.name for known in fields(Label)}


def row_id(network: Network) -> str:
    """The same network has the same name in every data set."""
    digest = hashlib.blake2b(json.dumps(asdict(network), sort_keys=True).encode(), digest_size=8).hexdigest()
    return f"{network.kind}-{network.architecture}-{digest}"


def flatten(row: Row) -> dict[str, Any]:
    """The row's values by column, as plain JSON data."""
    flat: dict[str, Any] = {"id": row.id, **asdict(row.network)}
    flat |= {column: getattr(row.label, name) for name, column in _LABEL.items()}
    return flat | _flat_features(row.features) | _flat_simulator(row.simulator)


def _flat_features(features: LayerFeatures | None) -> dict[str, Any]:
    names = ("parameters", "activations", "activation_function", "layers", "batch_activations", "activation_sin",
             "activation_cos", *(f"count_{kind}" for kind in LAYER_KINDS))  # fmt: skip
    if features is None:
        return dict.fromkeys(names)
    counts = features.counts
    values = (
        features.parameters,
        features.activations,
        features.activation_function,
        [[layer.kind, layer.activations, layer.parameters] for layer in features.layers],
        features.batch_activations,
        *activation_code(features.activation_function),
        *(counts.get(kind, 0) for kind in LAYER_KINDS),
    )
    return dict(zip(names, values, strict=True))


def _flat_simulator(simulator: SimulatorFeatures | None) -> dict[str, Any]:
    return {
        f"sim_{name}": None if simulator is None else getattr(simulator, name) for name in SimulatorFeatures.names()
    }


def unflatten(flat: Mapping[str, Any]) -> Row:
    network = Network(**{name: flat[name] for name in _NETWORK})
    label = Label(**{name: flat[column] for name, column in _LABEL.items()})
    features = simulator = None
    if flat["layers"] is not None:
        features = LayerFeatures(
            layers=tuple(Layer(*layer) for layer in flat["layers"]),
            batch_size=network.batch_size,
            parameters=flat["parameters"],
            activations=flat["activations"],
            activation_function=flat["activation_function"],
        )
    if flat["sim_device_total"] is not None:
        simulator = SimulatorFeatures(**{name: flat[f"sim_{name}"] for name in SimulatorFeatures.names()})
    return Row(flat["id"], network, label, features, simulator)
