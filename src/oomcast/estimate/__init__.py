"""From a workload to an Estimate, by any of the estimators, behind one interface."""

import sys
from types import ModuleType
from typing import Any

from ._calibrate import CalibrationChange, calibrate
from ._calibration import Calibration, Constants, MeasuredRun
from ._calibration_file import (
    calibration_path,
    calibrations_folder,
    kept_calibrations,
    read_calibration,
    remove_calibrations,
    write_calibration,
)
from ._estimate import Estimate, LiveTensor, PeakMoment, Verdict
from ._estimators import ESTIMATORS, Estimator, Target, estimate
from ._interval import Interval, interval_to_json, load_interval
from ._simulator import estimate_trace

__all__ = [
    "ESTIMATORS",
    "Calibration",
    "CalibrationChange",
    "Constants",
    "Estimate",
    "Estimator",
    "Interval",
    "LiveTensor",
    "MeasuredRun",
    "PeakMoment",
    "Target",
    "Verdict",
    "calibrate",
    "calibration_path",
    "calibrations_folder",
    "estimate",
    "estimate_trace",
    "interval_to_json",
    "kept_calibrations",
    "load_interval",
    "read_calibration",
    "remove_calibrations",
    "write_calibration",
]


class _CallableRoom(ModuleType):
    """`oomcast.estimate` is the name of this room and of the function that users call: both work."""

    def __call__(self, *args: Any, **kwargs: Any) -> Estimate:
        return estimate(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableRoom
