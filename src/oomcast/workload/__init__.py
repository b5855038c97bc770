"""What is to be estimated: the job, and the options that decide its memory."""

from ._job import Job, JobKind
from ._workload import FRAMEWORKS, OPTIMIZERS, Precision, Workload, ZeroGrad, parse_input_shape

__all__ = ["FRAMEWORKS", "OPTIMIZERS", "Job", "JobKind", "Precision", "Workload", "ZeroGrad", "parse_input_shape"]
