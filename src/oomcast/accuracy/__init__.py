"""How right the estimators are: measured runs, read from their files, rebuilt, estimated and compared."""

from ._calibrate_interval import FittedInterval, fit_interval, write_interval
from ._cases import Case, CaseSet, Measure, Skipped
from ._judge import CONSTANT, judge, judged_pairs
from ._metrics import Score
from ._plot import plot
from ._render import Report, as_json, render
from ._report import make_report
from ._run import ESTIMATORS, Result, check_estimators, run_cases, sample
from ._sets import DATA_SETS, read_sets
from ._traces import default_folder
from ._worst import Bad, worst
from .figures import read_figures

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
