"""What real runs told about an environment: the artifact that `oomcast calibrate` keeps, and the constants it gives.

Two things can be learnt from a run, and each has its own reading:

- The context, what the process holds outside of torch's allocator, needs the device's own figure (nvidia-smi, NVML):
  the measured total less what the allocator reserved, as measured in a run of the same job or else as simulated. A
  simulated figure brings its own error along, which grows with the job, so that small jobs tell the context best.
- What the simulated allocator misses, handles and workspaces of libraries that torch allocates once and keeps, needs
  torch's own counters: measured less simulated. It is a constant and never negative: a simulation that says too much
  is wrong about that job, and no constant of an environment stands for that.

It is kept as a file: readable JSON with a version, one for each GPU and environment, in the user's own folder.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..devices import Gpu, Stack, context_bytes, find_gpu
from ..errors import BadInput, OomcastError, UnknownName, UnreadableFile
from ..files import write_atomically
from ..units import MiB

__all__ = [
    "Calibration",
    "Constants",
    "MeasuredRun",
    "calibration_for",
    "calibration_path",
    "calibrations_folder",
    "kept_calibrations",
    "read_calibration",
    "remove_calibrations",
    "undo_calibration",
    "write_calibration",
]

_READING_ERROR = 20 * MiB
"""Of nvidia-smi's figure: when it was read, what else was loaded by then."""
_SIMULATION_ERROR = 0.025
"""Of the simulated reserved bytes: half of the middle two thirds of the measured runs' errors, rounded up."""
_SURE = 100 * MiB
_JOBS_DIFFER = 150 * MiB
"""Contexts of different jobs under one stack differ by as much: other kernels are loaded. More is a contradiction."""


@dataclass(frozen=True)
class MeasuredRun:
    """One real run beside its simulation. Bytes; None where a figure was not measured."""

    source: str
    """`nvidia-smi`, `snapshot`, `memory-stats` or `run`."""
    device_total: int | None
    reserved: int | None
    allocated: int | None
    simulated_reserved: int
    simulated_allocated: int
    convolutions: bool
    """Whether the job has any: where loading cuDNN means all of it, its kernels are part of the context only then."""
    batch_norm: bool = True
    """The same for the part of cuDNN that batch norm loads; runs that were kept before this was noted had it."""
    workload: Mapping[str, Any] = field(default_factory=dict)
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Constants:
    """What one environment adds to the simulated allocator on one GPU. Bytes."""

    context: int
    reserved: int = 0
    allocated: int = 0
    context_is_measured: bool = False
    context_error: int = 0
    """How far off a measured context may be, because of how it was measured."""
    contradiction: tuple[int, int] | None = None
    """The least and the largest context that the runs tell, where no one context agrees with all of them."""

    @property
    def context_is_sure(self) -> bool:
        """Whether the narrower interval holds, that of measured runs whose context was known."""
        return self.context_is_measured and self.context_error <= _SURE and self.contradiction is None

    @property
    def context_at_most(self) -> int:
        """What the context may be where the runs contradict each other: what the largest of them says."""
        return self.context if self.contradiction is None else self.contradiction[1]

    @property
    def context_at_least(self) -> int:
        return self.context if self.contradiction is None else self.contradiction[0]


@dataclass(frozen=True)
class Calibration:
    """All real runs that are known of one GPU under one environment; they combine by medians."""

    gpu: str
    environment: str
    runs: tuple[MeasuredRun, ...] = ()

    @property
    def name(self) -> str:
        return calibration_name(self.gpu, self.environment)

    def with_run(self, run: MeasuredRun) -> Calibration:
        """One more; the same run told again counts once."""
        same = replace(run, date="")
        kept = tuple(one for one in self.runs if replace(one, date="") != same)
        return replace(self, runs=(*kept, run))

    def without_last_run(self) -> Calibration:
        """As it was before the newest run was told."""
        return replace(self, runs=self.runs[:-1])

    def constants(self, gpu: Gpu, stack: Stack, *, convolutions: bool, batch_norm: bool) -> Constants:
        """What follows from the runs; the catalogue's context where no run tells it."""
        reserved = _constant(run.reserved - run.simulated_reserved for run in self.runs if run.reserved is not None)
        allocated = _constant(run.allocated - run.simulated_allocated for run in self.runs if run.allocated is not None)
        loaded = _cudnn_of(stack, convolutions, batch_norm)
        same_job = {_job(run): run.reserved for run in self.runs if run.reserved is not None}
        contexts = []
        for run in self.runs:
            if run.device_total is None:
                continue
            held = same_job.get(_job(run))
            error = _READING_ERROR if held is not None else _READING_ERROR + _SIMULATION_ERROR * run.simulated_reserved
            # A total without torch's own figure holds what the simulated allocator misses as well.
            beside = run.device_total - (run.simulated_reserved + reserved if held is None else held)
            of_run = _cudnn_of(stack, run.convolutions, run.batch_norm)
            contexts.append((beside + loaded - of_run, error))
        if not contexts:
            context = context_bytes(gpu, stack, convolutions=convolutions, batch_norm=batch_norm)
            return Constants(context, reserved, allocated)
        return Constants(
            context=max(_weighted_median([(context, 1 / error) for context, error in contexts]), 0),
            reserved=reserved,
            allocated=allocated,
            context_is_measured=True,
            context_error=round(min(error for _, error in contexts)),
            contradiction=_contradiction(contexts),
        )


def calibration_name(gpu: str, environment: str) -> str:
    return f"{gpu}@{environment}"


def _contradiction(contexts: Sequence[tuple[int, float]]) -> tuple[int, int] | None:
    """The ends of the contexts, where two are further apart than twice their errors, and the kind of job, explain."""
    for context, error in contexts:
        for other, other_error in contexts:
            if other - context > 2 * (error + other_error) + _JOBS_DIFFER:
                measured = [max(value, 0) for value, _ in contexts]
                return min(measured), max(measured)
    return None


def _cudnn_of(stack: Stack, convolutions: bool, batch_norm: bool) -> int:
    """Bytes of cuDNN's kernels in a job's context, where loading means all of a library."""
    if not convolutions:
        return 0
    return (stack.cudnn_kernels_mib + batch_norm * stack.cudnn_batch_norm_mib) * MiB


def _constant(differences: Iterable[int]) -> int:
    listed = list(differences)
    return max(round(statistics.median(listed)), 0) if listed else 0


def _weighted_median(weighted: Sequence[tuple[int, float]]) -> int:
    """With equal weights the usual median, also that of two."""
    ordered = sorted(weighted)
    half = sum(weight for _, weight in ordered) / 2
    reached = 0.0
    for index, (value, weight) in enumerate(ordered):
        reached += weight
        if reached > half * (1 + 1e-9):
            return value
        if reached >= half * (1 - 1e-9):
            return round((value + ordered[index + 1][0]) / 2)
    raise AssertionError("no values")


def _job(run: MeasuredRun) -> str:
    """Equal for runs of the same job with the same options."""
    return json.dumps(run.workload, sort_keys=True, default=str)


SCHEMA = 1
_KIND = "oomcast calibration"
_LARGEST = 4 << 20
_MOST_BYTES = 1 << 50
_SUFFIX = ".json"


def calibrations_folder() -> Path:
    """In `OOMCAST_CONFIG`, else in the user's configuration folder."""
    given = os.environ.get("OOMCAST_CONFIG")
    if given:
        return Path(given) / "calibrations"
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        told = os.environ.get("APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME")
        base = Path(told) if told else Path.home() / ".config"
    return base / "oomcast" / "calibrations"


def calibration_path(gpu: str, environment: str) -> Path:
    """Where the calibration of that pair is kept."""
    safe = re.sub(r"[^A-Za-z0-9.@_-]+", "-", calibration_name(gpu, environment))
    return calibrations_folder() / f"{safe}{_SUFFIX}"


def calibration_for(gpu: Gpu, stack: Stack, file: Path | None = None) -> Calibration | None:
    """The kept one, if there is; or the one in `file`, which must be of this GPU and environment."""
    if file is None:
        path = calibration_path(gpu.name, stack.name)
        if not path.exists():
            return None
    else:
        path = file
    calibration = read_calibration(path)
    if calibration.gpu != gpu.name:
        raise BadInput(
            f"the calibration {path} is of a {calibration.gpu}, not of a {gpu.name}; what it holds beside tensors "
            f"differs, so give --device {calibration.gpu} or calibrate a {gpu.name}."
        )
    if calibration.environment != stack.name:
        raise BadInput(
            f"the calibration {path} is of the environment {calibration.environment}, not {stack.name}; "
            f"give --environment {calibration.environment}, or calibrate {stack.name}."
        )
    return calibration


