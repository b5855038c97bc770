"""Which library a job comes from."""

from __future__ import annotations

from functools import partial

from oomcast import zoo
from oomcast.workload import JobKind, Workload

from ._file import from_functions, load_file
from ._hf import load_hf
from ._loaded import LoadedJob, call_batch
from ._vision import load_timm, load_torchvision

__all__ = ["load_job"]


def load_job(workload: Workload) -> LoadedJob:
    """The functions of the workload's job, with its sizes bound. The user's file runs here."""
    job = workload.job
    if job.kind is JobKind.FILE:
        return load_file(job.name, workload)
    if job.kind is JobKind.OBJECT:
        return from_functions(job.target, job.name, workload)
    if job.kind is JobKind.TIMM:
        return load_timm(job.name, workload)
    if job.kind is JobKind.TORCHVISION:
        return load_torchvision(job.name, workload)
    if job.kind is JobKind.HF:
        return load_hf(job.name, workload)
    entry = zoo.find(job.name).load()
    batch = partial(call_batch, entry.batch, workload.batch_size, workload.input_shape, workload.seq_len)
    return LoadedJob(entry.model, batch, entry.loss)
