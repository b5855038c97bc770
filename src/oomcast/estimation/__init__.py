"""From a Spec to an Estimate, by any of the estimators, behind one interface; and what makes an estimate surer."""

from __future__ import annotations

from .answer import Estimate, IntervalBasis, LiveTensor, PeakMoment, RankEstimate, Verdict, agreeing_chance
from .calibrating import CalibrationChange, calibrate
from .calibration import (
    Calibration,
    Constants,
    MeasuredRun,
    calibration_path,
    calibrations_folder,
    kept_calibrations,
    read_calibration,
    remove_calibrations,
    undo_calibration,
    write_calibration,
)
from .contribution import Contribution, contribute, read_contribution
from .doubt import Doubt, DoubtWeights
from .estimating import ACCEPTED_RISK, estimate_trace
from .estimators import Estimator, NoOptions, estimate, estimate_spec, estimator_names, find_estimator
from .interval import (
    GroupCoverage,
    Interval,
    QuantileCurve,
    group_curve,
    group_quantile,
    group_range,
    interval_to_json,
    leave_group_out,
    load_interval,
)
from .ranks import kinds_of_ranks
from .running import DEFAULT_DEVICE, run
from .simulation import Simulation, bounds_of, constants_of
from .simulator import Simulator, estimate_rank, target_of
from .target import Target

__all__ = [
    "ACCEPTED_RISK",
    "DEFAULT_DEVICE",
    "Calibration",
    "CalibrationChange",
    "Constants",
    "Contribution",
    "Doubt",
    "DoubtWeights",
    "Estimate",
    "Estimator",
    "GroupCoverage",
    "Interval",
    "IntervalBasis",
    "LiveTensor",
    "MeasuredRun",
    "NoOptions",
    "PeakMoment",
    "QuantileCurve",
    "RankEstimate",
    "Simulation",
    "Simulator",
    "Target",
    "Verdict",
    "agreeing_chance",
    "bounds_of",
    "calibrate",
    "calibration_path",
    "calibrations_folder",
    "constants_of",
    "contribute",
    "estimate",
    "estimate_rank",
    "estimate_spec",
    "estimate_trace",
    "estimator_names",
    "find_estimator",
    "group_curve",
    "group_quantile",
    "group_range",
    "interval_to_json",
    "kept_calibrations",
    "kinds_of_ranks",
    "leave_group_out",
    "load_interval",
    "read_calibration",
    "read_contribution",
    "remove_calibrations",
    "run",
    "target_of",
    "undo_calibration",
    "write_calibration",
]
