"""`oomcast.contribute`: a run that somebody measured, packed so that it can be given away.

What helps others is what a job held and when, on which GPU and with which software; not whose job it was. So the file
has the Trace without names, the options that are numbers or words of ours, the versions, and what was measured. The
estimate of today is beside it, and it does not matter how far it is off: runs that were estimated badly are worth the
most. Models that everybody can name (the zoo's, timm's, torchvision's, public ones of transformers) are named.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import BadInput, OomcastError, UnreadableFile
from ..files import write_atomically
from ..spec import DESCRIPTIONS, Job, JobKind, Place, Spec, Workload, options_of, takes_options
from ..trace import Trace, family_of, trace_from_bytes, trace_to_bytes, without_names
from ..zoo import find_public_model
from .estimating import estimate_trace
from .measuring import OUT_OF_MEMORY, Measurement, captured_beside, target_of_run
from .simulation import Simulation
from .target import Target

__all__ = ["Contribution", "contribute", "read_contribution"]

_KIND = "oomcast measured run"
_SCHEMA = 1
_TRACE = "trace"
_LARGEST = 256 << 20
_MOST_BYTES = 1 << 50
_PUBLIC = (JobKind.ZOO, JobKind.TIMM, JobKind.TORCHVISION)


@dataclass(frozen=True)
class Contribution:
    """A measured run as it is given away. Bytes; None where a figure was not measured."""

    device: str
    """The GPU, or the GPUs, as the command line names them."""
    environment: str
    alloc_conf: str | None
    cudnn_benchmark: bool
    rank: int | None
    model: str
    """As the command line names it; empty for models that not everybody knows."""
    family: str
    """The same for runs of the same network: a digest of its weights' shapes."""
    options: Mapping[str, Any]
    """Those of the job that differ from their defaults and are numbers, switches, or words of ours."""
    versions: Mapping[str, str]
    source: str
    """`nvidia-smi`, `snapshot`, `memory-stats`, `run`, or `out of memory`."""
    device_total: int | None
    reserved: int | None
    allocated: int | None
    estimated_total: int
    """By the oomcast that packed it, with the catalogue's context."""
    estimated_reserved: int
    estimated_allocated: int
    trace: Trace
    """Without names."""

    @property
    def ran(self) -> bool:
        return self.source != OUT_OF_MEMORY


@takes_options(*DESCRIPTIONS, without=("calibration", "use_calibration", "keep_history"))
def contribute(
    job: Any,
    *,
    batch_size: int,
    device: str,
    output: str | os.PathLike[str],
    nvidia_smi: str | int | None = None,
    snapshot: str | os.PathLike[str] | None = None,
    memory_stats: str | os.PathLike[str] | None = None,
    run: bool = False,
    out_of_memory: bool = False,
    **options: Any,
) -> Contribution:
    """Pack a measured run of a job into the file `output`, without code and without names. Nothing is sent.

    What was measured is told as for `oomcast.calibrate`; `out_of_memory`: the run ended so, and has no figure. The
    other options are those of `oomcast.estimate`, and must be those of the run.
    """
    path = Path(output)
    if path.exists():
        raise BadInput(f"{path} exists already; give --output another name.")
    measurement = Measurement(nvidia_smi, snapshot, memory_stats, run, out_of_memory)
    spec = Spec.read(job, batch_size=batch_size, device=device, **{**options, "use_calibration": False})
    target = target_of_run(spec, measurement, "a measured run", may_have_failed=True)
    measured = captured_beside(spec, target, measurement)
    if measured.target.settings != target.settings:
        raise BadInput("the snapshot was recorded with other settings of the allocator; give them by --alloc-conf.")
    trace, reading = without_names(measured.trace), measured.reading
    _check_same_bytes(measured.trace, trace, target)
    estimate = estimate_trace(measured.trace, target)
    contribution = Contribution(
        device=spec.place.device.strip(),
        environment=target.stack.name,
        alloc_conf=spec.place.alloc_conf,
        cudnn_benchmark=spec.place.cudnn_benchmark,
        rank=spec.place.rank,
        model=_public_name(spec.workload.job),
        family=family_of(measured.trace),
        options=_told_options(spec.workload),
        versions={"oomcast": __version__, **measured.trace.versions},
        source=reading.source,
        device_total=reading.device_total,
        reserved=reading.reserved,
        allocated=reading.allocated,
        estimated_total=estimate.device_total,
        estimated_reserved=estimate.peak_reserved,
        estimated_allocated=estimate.peak_allocated,
        trace=trace,
    )
    write_atomically(path, _to_bytes(contribution))
    return contribution


def _check_same_bytes(trace: Trace, nameless: Trace, target: Target) -> None:
    """A rule that looks at what was left out would make the file tell of another job."""
    before, after = Simulation(trace, target), Simulation(nameless, target)
    if before.constants != after.constants or before.run().spans != after.run().spans:
        raise OomcastError("without its names this job is simulated otherwise, so that it cannot be packed.")


def _public_name(job: Job) -> str:
    """Of a model that is in a catalogue which everybody has."""
    is_public = job.kind in _PUBLIC or (job.kind is JobKind.HF and find_public_model(job.name) is not None)
    return job.reference if is_public else ""


def _told_options(workload: Workload) -> dict[str, Any]:
    return {
        option.name: option.kind.plain(value)
        for option in options_of(Workload)
        if option.kind.is_closed and (value := getattr(workload, option.name)) not in (None, option.default)
    }


# -------- The file


def _to_bytes(contribution: Contribution) -> bytes:
    told = {field.name: getattr(contribution, field.name) for field in fields(contribution) if field.name != _TRACE}
    packed = base64.b64encode(trace_to_bytes(contribution.trace)).decode()
    return json.dumps({"kind": _KIND, "schema": _SCHEMA, **told, _TRACE: packed}, indent=1).encode() + b"\n"


def read_contribution(path: str | os.PathLike[str]) -> Contribution:
    """Raises UnreadableFile with a sentence that says what is wrong."""
    source = Path(path)
    try:
        if source.stat().st_size > _LARGEST:
            raise UnreadableFile(f"{source} is larger than a measured run can be.")
        content = json.loads(source.read_bytes())
    except OSError as error:
        raise UnreadableFile(f"cannot read the measured run {source}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{source} is no measured run: it is not JSON.") from error
    if not isinstance(content, dict) or content.get("kind") != _KIND:
        raise UnreadableFile(f"{source} is no measured run: oomcast contribute did not write it.")
    if content.get("schema") != _SCHEMA:
        raise UnreadableFile(f"the measured run {source} is of another version of oomcast; update oomcast to read it.")
    try:
        return _from_json(content, str(source))
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise UnreadableFile(f"the measured run {source} is damaged: {what}.") from error


def _from_json(content: Mapping[str, Any], name: str) -> Contribution:
    def of(kind: type, key: str, optional: bool = False) -> Any:
        value = content[key]
        if not (type(value) is kind or (optional and value is None)):
            raise ValueError(f"{key!r} is not what it should be")
        if type(value) is int and not 0 <= value < _MOST_BYTES:
            raise ValueError(f"{key!r} is out of bounds")
        return value

    contribution = Contribution(
        device=of(str, "device"),
        environment=of(str, "environment"),
        alloc_conf=of(str, "alloc_conf", optional=True),
        cudnn_benchmark=of(bool, "cudnn_benchmark"),
        rank=of(int, "rank", optional=True),
        model=of(str, "model"),
        family=of(str, "family"),
        options=of(dict, "options"),
        versions=of(dict, "versions"),
        source=of(str, "source"),
        **{figure: of(int, figure, optional=True) for figure in ("device_total", "reserved", "allocated")},
        **{figure: of(int, figure) for figure in ("estimated_total", "estimated_reserved", "estimated_allocated")},
        trace=trace_from_bytes(base64.b64decode(of(str, _TRACE), validate=True), name=name),
    )
    if contribution.ran == (contribution.device_total is None and contribution.reserved is None):
        raise ValueError("a run that ended well has a figure, and no other has one")
    Place.create(contribution.device, contribution.environment, rank=contribution.rank)
    return contribution
