"""`contributed/`: a folder of measured runs that people have packed with `oomcast contribute` and given away.

Their Traces are in the files, so they judge what comes after a capture: allocator, workspaces, contexts, interval.
"""

from __future__ import annotations

from pathlib import Path

from oomcast.errors import OomcastError
from oomcast.estimation import Contribution, read_contribution
from oomcast.spec import Job, JobKind, Workload

from .cases import Case, CaseSet, Measure, Skipped

__all__ = ["read_contributed"]

NAME = "contributed"


def read_contributed(folder: Path) -> CaseSet:
    cases: list[Case] = []
    skipped = []
    for path in sorted(folder.glob("*.json")):
        try:
            cases.append(_case(path, read_contribution(path)))
        except OomcastError as error:
            skipped.append(Skipped(path.name, str(error)))
    return CaseSet(NAME, tuple(cases), tuple(skipped))


def _case(path: Path, run: Contribution) -> Case:
    job = Job.parse(run.model) if run.model else Job(JobKind.OBJECT, run.family)
    measure, measured = Measure.DEVICE_TOTAL, run.device_total
    if run.ran and measured is None:
        measure, measured = Measure.RESERVED, run.reserved
    return Case(
        data=NAME,
        campaign=f"{run.device} {run.environment}",
        row=path.stem,
        family=run.family,
        workload=Workload(job, batch_size=run.options.get("batch_size", 1)),
        gpu=run.device,
        stack=run.environment,
        measure=measure,
        measured=measured,
        ran=run.ran,
        cudnn_benchmark=run.cudnn_benchmark,
        alloc_conf=run.alloc_conf,
        rank=run.rank,
        packed=path,
    )
