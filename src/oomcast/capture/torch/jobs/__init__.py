"""From a job's name to its functions: one file per library."""

from ._loaded import LoadedJob
from ._resolve import load_job

__all__ = ["LoadedJob", "load_job"]
