"""From a job's name to its functions: one file per library."""

from __future__ import annotations

from .loaded import LoadedJob, learns_from, loss_of, run_model
from .resolve import layers_of_job, load_job

__all__ = ["LoadedJob", "layers_of_job", "learns_from", "load_job", "loss_of", "run_model"]
