"""From the options that a user gives to a workload and its target: the same ones, read alike, as for an estimate."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, NamedTuple

from ..capture import guess_framework
from ..estimate import Target
from ..estimate._calibration_file import calibration_for
from ..workload import Workload

__all__ = ["Setup", "prepare"]

_OF_THE_TARGET = ("environment", "alloc_conf", "cudnn_benchmark", "time_limit", "coverage")


class Setup(NamedTuple):
    workload: Workload
    target: Target


def prepare(
    job: Any,
    *,
    device: str,
    calibration: str | os.PathLike[str] | None = None,
    use_calibration: bool = True,
    **options: Any,
) -> Setup:
    """The options are those of `oomcast.estimate`."""
    of_target = {name: options.pop(name) for name in _OF_THE_TARGET if name in options}
    workload = Workload.create(job, **options)
    target = Target.create(device, **of_target, framework=guess_framework(workload))
    if use_calibration:
        file = None if calibration is None else Path(calibration)
        target = dataclasses.replace(target, calibration=calibration_for(target.gpu, target.stack, file))
    return Setup(workload, target)