def read_calibration(path: Path) -> Calibration:
    """Raises UnreadableFile with a sentence that says what to do."""
    try:
        if path.stat().st_size > _LARGEST:
            raise UnreadableFile(f"{path} is larger than a calibration can be.")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(f"cannot read the calibration {path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "it is not JSON") from error
    if not isinstance(content, dict) or content.get("kind") != _KIND:
        raise _damaged(path, f"it does not say that it is an {_KIND}")
    schema = content.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise UnreadableFile(
            f"the calibration {path} was written by a newer oomcast (version {schema} of its form, this one reads "
            f"{SCHEMA}); update oomcast, or go without it by --no-calibration."
        )
    try:
        if schema != SCHEMA:
            raise ValueError(f"its version {schema!r} is unknown")
        calibration = _from_json(content)
        find_gpu(calibration.gpu)
        return calibration
    except UnknownName as error:
        raise UnreadableFile(f"the calibration {path} is of a GPU that this oomcast does not know: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)) from error


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Whole or not at all: a reader never sees half of it, and a failure leaves what was there."""
    text = json.dumps(_as_json(calibration), indent=2, ensure_ascii=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write the calibration to {path}: {error.strerror or error}.") from error
    write_atomically(path, text.encode())


def kept_calibrations() -> tuple[tuple[Path, Calibration | OomcastError], ...]:
    """All in the user's folder, by name; for one that cannot be read, why."""
    found: list[tuple[Path, Calibration | OomcastError]] = []
    for path in sorted(calibrations_folder().glob(f"*{_SUFFIX}")):
        try:
            found.append((path, read_calibration(path)))
        except OomcastError as error:
            found.append((path, error))
    return tuple(found)


def remove_calibrations(name: str) -> tuple[Path, ...]:
    """Remove those of that name (`rtx-3090@torch-2.8-cu128`), environment or GPU; damaged ones too, by their file."""
    kept = kept_calibrations()
    wanted = name.strip().removesuffix(_SUFFIX)
    chosen = tuple(path for path, _ in kept if wanted in (path.stem, *path.stem.split("@")))
    if not chosen:
        raise UnknownName("calibration", name, [path.stem for path, _ in kept], "`oomcast calibrate --list` shows all.")
    for path in chosen:
        try:
            path.unlink()
        except OSError as error:
            raise BadInput(f"cannot remove {path}: {error.strerror or error}.") from error
    return chosen


def undo_calibration(name: str) -> tuple[Path, Calibration | None]:
    """Take back the newest run of the calibration of that name; where it was the only one, None is left and no file."""
    known = {path.stem: (path, kept) for path, kept in kept_calibrations()}
    wanted = name.strip().removesuffix(_SUFFIX)
    if wanted not in known:
        raise UnknownName("calibration", name, known, "`oomcast calibrate --list` shows all.")
    path, kept = known[wanted]
    if isinstance(kept, OomcastError):
        raise kept
    before = kept.without_last_run()
    if before.runs:
        write_calibration(before, path)
        return path, before
    remove_calibrations(wanted)
    return path, None


def _damaged(path: Path, what: str) -> UnreadableFile:
    return UnreadableFile(
        f"the calibration {path} is damaged: {what}; remove the file and calibrate again, or go without it by "
        "--no-calibration."
    )


def _as_json(calibration: Calibration) -> dict[str, Any]:
    return {
        "kind": _KIND,
        "schema": SCHEMA,
        "gpu": calibration.gpu,
        "environment": calibration.environment,
        "runs": [asdict(run) for run in calibration.runs],
    }


def _from_json(content: Mapping[str, Any]) -> Calibration:
    listed = content["runs"]
    if not isinstance(listed, list) or not listed:
        raise ValueError("it lists no runs")
    return Calibration(
        gpu=_text(content, "gpu"),
        environment=_text(content, "environment"),
        runs=tuple(_run(entry) for entry in listed),
    )


def _run(entry: Any) -> MeasuredRun:
    if not isinstance(entry, dict):
        raise ValueError("a run is not an object")
    if not isinstance(entry["convolutions"], bool):
        raise ValueError("'convolutions' is not true or false")
    for key in ("workload", "versions"):
        if not isinstance(entry[key], dict):
            raise ValueError(f"{key!r} is not an object")
    run = MeasuredRun(
        source=_text(entry, "source"),
        device_total=_size(entry, "device_total", optional=True),
        reserved=_size(entry, "reserved", optional=True),
        allocated=_size(entry, "allocated", optional=True),
        simulated_reserved=_size(entry, "simulated_reserved") or 0,
        simulated_allocated=_size(entry, "simulated_allocated") or 0,
        convolutions=entry["convolutions"],
        batch_norm=entry.get("batch_norm", True) is True,
        workload=entry["workload"],
        date=_text(entry, "date"),
        versions=entry["versions"],
    )
    if run.device_total is None and run.reserved is None:
        raise ValueError("a run has no measured figure")
    return run


def _text(entry: Mapping[str, Any], key: str) -> str:
    if not isinstance(entry[key], str):
        raise ValueError(f"{key!r} is not a text")
    return str(entry[key])


def _size(entry: Mapping[str, Any], key: str, optional: bool = False) -> int | None:
    value = entry[key]
    if value is None and optional:
        return None
    if type(value) is not int or not 0 <= value < _MOST_BYTES:
        raise ValueError(f"{key!r} is not a number of bytes")
    return value
