"""From a PyTorch job to its Trace, in this process."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable

import torch

from ...devices import find_gpu, stack_of
from ...errors import BadInput
from ...spec import JobPhase, Spec
from ...trace import Trace
from .inference import run_inference
from .jobs import load_job
from .machine import virtual_gpu
from .training import run_training

__all__ = ["capture_here"]


def capture_here(spec: Spec) -> Trace:
    """The Trace of a job, captured in this process; of one rank, where the place has several GPUs."""
    workload, machines = spec.workload, spec.place.machines
    _check_ranks(spec)
    with warnings.catch_warnings(), contextlib.ExitStack() as contexts:
        warnings.simplefilter("ignore")
        stack = stack_of(spec.place.environment, "torch")
        virtual = contexts.enter_context(virtual_gpu(find_gpu(machines.gpu), stack))
        spread = None
        if workload.parallel is not None:
            from .distributed import Spread, World, join_world

            world = World(machines.world_size, spec.place.rank or 0, machines.gpus_per_node)
            contexts.enter_context(join_world(virtual, world))
            spread = Spread(workload.parallel, world, workload.precision, virtual.ledger.assume)
        if workload.phase is JobPhase.TRAINING:
            run_training(virtual, load_job(workload), workload, spread)
        elif spread is not None:
            raise BadInput(f"--phase {workload.phase.value} is followed on one GPU only; leave --parallel out.")
        else:
            run_inference(virtual, load_job(workload), workload)
        _tell_settings(spec, virtual.ledger.assume)
        return virtual.trace(workload.as_dict())


def _check_ranks(spec: Spec) -> None:
    """One capture follows one rank: whoever asks for it must have said which, where they differ."""
    parallel, machines = spec.workload.parallel, spec.place.machines
    if machines.world_size > 1 and parallel is None:
        raise BadInput(
            f"{spec.place.device.strip()} is several GPUs, but {spec.workload.job.reference} does not say how it uses "
            "them; add --parallel ddp, fsdp2, zero3, tp=2, …"
        )
    if parallel is not None and parallel.pipeline > 1 and spec.place.rank is None:
        raise BadInput(f"the stages of {parallel} differ; name one with --rank, or ask oomcast estimate for all.")


def _tell_settings(spec: Spec, tell: Callable[[str], None]) -> None:
    """What the job has set for its process and what follows the place alone: the place does not know of it."""
    if torch.backends.cudnn.benchmark and not spec.place.cudnn_benchmark:
        tell("the job sets torch.backends.cudnn.benchmark, whose trial runs are not counted: add --cudnn-benchmark")
    conf = os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF")
    if conf and conf != spec.place.alloc_conf:
        tell(f"PYTORCH_CUDA_ALLOC_CONF is {conf!r} in the job's process and is not followed: say it by --alloc-conf")
