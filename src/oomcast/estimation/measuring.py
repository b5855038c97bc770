"""One real run of a job beside its capture: where calibrations begin, and the runs that people send."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields

from ..capture import capture
from ..devices import Gpu
from ..errors import BadInput
from ..spec import Spec
from ..trace import Trace
from ..units import GiB, format_bytes
from .readings import Reading, from_memory_stats, from_nvidia_smi, from_snapshot
from .real_run import run_on_this_gpu
from .target import Target

__all__ = ["OUT_OF_MEMORY", "MeasuredJob", "Measurement", "captured_beside", "target_of_run"]

OUT_OF_MEMORY = "out of memory"
"""The source of a reading that has no figures."""


@dataclass(frozen=True)
class Measurement:
    """What was measured, as the options of a command say it; exactly one is given."""

    nvidia_smi: str | int | None = None
    snapshot: str | os.PathLike[str] | None = None
    memory_stats: str | os.PathLike[str] | None = None
    run: bool = False
    out_of_memory: bool = False
    """The run ended so: there is no figure."""

    def check(self, what: str, *, may_have_failed: bool) -> None:
        """Raises BadInput unless one of them is given; `what` needs it."""
        offered = [field.name for field in fields(self) if may_have_failed or field.name != "out_of_memory"]
        given = [name for name in offered if getattr(self, name) not in (None, False)]
        if len(given) != 1:
            *flags, last = map(_flag, offered)
            raise BadInput(
                f"{what} needs exactly one of {', '.join(flags)} and {last}, not "
                f"{' and '.join(map(_flag, given)) if given else 'none'}."
            )

    def read(self, target: Target, run: Callable[[], Reading]) -> Reading:
        if self.nvidia_smi is not None:
            reading = from_nvidia_smi(self.nvidia_smi)
        elif self.snapshot is not None:
            reading = from_snapshot(self.snapshot)
        elif self.memory_stats is not None:
            reading = from_memory_stats(self.memory_stats, target.gpu)
        elif self.out_of_memory:
            reading = Reading(OUT_OF_MEMORY)
        else:
            reading = run()
        _check_size(reading, target.gpu)
        return reading


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


@dataclass(frozen=True)
class MeasuredJob:
    """`target` has the allocator's settings of the run, where the measurement tells them."""

    reading: Reading
    target: Target
    trace: Trace


def target_of_run(spec: Spec, measurement: Measurement, what: str, *, may_have_failed: bool = False) -> Target:
    """Where the run was. Raises BadInput where that is not said, or cannot have been."""
    measurement.check(what, may_have_failed=may_have_failed)
    if spec.place.environment is None and not measurement.run:
        raise BadInput(f"{what} needs --environment, the software that the run had, like torch-2.8-cu128.")
    target = Target.of(spec.place)
    if not target.stack.supports(target.gpu):
        raise BadInput(f"the environment {target.stack.name} does not run on a {target.gpu.name}; give the run's own.")
    return target


def captured_beside(spec: Spec, target: Target, measurement: Measurement) -> MeasuredJob:
    """Read what was measured (or measure it now), and capture the same job."""
    reading = measurement.read(target, lambda: run_on_this_gpu(spec, target))
    if reading.settings is not None and spec.place.alloc_conf is None:
        target = Target.of(spec.place, settings=reading.settings)
    return MeasuredJob(reading, target, capture(spec))


def _check_size(reading: Reading, gpu: Gpu) -> None:
    """What no GPU of that kind can hold was read elsewhere, or in another unit."""
    most = max(gpu.total_memory, round(gpu.memory_gib * GiB))
    for what, value in (("a total of", reading.device_total), ("reserved", reading.reserved)):
        if value is not None and value > most:
            raise BadInput(
                f"{what} {format_bytes(value)} is more than the {format_bytes(most)} of a {gpu.name}: "
                "it is from another GPU, or in another unit (a plain number is MiB)."
            )
