"""Cases and results by hand."""

from __future__ import annotations

from lab.accuracy import Case, Measure, Result
from lab.accuracy.features import Features
from lab.accuracy.running import Timed
from lab.accuracy.simulators import Prediction
from oomcast.spec import Workload
from oomcast.units import MiB

FEATURES = Features(parameters=1000, parameter_bytes=4000, outputs=500, kept=2000, operator_peak=3000)


def make_case(
    row: int, family: str, measured: int | None, *, ran: bool = True, campaign: str = "one", batch_size: int = 4
) -> Case:
    return Case(
        data="made",
        campaign=campaign,
        row=str(row),
        family=family,
        workload=Workload.create("zoo:mlp", batch_size=batch_size),
        gpu="a100-40gb",
        stack="torch-2.8-cu128",
        measure=Measure.DEVICE_TOTAL,
        measured=measured,
        ran=ran,
    )


def make_result(
    case: Case,
    reserved: int,
    context: int = 500 * MiB,
    fits: bool = True,
    *,
    workspace: int = 0,
    cache: int = 0,
    unsupported: int = 0,
    features: Features = FEATURES,
) -> Result:
    prediction = Prediction(
        allocated=reserved,
        reserved=reserved,
        context=context,
        fits=fits,
        workspace=workspace,
        cache=cache,
        largest="activation",
        unsupported=unsupported,
        least_reserved=reserved,
        most_reserved=reserved,
    )
    return Result(case, features, {"no-workspace": Timed(prediction, 0.5)}, capture_seconds=1.0)
