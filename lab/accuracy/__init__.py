"""How right the estimators are: measured runs, read from their files, rebuilt, estimated and compared."""

from __future__ import annotations

from .calibrate_interval import FittedInterval, fit_interval, write_interval
from .cases import Case, CaseSet, Measure, Skipped
from .figures import read_figures
from .judging import CONSTANT, judge, judged_pairs
from .metrics import Score
from .plotting import plot
from .rendering import Report, as_json, render
from .reporting import make_report
from .running import ESTIMATORS, Result, check_estimators, run_cases, sample
from .sets import DATA_SETS, read_sets
from .traces import default_folder
from .worst_rows import Bad, worst

__all__ = [
    "CONSTANT",
    "DATA_SETS",
    "ESTIMATORS",
    "Bad",
    "Case",
    "CaseSet",
    "FittedInterval",
    "Measure",
    "Report",
    "Result",
    "Score",
    "Skipped",
    "as_json",
    "check_estimators",
    "default_folder",
    "fit_interval",
    "judge",
    "judged_pairs",
    "make_report",
    "plot",
    "read_figures",
    "read_sets",
    "render",
    "run_cases",
    "sample",
    "worst",
    "write_interval",
]
