"""`oomcast.calibrate`: one real run of an environment makes every later estimate for it better."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .. import __version__
from ..devices import context_figure, largest_context
from ..errors import BadInput
from ..simulate import Timeline
from ..spec import DESCRIPTIONS, Spec, takes_options
from ..units import GiB, MiB, format_bytes
from .answer import Estimate
from .calibration import Calibration, Constants, MeasuredRun, calibration_for, calibration_path, write_calibration
from .estimating import estimate_trace
from .measuring import Measurement, captured_beside, target_of_run
from .readings import Reading
from .simulation import Simulation, constants_of
from .target import Target

__all__ = ["CalibrationChange", "calibrate", "check_reading"]

_LEAST_CONTEXT = 32 * MiB
_ROOM_ABOVE = 1.25
"""Times the largest context that any known software has on a GPU: a figure above it is not a context."""
_LARGEST_MISSED = GiB
"""Handles and kept workspaces of libraries take some 10 to 100 MiB; more belongs to the job."""
_CHECK = "check that --batch-size, --precision, --optimizer and --device are those of the run"


@dataclass(frozen=True)
class CalibrationChange:
    """What a calibration changed for the job that it was made with."""

    calibration: Calibration
    path: Path
    """Where it is kept."""
    is_found: bool
    """Whether later estimates find it there by themselves."""
    run: MeasuredRun
    constants_before: Constants
    constants_after: Constants
    before: Estimate
    after: Estimate


@takes_options(*DESCRIPTIONS, without=("calibration", "use_calibration", "keep_history"))
def calibrate(
    job: Any,
    *,
    batch_size: int,
    device: str,
    nvidia_smi: str | int | None = None,
    snapshot: str | os.PathLike[str] | None = None,
    memory_stats: str | os.PathLike[str] | None = None,
    run: bool = False,
    output: str | os.PathLike[str] | None = None,
    **options: Any,
) -> CalibrationChange:
    """Compare one real run of a job with its estimate, and keep what the environment adds on that GPU.

    Exactly one of these tells what was measured: `nvidia_smi` (what it shows for the process: `21345MiB`, or a number
    of MiB), `snapshot` (a file of `torch.cuda.memory._dump_snapshot()`), `memory_stats` (a JSON file of
    `torch.cuda.memory_stats()`), or `run` (the job is run for real, on this machine's GPU). Kept in the user's
    configuration folder, or in the file `output`; several calibrations of one GPU and environment combine. The other
    options are those of `oomcast.estimate`.
    """
    measurement = Measurement(nvidia_smi, snapshot, memory_stats, run)
    spec = Spec.read(job, batch_size=batch_size, device=device, **{**options, "use_calibration": False})
    target = target_of_run(spec, measurement, "a calibration")
    path = Path(output) if output is not None else calibration_path(target.gpu.name, target.stack.name)
    # What is kept already must be readable and of the same kind before anything is measured or changed.
    known = calibration_for(target.gpu, target.stack, path) if path.exists() else None
    job_run = captured_beside(spec, target, measurement)
    reading, target, trace = job_run.reading, job_run.target, job_run.trace
    simulation = Simulation(trace, target)
    timeline = simulation.run()
    check_reading(reading, timeline, target)
    measured = MeasuredRun(
        source=reading.source,
        device_total=reading.device_total,
        reserved=reading.reserved,
        allocated=reading.allocated,
        simulated_reserved=timeline.peak_reserved,
        simulated_allocated=timeline.peak_allocated,
        convolutions=simulation.has_convolutions,
        batch_norm=simulation.has_batch_norm,
        workload=spec.workload.as_dict(),
        date=datetime.now(timezone.utc).date().isoformat(),
        versions={"oomcast": __version__, **trace.versions},
    )
    calibration = (known or Calibration(target.gpu.name, target.stack.name)).with_run(measured)
    of_before, of_after = (target.calibrated_by(version) for version in (known, calibration))
    change = CalibrationChange(
        calibration=calibration,
        path=path,
        is_found=output is None,
        run=measured,
        constants_before=constants_of(of_before, trace),
        constants_after=constants_of(of_after, trace),
        before=estimate_trace(trace, of_before),
        after=estimate_trace(trace, of_after),
    )
    write_calibration(calibration, path)
    return change


def check_reading(reading: Reading, timeline: Timeline, target: Target) -> None:
    """Raises BadInput where the figure cannot be of this job, or would make an absurd constant."""
    figure = context_figure(target.gpu, target.stack)
    tensors, simulated = format_bytes(timeline.peak_allocated), format_bytes(timeline.peak_reserved)
    if timeline.peak_reserved + _LEAST_CONTEXT > target.gpu.usable_memory:
        raise BadInput(
            f"this job fills the {target.gpu.name} (torch would reserve {simulated}), so that its figures tell only "
            "the size of the card; calibrate with a smaller batch."
        )
    total, reserved, allocated = reading.device_total, reading.reserved, reading.allocated
    if total is not None:
        if total < timeline.peak_allocated:
            raise BadInput(
                f"{format_bytes(total)} is less than the {tensors} of this job's tensors: {_CHECK}, "
                "and that the figure was read at the peak and in the right unit."
            )
        held = timeline.peak_reserved if reserved is None else reserved
        context = total - held
        if context < _LEAST_CONTEXT:
            raise BadInput(
                f"{format_bytes(total)} leaves {format_bytes(context)} for the CUDA context beside the "
                f"{format_bytes(held)} that torch reserves, less than any has: {_CHECK}, and that the figure was read "
                "after the second step."
            )
        most = round(largest_context(target.gpu, target.stack.framework) * _ROOM_ABOVE)
        if context > most:
            raise BadInput(
                f"{format_bytes(total)} leaves {format_bytes(context)} beside the {format_bytes(held)} that torch "
                f"reserves, where {format_bytes(figure.typical)} is usual and no known software holds more than "
                f"{format_bytes(most)} on a {target.gpu.name}: {_CHECK}, and that no other process was on the GPU."
            )
    for what, measured, expected in (
        ("reserved", reserved, timeline.peak_reserved),
        ("allocated", allocated, timeline.peak_allocated),
    ):
        if measured is not None and abs(measured - expected) > _LARGEST_MISSED:
            more = "more" if measured > expected else "less"
            raise BadInput(
                f"the run {what} {format_bytes(measured)}, {format_bytes(abs(measured - expected))} {more} than "
                f"simulated, which no constant of an environment stands for: {_CHECK}, and that the counters are those "
                "of the whole job."
            )
