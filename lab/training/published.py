"""GPUMemNet's own files as data sets: rows as they were measured, with the layers that they list."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomcast.errors import BadInput, UnreadableFile
from oomcast.methods.gpumemnet.dataset import Dataset, Label, Network, Row
from oomcast.methods.gpumemnet.features import Layer, LayerFeatures, layer_features_of_layers

from ..accuracy import Case, CaseSet
from ..accuracy.gpumemnet_jobs import CnnJob, MlpJob, TransformerJob
from ..accuracy.gpumemnet_rows import GPU, STACK, read_cnn, read_mlp_step1, read_mlp_step2, read_transformer
from ..accuracy.table import Row as Line
from ..accuracy.table import read_rows

__all__ = ["GPUMEMNET", "read_gpumemnet"]

GPUMEMNET = "gpumemnet"
_LISTED = ("Filename", "Depth", "Activations-Params", "Total Parameters", "Batch Size", "Max GPU Memory (MiB)")
_LAYER = re.compile(r"\('(\w+)', (\d+), (\d+)\)")
_KINDS = {
    "linear": "linear",
    "conv2d": "convolution",
    "batch_normalization": "batch_norm",
    "batchnorm2d": "batch_norm",
    "dropout": "dropout",
    "softmax": "softmax",
    "adaptive_avg_pool2d": "pooling",
}
_FUNCTIONS = {"relu": "relu", "leakyrelu": "leaky_relu", "prelu": "prelu", "elu": "elu", "selu": "selu", "gelu": "gelu",
              "tanh": "tanh", "silu": "silu", "softplus": "softplus", "mish": "mish"}  # fmt: skip
_NOTHING = "identity"
"""Listed as a layer, but it holds and does nothing; a trace does not show it."""


@dataclass(frozen=True)
class _Layout:
    columns: tuple[str, ...]
    read: Callable[[Path], CaseSet]


_LAYOUTS = (
    _Layout((*_LISTED, "Conv2d Count", "Status"), read_cnn),
    _Layout((*_LISTED, "Batch Normalization Layers", "Dropout Layers"), read_mlp_step2),
    _Layout(_LISTED, read_mlp_step1),
    _Layout(
        ("num_classes", "embedding_size", "num_layers", "num_heads", "ff_hidden_size", "seq_length", "vocab_size",
         "batch_size", "max_gpu_memory_mib", "status"), read_transformer),
)  # fmt: skip


def read_gpumemnet(path: Path | str) -> Dataset:
    """`gpumemnet_mlp_step1.csv`, `…_step2.csv`, `…_cnn.csv` or `…_transformer.csv`, told apart by their columns.

    Rows whose settings do not give their own parameter count are left out and named in the metadata. A run that did not
    fit has no bytes. The file of Transformers lists no layers: its rows have no features.
    """
    path = Path(path)
    layout = _layout_of(path)
    cases = layout.read(path)
    lines = {str(line.number): line for line in read_rows(path, layout.columns)}
    rows = tuple(_row(case, lines[case.row], cases.name) for case in cases.cases)
    if not rows:
        raise UnreadableFile(f"{path} has no rows that can be used.")
    skipped = {f"{cases.name} {one.row}": one.reason for one in cases.skipped}
    return Dataset(rows, {"source": GPUMEMNET, "file": cases.name, "skipped": skipped})


def _layout_of(path: Path) -> _Layout:
    """The first that has all its columns; else the one that comes nearest says what is missing."""
    header = _header(path)
    missing: Mapping[_Layout, list[str]] = {
        layout: [column for column in layout.columns if column not in header] for layout in _LAYOUTS
    }
    for layout, columns in missing.items():
        if not columns:
            return layout
    nearest = min(_LAYOUTS, key=lambda layout: len(missing[layout]) / len(layout.columns))
    lacking = missing[nearest]
    raise UnreadableFile(
        f"{path} has not the layout of GPUMemNet's files: the column{'s' if lacking[1:] else ''} "
        f"{', '.join(map(repr, lacking))} {'are' if lacking[1:] else 'is'} missing."
    )


def _header(path: Path) -> set[str]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return set(next(csv.reader(stream), ()))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UnreadableFile(f"cannot read {path} as CSV: {error}.") from None


def _row(case: Case, line: Line, file: str) -> Row:
    label = Label(
        source=GPUMEMNET,
        device=GPU,
        environment=STACK,
        optimizer="adam",
        precision="fp32",
        peak_allocated=None,
        peak_reserved=None,
        device_total=case.measured,
        outcome="fits" if case.ran else "oom",
    )
    network = _network(case, line)
    return Row(f"{file} {case.row}", network, label, _features(line, network), None)


def _network(case: Case, line: Line) -> Network:
    job: Any = case.workload.job.target
    batch_size = case.workload.batch_size
    if isinstance(job, TransformerJob):
        return Network(
            "transformer", "uniform", "relu", False, 0.1, job.layers, job.width, job.length, job.classes, batch_size,
            hidden=job.hidden, heads=job.heads, vocabulary=job.vocabulary,
        )  # fmt: skip
    style = (job.activation, job.batch_norm, job.dropout)
    if isinstance(job, CnnJob):
        depth = line.whole("Depth")
        return Network(
            "cnn", case.family, *style, depth, job.plan[0].outputs, job.size, job.classes, batch_size,
            channels=job.channels,
        )  # fmt: skip
    assert isinstance(job, MlpJob)
    depth = len(job.widths) - 2
    return Network("mlp", case.family, *style, depth, job.widths[1], job.widths[0], job.widths[-1], batch_size)


def _features(line: Line, network: Network) -> LayerFeatures | None:
    if network.kind == "transformer":
        return None
    listed = line.text("Activations-Params")
    found = _LAYER.findall(listed)
    if "[" + ", ".join(f"('{kind}', {made}, {own})" for kind, made, own in found) + "]" != listed:
        raise line.error("Activations-Params", "it is not a list of layers like ('linear', 629, 792540)")
    if not found:  # a run that failed at once
        return None
    layers, functions = [], Counter[str]()
    for name, activations, parameters in found:
        kind, function = _KINDS.get(name.lower()), _FUNCTIONS.get(name.lower())
        if function is not None:
            kind = "activation"
            functions[function] += 1
        elif kind is None and name.lower() != _NOTHING:
            raise line.error("Activations-Params", f"{name!r} is no layer that GPUMemNet's networks have")
        if kind is not None:
            layers.append(Layer(kind, int(activations), int(parameters)))
    return layer_features_of_layers(layers, functions, network.batch_size, line.whole("Total Parameters", least=0))
