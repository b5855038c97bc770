"""From a workload to an Estimate, by any of the estimators, behind one interface."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

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
from ._estimators import ESTIMATOR_NAMES, ESTIMATORS, Estimator, Target, estimate, missing_extra
from ._interval import Interval, interval_to_json, load_interval
from ._simulator import estimate_trace

if TYPE_CHECKING:
    from ._campaign import ScreenedFactors, measure_campaign, screen
    from ._equation import (
        EQUATION_FEATURES,
        EquationRow,
        MemoryEquation,
        Prediction,
        equation_rows,
        fit_equation,
        fit_equation_to,
        measured_runs,
    )
    from ._equation_file import read_equation, write_equation
    from ._gap import FEATURES, Gap, GapRow, Mape, fit_campaign, fit_gap
    from ._gap_file import read_gap, write_gap
    from ._static_value import StaticValue

__all__ = [
    "EQUATION_FEATURES",
    "ESTIMATORS",
    "ESTIMATOR_NAMES",
    "FEATURES",
    "Calibration",
    "CalibrationChange",
    "Constants",
    "EquationRow",
    "Estimate",
    "Estimator",
    "Gap",
    "GapRow",
    "Interval",
    "LiveTensor",
    "Mape",
    "MeasuredRun",
    "MemoryEquation",
    "PeakMoment",
    "Prediction",
    "ScreenedFactors",
    "StaticValue",
    "Target",
    "Verdict",
    "calibrate",
    "calibration_path",
    "calibrations_folder",
    "equation_rows",
    "estimate",
    "estimate_trace",
    "fit_campaign",
    "fit_equation",
    "fit_equation_to",
    "fit_gap",
    "interval_to_json",
    "kept_calibrations",
    "load_interval",
    "measure_campaign",
    "measured_runs",
    "missing_extra",
    "read_calibration",
    "read_equation",
    "read_gap",
    "remove_calibrations",
    "screen",
    "write_calibration",
    "write_equation",
    "write_gap",
]

_HOMES = {
    "_campaign": ("ScreenedFactors", "measure_campaign", "screen"),
    "_equation": (
        "EQUATION_FEATURES",
        "EquationRow",
        "MemoryEquation",
        "Prediction",
        "equation_rows",
        "fit_equation",
        "fit_equation_to",
        "measured_runs",
    ),
    "_equation_file": ("read_equation", "write_equation"),
    "_gap": ("FEATURES", "Gap", "GapRow", "Mape", "fit_campaign", "fit_gap"),
    "_gap_file": ("read_gap", "write_gap"),
    "_static_value": ("StaticValue",),
}


def __getattr__(name: str) -> Any:
    # Campaigns need numpy and lark, which other estimates do without.
    for module, names in _HOMES.items():
        if name in names:
            try:
                return getattr(importlib.import_module(f".{module}", __name__), name)
            except ModuleNotFoundError as error:
                raise missing_extra(error) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _CallableRoom(ModuleType):
    """`oomcast.estimate` is the name of this room and of the function that users call: both work."""

    def __call__(self, *args: Any, **kwargs: Any) -> Estimate:
        return estimate(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableRoom
