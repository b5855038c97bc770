"""A measured run with all that is needed to estimate it: the unit of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from oomcast.estimation import Target
from oomcast.spec import Effort, Job, JobKind, Place, Script, Spec, Workload

__all__ = ["MOMENTS", "Case", "CaseSet", "Measure", "Skipped"]


TIME_LIMIT = 900.0
"""Seconds for the capture of one case."""


class Measure(str, Enum):
    """What was read from the GPU."""

    DEVICE_TOTAL = "nvidia-smi"
    ALLOCATED = "max_memory_allocated"
    RESERVED = "max_memory_reserved"
    STATES = "memory_allocated after backward"
    FORWARD_KEPT = "memory_allocated after forward, less that before it"
    PEAK_ABOVE_STATES = "max_memory_allocated of a step, less memory_allocated after its backward"
    BOUNDARY = "fits or oom"
    """Only whether it ran."""


MOMENTS = (Measure.STATES, Measure.FORWARD_KEPT, Measure.PEAK_ABOVE_STATES)
"""Read at moments of a step, the last one that is followed; the others are the peaks of a whole run."""


@dataclass(frozen=True)
class Case:
    """One row of a truth file."""

    data: str
    """Name of the data set."""
    campaign: str
    """One machine and one software stack: rows that share what a process holds beside its tensors."""
    row: str
    """Where to find it in its file."""
    family: str
    """Models that resemble each other; never judged by something fitted on their own family."""
    workload: Workload
    gpu: str
    stack: str
    measure: Measure
    measured: int | None
    """Bytes; None where only the boundary is known."""
    ran: bool
    """Whether it fitted into the GPU."""
    cudnn_benchmark: bool = False
    alloc_conf: str | None = None
    """What the run's launcher says in PYTORCH_CUDA_ALLOC_CONF."""
    more_context: int = 0
    """Bytes that each process of the campaign holds beyond what its stack's catalogue says."""
    notes: str = ""
    script: Script | None = None
    """For a run that is a training script: its command line."""
    rank: int | None = None
    """Of several GPUs, the one whose figure was published; none: every rank holds the same."""
    packed: Path | None = None
    """For a run that somebody packed with its Trace: the file."""

    @classmethod
    def of_script(cls, script: Script, **facts: Any) -> Case:
        return cls(workload=Workload(Job(JobKind.SCRIPT, script.name)), script=script, **facts)

    def __post_init__(self) -> None:
        if (self.measured is None) != (self.measure is Measure.BOUNDARY or not self.ran):
            raise ValueError(f"{self.name}: a run has a figure where it ended well, and only there")

    @property
    def name(self) -> str:
        return f"{self.data} {self.row}"

    @property
    def spec(self) -> Spec:
        """The question that the product is asked; what a user has calibrated on this machine does not count."""
        place = Place(
            self.gpu,
            self.stack,
            cudnn_benchmark=self.cudnn_benchmark,
            use_calibration=False,
            rank=self.rank,
            alloc_conf=self.alloc_conf,
        )
        return Spec(self.workload, place, Effort(time_limit=TIME_LIMIT), self.script)

    @property
    def target(self) -> Target:
        return Target.of(self.spec.place)


@dataclass(frozen=True)
class Skipped:
    """A row that cannot be rebuilt or judged."""

    row: str
    reason: str


@dataclass(frozen=True)
class CaseSet:
    """All of one truth file."""

    name: str
    cases: tuple[Case, ...]
    skipped: tuple[Skipped, ...] = ()
