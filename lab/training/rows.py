"""Measured runs as rows to learn from: layer features for classes, simulator features for what is left over.

Rows of GPUMemNet's files bring their layers with them. Simulator features need a capture; captures and what was
computed from them are kept in a folder, so that training again takes no time for them.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomcast.errors import BadInput, OomcastError
from oomcast.estimation import estimate_trace
from oomcast.methods.gpumemnet import (
    Layer,
    LayerFeatures,
    SimulatorFeatures,
    layer_features,
    layers_with_memory,
    reserved_without_workspaces,
    simulator_features,
)
from oomcast.methods.gpumemnet.artifact import network_kind
from oomcast.methods.gpumemnet.training.rows import SimulatedRow
from oomcast.provenance import TRACE_ROOMS, source_digest

from ..accuracy import Case, Measure, read_sets, sample
from ..accuracy.traces import TraceCache
from .published import read_gpumemnet

__all__ = [
    "GPUMEMNET",
    "REAL",
    "SIMULATED",
    "MeasuredRow",
    "SimulatedRow",
    "read_measured",
    "simulate_cases",
    "simulate_rows",
]

GPUMEMNET = ("gpumemnet_mlp_step1", "gpumemnet_mlp_step2", "gpumemnet_cnn", "gpumemnet_transformer")
REAL = ("real_models", "timm_a100_fp32")
SIMULATED = (*GPUMEMNET, *REAL)
_COMPUTING = (*TRACE_ROOMS, "oomcast.estimation", "oomcast.methods.gpumemnet")


@dataclass(frozen=True)
class MeasuredRow:
    """A run with its layers. `measured` is None where it was out of memory."""

    name: str
    kind: str
    """`mlp`, `cnn` or `transformer`."""
    group: str
    """Its architecture."""
    features: LayerFeatures
    measured: int | None


def read_measured(folder: Path) -> list[MeasuredRow]:
    """The rows of GPUMemNet's files that list their layers."""
    found = []
    for name in GPUMEMNET:
        path = folder / f"{name}.csv"
        for row in read_gpumemnet(path).rows if path.is_file() else ():
            if row.features is None or not row.features.layers:
                continue
            ran = row.label.outcome == "fits"
            if ran and row.label.device_total is None:
                raise BadInput(f"{path.name}: the row {row.id} ended well and has no memory.")
            measured = row.label.device_total if ran else None
            found.append(MeasuredRow(row.id, row.network.kind, row.network.architecture, row.features, measured))
    if not found:
        raise BadInput(f"{str(folder)!r} holds none of {', '.join(f'{name}.csv' for name in GPUMEMNET)}.")
    return found


def simulate_rows(
    folder: Path,
    rows: int | None,
    cache: Path,
    *,
    processes: int = 1,
    accept_stale: bool = False,
    on_row: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> list[SimulatedRow]:
    """At most `rows` of each file, architectures in turn; rows that cannot be captured are left out."""
    names = [name for name in SIMULATED if (folder / f"{name}.csv").is_file()]
    if not names:
        raise BadInput(f"{str(folder)!r} holds none of {', '.join(f'{name}.csv' for name in SIMULATED)}.")
    found = []
    for data in read_sets(folder, names):
        cases = sample([case for case in data.cases if case.measure is Measure.DEVICE_TOTAL], rows)
        found += simulate_cases(cases, cache, processes=processes, accept_stale=accept_stale, on_row=on_row)
    return found


def simulate_cases(
    cases: Sequence[Case],
    cache: Path,
    *,
    processes: int = 1,
    accept_stale: bool = False,
    on_row: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> list[SimulatedRow]:
    found = []
    for done, (case, row) in enumerate(zip(cases, _rows(cases, cache, processes, accept_stale), strict=True), 1):
        on_row(case.data, done, len(cases))
        if row is not None:
            found.append(_row(case, row))
    return found


def _rows(cases: Sequence[Case], cache: Path, processes: int, accept_stale: bool) -> Iterator[dict[str, Any] | None]:
    worker = _Worker(cache, accept_stale)
    if processes <= 1:
        yield from map(worker, cases)
        return
    # Spawned, not forked: torch's threads do not survive a fork that goes on computing.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(worker, cases)


class _Worker:
    """Captures and simulates one case; goes to other processes whole."""

    def __init__(self, cache: Path, accept_stale: bool) -> None:
        self.cache = cache
        self.accept_stale = accept_stale

    def __call__(self, case: Case) -> dict[str, Any] | None:
        traces = TraceCache(self.cache, self.accept_stale)
        kept = traces.kept(case)
        known = self._known(case, kept)
        if known is not None:
            return known
        if kept is None:
            from ..accuracy.warm import warm_up

            warm_up(case)
        trace = traces.get(case).trace
        kept = traces.kept(case)
        if trace is None or kept is None:
            return None
        try:
            target = case.target
            layers, estimate = layer_features(trace), estimate_trace(trace, target)
            bare = reserved_without_workspaces(trace, target)
        except OomcastError:
            return None
        row = {
            "device": target.gpu.name,
            "usable": target.gpu.usable_memory,
            "optimizer": trace.workload["optimizer"],
            "precision": trace.workload["precision"],
            "simulated": estimate.device_total,
            "needed": estimate.least_capacity,
            "fits": estimate.fits,
            "features": simulator_features(estimate, layers_with_memory(trace), bare).values(),
            "layers": [[layer.kind, layer.activations, layer.parameters] for layer in layers.layers],
            "batch_size": layers.batch_size,
            "parameters": layers.parameters,
            "activation_function": layers.activation_function,
        }
        path = self._path(case, kept)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(row), encoding="utf-8")
        return row

    def _known(self, case: Case, kept: Path | None) -> dict[str, Any] | None:
        """What this code computed: stale traces may be accepted, never what an older simulator made of them."""
        if kept is None:
            return None
        try:
            row: dict[str, Any] = json.loads(self._path(case, kept).read_text(encoding="utf-8"))
            return row if len(row["features"]) == len(SimulatorFeatures.names()) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _path(self, case: Case, kept: Path) -> Path:
        told = f"{case.stack}-{case.cudnn_benchmark:d}-{source_digest(*_COMPUTING)}"
        return self.cache / "learned" / f"{kept.stem}-{told}.json"


def _row(case: Case, told: dict[str, Any]) -> SimulatedRow:
    layers = tuple(Layer(str(kind), int(activations), int(own)) for kind, activations, own in told["layers"])
    features = LayerFeatures(
        layers=layers,
        batch_size=int(told["batch_size"]),
        parameters=int(told["parameters"]),
        activations=sum(layer.activations for layer in layers),
        activation_function=str(told["activation_function"]),
    )
    return SimulatedRow(
        name=case.name,
        data=case.data,
        group=case.family,
        kind=network_kind(features),
        measured=case.measured,
        features=SimulatorFeatures(*told["features"]),
        layers=features,
        **{name: told[name] for name in ("device", "usable", "optimizer", "precision", "simulated", "needed", "fits")},
    )
