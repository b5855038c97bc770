"""From a job's name to its functions: one file per library."""

from ._loaded import LoadedJob, loss_of, run_model
from ._resolve import load_job

__all__ = ["LoadedJob", "load_job", "loss_of", "run_model"]
