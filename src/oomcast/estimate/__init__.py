"""From a workload to an Estimate, by any of the estimators, behind one interface."""

import sys
from types import ModuleType
from typing import Any

from ._estimate import Estimate, LiveTensor, PeakMoment, Verdict
from ._estimators import ESTIMATORS, Estimator, Target, estimate
from ._interval import Interval, load_interval

__all__ = [
    "ESTIMATORS",
    "Estimate",
    "Estimator",
    "Interval",
    "LiveTensor",
    "PeakMoment",
    "Target",
    "Verdict",
    "estimate",
    "load_interval",
]


class _CallableRoom(ModuleType):
    """`oomcast.estimate` is the name of this room and of the function that users call: both work."""

    def __call__(self, *args: Any, **kwargs: Any) -> Estimate:
        return estimate(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableRoom
