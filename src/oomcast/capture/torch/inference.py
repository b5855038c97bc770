"""What a model does when it is not trained: a forward pass, an evaluation, or generation with a KV cache."""

from __future__ import annotations

from typing import Any

import torch

from ...spec import JobPhase, Workload
from ...trace import Category, Phase
from .generation import generate
from .jobs import LoadedJob, run_model
from .keras_training import is_keras_model, run_keras
from .machine import VirtualGpu
from .training import AUTOCAST, build_model, compile_blocks, compile_model, on_device, put_on_gpu

__all__ = ["run_inference"]


def run_inference(virtual: VirtualGpu, job: LoadedJob, workload: Workload) -> None:
    """Build the model, move it to the GPU, and let it work without gradients."""
    built = build_model(virtual, job, workload)
    if is_keras_model(built):
        run_keras(virtual, built, job, workload)
        return
    model = put_on_gpu(virtual, built, workload).eval()
    compile_blocks(model, workload)
    model = compile_model(model, workload)
    autocast = AUTOCAST.get(workload.precision)
    with torch.no_grad(), torch.autocast("cuda", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
        if workload.phase is JobPhase.GENERATE:
            virtual.enter(Phase.INPUT, 0)
            generate(virtual, model, on_device(job.batch(), torch.device("cuda"), workload), workload)
            virtual.job_ends()
            return
        batches, kept = job.batches(), list[Any]()
        for step in range(workload.steps):
            virtual.enter(Phase.INPUT, step)
            batch = next(batches)
            batch = on_device(batch, torch.device("cuda"), workload)
            if workload.phase is JobPhase.INFERENCE and isinstance(batch, dict):
                batch.pop("labels", None)
            virtual.label(batch, Category.INPUT)
            virtual.enter(Phase.EVALUATION, step)
            if workload.phase is JobPhase.EVAL and job.loss is not None:
                result = job.loss(model, batch)
            else:
                result = run_model(model, batch)
            kept[:] = [result]  # until the next one takes its place
    virtual.job_ends()
