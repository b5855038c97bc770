"""What estimators learn from, whatever file it comes from: data sets, stores of campaigns, calibrations.

Rows of a data set bring their features with them. The jobs of campaigns and of calibrations are captured here.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from oomcast.methods import tbem

from ....capture import capture
from ....devices import find_gpu
from ....errors import BadInput, OomcastError
from ....estimation import Calibration, Target, estimate_trace, read_calibration
from ....spec import Place, Spec, Workload
from ....trace import Trace
from ...measure import Measurement, Outcome, Store
from ..artifact import network_kind
from ..dataset import Row, read_dataset
from ..features import (
    LayerFeatures,
    SimulatorFeatures,
    layer_features,
    layers_with_memory,
    reserved_without_workspaces,
    simulator_features,
)

__all__ = ["LEAST_ROWS", "RUNS", "SIMULATOR", "LearningRow", "SimulatedRow", "read_learning_rows"]

SIMULATOR, RUNS = "simulator", "runs"
LEAST_ROWS = 40
"""Of one kind of networks: a quarter of them is kept out in turn, and ten say little enough."""
_DATA_SETS = (".parquet", ".csv")
_CALIBRATION = ".json"
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class SimulatedRow:
    """A run with what the simulator says of it. Bytes."""

    name: str
    data: str
    group: str
    """Its architecture or model family."""
    kind: str
    device: str
    usable: int
    optimizer: str
    precision: str
    measured: int | None
    simulated: int
    needed: int
    """The least device memory on which it would run."""
    fits: bool
    features: SimulatorFeatures
    layers: LayerFeatures

    @property
    def kinds(self) -> tuple[str, ...]:
        return self.layers.kinds


@dataclass(frozen=True)
class LearningRow:
    """A network with what it held."""

    name: str
    source: str
    """`simulator` or `runs`: who says what it held."""
    device: str
    environment: str
    optimizer: str
    precision: str
    held: int | None
    """Bytes that the device showed at most; None where it did not fit."""
    layers: LayerFeatures
    simulator: SimulatorFeatures | None
    """None for what ran on a CPU."""
    memory: int = 0
    """Of the machine, where the device is a CPU and it is known."""

    @property
    def kind(self) -> str:
        return network_kind(self.layers)

    @property
    def context(self) -> int:
        """Bytes beside the allocator that are part of what it held."""
        return 0 if self.simulator is None else round(self.simulator.context * self.simulator.device_total)

    def simulated(self) -> SimulatedRow | None:
        """The row as the residual is learnt from it; each run is a group of its own: jobs to come are like these."""
        if self.simulator is None or self.source != RUNS:
            return None
        usable = find_gpu(self.device).usable_memory
        needed = round(self.simulator.least * self.simulator.device_total)
        return SimulatedRow(
            name=self.name,
            data=RUNS,
            group=self.name,
            kind=self.kind,
            device=self.device,
            usable=usable,
            optimizer=self.optimizer,
            precision=self.precision,
            measured=self.held,
            simulated=round(self.simulator.device_total),
            needed=needed,
            fits=needed <= usable,
            features=self.simulator,
            layers=self.layers,
        )


def context_of(rows: Sequence[LearningRow]) -> int:
    return round(median(row.context for row in rows))


def read_learning_rows(
    sources: Sequence[str | os.PathLike[str]],
    *,
    device: str | None = None,
    on_progress: Progress = lambda what, done, total: None,
) -> tuple[list[LearningRow], list[str]]:
    """All rows of data sets (.parquet, .csv), stores of campaigns (.db, postgresql://) and calibrations (.json), and
    what had to be left out, a sentence each. Too few of them are told before anything is captured."""
    opened: list[Any] = []
    with contextlib.ExitStack() as stack:
        for source in sources:
            opened.append(_opened(str(source), stack))
        counts = [
            place.count() if isinstance(place, Store) else len(place.runs if isinstance(place, Calibration) else place)
            for place in opened
        ]
        if sum(counts) < LEAST_ROWS:
            told = ", ".join(f"{count} of {source}" for count, source in zip(counts, sources, strict=True))
            raise BadInput(
                f"{sum(counts)} rows are too few to learn from ({told}): at least {LEAST_ROWS} of one kind of networks "
                "are needed; oomcast dataset build FILE --rows 200 makes more."
            )
        rows: list[LearningRow] = []
        left_out: list[str] = []
        total, done = sum(counts), 0
        for place, count in zip(opened, counts, strict=True):
            for found in _rows_of(place):
                done += isinstance(place, (Store, Calibration))
                on_progress("capturing", done, total)
                if isinstance(found, str):
                    left_out.append(found)
                else:
                    rows.append(found)
            done += 0 if isinstance(place, (Store, Calibration)) else count
    if device is not None:
        wanted = tbem.CPU if device.lower() == tbem.CPU else find_gpu(device).name
        rows = [row for row in rows if row.device == wanted]
        if not rows:
            raise BadInput(f"none of these rows is of the device {wanted}.")
    return rows, left_out


def _opened(source: str, stack: contextlib.ExitStack) -> Any:
    path = Path(source)
    if "://" not in source and not path.exists():
        raise BadInput(f"there is no file {source} to learn from; oomcast dataset build makes one.")
    if path.is_dir():
        raise BadInput(
            f"{source} is a folder; name the files in it. GPUMemNet's own files are learnt from in a checkout of the "
            "repository, by python -m lab train FOLDER --output DIR."
        )
    if path.suffix in _DATA_SETS:
        return read_dataset(path).rows
    if path.suffix == _CALIBRATION:
        return read_calibration(path)
    if "://" in source or path.suffix in (".db", ".sqlite"):
        return stack.enter_context(Store.open(source))
    raise BadInput(
        f"{source} is nothing to learn from: give data sets (.parquet, .csv), stores of campaigns (.db, "
        "postgresql://…) or calibrations (.json)."
    )


def _rows_of(source: Any) -> Iterator[LearningRow | str]:
    if isinstance(source, Store):
        for measurement in source.measurements():
            yield _told(f"case {measurement.case.key}", _of_measurement, measurement)
    elif isinstance(source, Calibration):
        for number, run in enumerate(source.runs, 1):
            name = f"{run.workload.get('job', 'job')} #{number}"
            yield _told(name, _of_calibration, source, run, name)
    else:
        yield from map(_of_data_set, source)


def _told(name: str, make: Callable[..., LearningRow], *of_what: Any) -> LearningRow | str:
    try:
        return make(*of_what)
    except OomcastError as error:
        return f"{name} was left out: {error}"


def _of_data_set(row: Row) -> LearningRow | str:
    if row.features is None:
        return f"{row.id} was left out: it lists no layers"
    label = row.label
    if label.outcome == "fits" and label.device_total is None:
        return f"{row.id} was left out: it fits, and does not say what it held"
    return LearningRow(
        name=row.id,
        source=SIMULATOR if label.source == SIMULATOR else RUNS,
        device=label.device,
        environment=label.environment,
        optimizer=label.optimizer,
        precision=label.precision,
        held=label.device_total if label.outcome == "fits" else None,
        layers=row.features,
        simulator=row.simulator,
    )


def _of_measurement(measurement: Measurement) -> LearningRow:
    case = measurement.case
    if measurement.outcome not in (Outcome.OK, Outcome.OOM):
        raise BadInput(f"its run ended by {measurement.outcome.value}.")
    if case.template not in tbem.TEMPLATES:
        raise BadInput(f"{case.template} is no template of oomcast; a data set's own file has its rows.")
    facts = measurement.environment.as_dict()
    gpu = case.device if case.device != "cuda" else find_gpu(str(facts.get("gpu", ""))).name
    trace = tbem.case_trace(case.template, case.parameters, case.steps, gpu)
    target = None if gpu == tbem.CPU else Target.of(Place(gpu, use_calibration=False))
    return _captured(
        f"{case.template} {case.key}",
        trace,
        target,
        held=measurement.peak_bytes if measurement.outcome is Outcome.OK else None,
        environment=tbem.environment_in_words(facts),
        memory=int(facts.get("memory", 0) or 0),
    )


def _of_calibration(calibration: Calibration, run: Any, name: str) -> LearningRow:
    place = Place(calibration.gpu, environment=calibration.environment, use_calibration=False)
    target = Target.of(place)
    trace = capture(Spec(Workload.from_dict(run.workload), place))
    held = run.device_total
    if held is None:  # torch's counters alone: the context is the catalogue's
        held = run.reserved + estimate_trace(trace, target).breakdown["context"]
    return _captured(name, trace, target, held=held, environment=calibration.environment)


def _captured(
    name: str, trace: Trace, target: Target | None, *, held: int | None, environment: str, memory: int = 0
) -> LearningRow:
    layers, simulator = layer_features(trace), None
    if target is not None:
        estimate = estimate_trace(trace, target)
        simulator = simulator_features(estimate, layers_with_memory(trace), reserved_without_workspaces(trace, target))
    return LearningRow(
        name=name,
        source=RUNS,
        device=tbem.CPU if target is None else target.gpu.name,
        environment=environment,
        optimizer=str(trace.workload.get("optimizer")),
        precision=str(trace.workload.get("precision")),
        held=held,
        layers=layers,
        simulator=simulator,
        memory=memory,
    )
