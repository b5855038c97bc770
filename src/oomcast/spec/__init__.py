"""What is to be estimated, declared once: the job, the place where it runs, what the answer may cost."""

from __future__ import annotations

from .job import Job, JobKind
from .optimizers import (
    DEFAULT_OPTIMIZER,
    OPTIMIZER_KINDS,
    OPTIMIZERS,
    VARIANTS,
    OptimizerKind,
    missing_optimizer,
    split_optimizer,
)
from .options import Flag, Kind, Option, Text, as_plain, option, options_of, read_description, takes_options
from .parallel import DataParallel, Machines, Parallel, PipelineSchedule, read_machines
from .place import Effort, Place
from .script import COMPILING_MAY_TAKE, SCRIPT_TIME_LIMIT, Launch, Script, read_launch
from .spec import DESCRIPTIONS, SCRIPT_DESCRIPTIONS, Spec
from .tuning import QUANTIZATIONS, Adapter, JobPhase, Loading, Objective, TrainingLoop
from .workload import FRAMEWORKS, Precision, Workload, ZeroGrad, parse_input_shape

__all__ = [
    "COMPILING_MAY_TAKE",
    "DEFAULT_OPTIMIZER",
    "DESCRIPTIONS",
    "FRAMEWORKS",
    "OPTIMIZERS",
    "OPTIMIZER_KINDS",
    "QUANTIZATIONS",
    "SCRIPT_DESCRIPTIONS",
    "SCRIPT_TIME_LIMIT",
    "VARIANTS",
    "Adapter",
    "DataParallel",
    "Effort",
    "Flag",
    "Job",
    "JobKind",
    "JobPhase",
    "Kind",
    "Launch",
    "Loading",
    "Machines",
    "Objective",
    "OptimizerKind",
    "Option",
    "Parallel",
    "PipelineSchedule",
    "Place",
    "Precision",
    "Script",
    "Spec",
    "Text",
    "TrainingLoop",
    "Workload",
    "ZeroGrad",
    "as_plain",
    "missing_optimizer",
    "option",
    "options_of",
    "parse_input_shape",
    "read_description",
    "read_launch",
    "read_machines",
    "split_optimizer",
    "takes_options",
]
