"""The numeric parameters of a job: how a value of one becomes a workload."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import BadInput, UnknownName
from ..workload import Job, JobKind, Workload
from ._job_constants import ChangedFile, constants_of_file

__all__ = ["Parameter", "find_parameter"]

_NAMES = ("batch-size", "seq-len", "input-size", "accumulation")


@dataclass(frozen=True)
class Parameter:
    """`workload` puts a value in; the values asked for are multiples of `step`, from `smallest` on."""

    name: str
    workload: Callable[[int], Workload]
    start: int
    """Where the first capture is made: large enough for the kernels that larger values take."""
    step: int = 1
    smallest: int = 1
    degree: int = 1
    """Of what a step allocates, roughly, and of the extents of its tensors."""
    cautious: bool = False
    """Larger values may make a longer capture: the second one is not made far from the first."""


def find_parameter(name: str, workload: Workload, step: int | None = None) -> Parameter:
    """`batch-size`, `seq-len`, `input-size` (the side of an image), or a number that the job file gives a name to."""
    known = _known(name.lower().replace("_", "-"), workload, step)
    if known is not None:
        return known
    constants = constants_of_file(workload.job.name) if workload.job.kind is JobKind.FILE else {}
    place = next((constant for constant in constants if constant.lower() == name.lower().replace("-", "_")), None)
    if place is None:
        hint = "" if workload.job.kind is JobKind.FILE else "Only a job file can have others, as NAME = 128."
        raise UnknownName("parameter", name, (*_NAMES, *constants), hint)
    return Parameter(
        place,
        lambda value: _with_constant(workload, place, value),
        start=max(constants[place], 1),
        step=step or 1,
        smallest=step or 1,
        cautious=True,
    )


def _known(name: str, workload: Workload, step: int | None) -> Parameter | None:
    def replaced(**changes: Any) -> Workload:
        return dataclasses.replace(workload, **changes)

    if name == "batch-size":
        by = step or 1
        return Parameter(name, lambda n: replaced(batch_size=n), _multiple(8, by), by, by)
    if name == "seq-len":
        # Attention kernels want lengths that divide by 8; with others they pad, or are not taken.
        by = step or 8
        start = workload.seq_len or 128
        return Parameter(name, lambda n: replaced(seq_len=n), _multiple(start, by), by, by)
    if name == "input-size":
        by = step or 32
        shape = workload.input_shape or (3, 224, 224)
        if len(shape) < 3:
            raise BadInput("an input size is the side of an image or volume; this job's input shape has none.")
        channels, sides = shape[0], len(shape) - 1

        def sized(side: int) -> Workload:
            return replaced(input_shape=(channels, *(side,) * sides))

        return Parameter(name, sized, _multiple(max(shape[1:]), by), by, by, degree=sides)
    if name == "accumulation":
        by = step or 1
        return Parameter(name, lambda n: replaced(accumulation=n), _multiple(4, by), by, by, cautious=True)
    return None


def _multiple(value: int, step: int) -> int:
    return max(value // step, 1) * step


def _with_constant(workload: Workload, name: str, value: int) -> Workload:
    changed = ChangedFile(workload.job.name, name, value)
    framework = workload.framework or "torch"
    return dataclasses.replace(workload, job=Job(JobKind.OBJECT, workload.job.name, changed), framework=framework)
