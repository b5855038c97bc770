"""How right the estimators are: measured runs, read from their files, rebuilt, estimated and compared."""

from ._cases import Case, CaseSet, Measure, Skipped
from ._judge import judge
from ._metrics import Score
from ._run import ESTIMATORS, Result, check_estimators, run_cases, sample
from ._sets import DATA_SETS, read_sets
from ._traces import default_folder

__all__ = [
    "DATA_SETS",
    "ESTIMATORS",
    "Case",
    "CaseSet",
    "Measure",
    "Result",
    "Score",
    "Skipped",
    "check_estimators",
    "default_folder",
    "judge",
    "read_sets",
    "run_cases",
    "sample",
]
