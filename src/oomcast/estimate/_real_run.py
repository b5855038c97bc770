"""One real run of a job on this machine's GPU, in a fresh process, read from torch and from the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..devices import default_stack
from ..errors import BadInput, JobFailed, OomcastError
from ..workload import JobKind, Workload
from ._gpu_processes import Ask, ask_nvidia_smi, memory_of_gpus
from ._readings import Reading, check_gpu

if TYPE_CHECKING:
    from ._estimators import Target

__all__ = ["reading_of", "run_on_this_gpu"]

_INSTEAD = "run it where the GPU is, or give what was measured there by --nvidia-smi, --snapshot or --memory-stats"


def run_on_this_gpu(workload: Workload, target: Target, alloc_conf: str | None, ask: Ask = ask_nvidia_smi) -> Reading:
    """Train for real and read what was held. Raises BadInput where this machine cannot, and says what to give."""
    if workload.job.kind is JobKind.OBJECT:
        raise BadInput("a job that is an object cannot go to a fresh process; give --run a job file or a name.")
    settings = {"PYTORCH_CUDA_ALLOC_CONF": alloc_conf} if alloc_conf else {}
    before = memory_of_gpus(ask)
    request = {"workload": workload.as_dict(), "cudnn_benchmark": target.cudnn_benchmark}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "oomcast.estimate.real_run_worker"],
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=target.time_limit,
            env={**os.environ, **settings},
        )
    except subprocess.TimeoutExpired:
        raise JobFailed(
            f"{workload.job.reference} did not finish within {target.time_limit:g} s on the GPU; "
            "if it only needs longer, raise the limit with --time-limit."
        ) from None
    try:
        told = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.decode(errors="replace").strip().splitlines()
        raise OomcastError(
            f"the real run ended without a figure (exit code {done.returncode}): {last[-1][:300] if last else ''}"
        ) from None
    return reading_of(told, target, before)


def reading_of(told: dict[str, Any], target: Target, before: Mapping[str, int]) -> Reading:
    """From the worker's answer; `before` is what each GPU held before it started."""
    problem = told.get("error")
    if problem == "no GPU":
        raise BadInput(f"no GPU was found on this machine (torch.cuda.is_available() is false); {_INSTEAD}.")
    if problem == "no torch":
        raise BadInput(f"torch is not installed here, so that no job can run; {_INSTEAD}.")
    if problem == "out of memory":
        raise BadInput("the real run was out of memory; calibrate with a smaller batch.")
    if problem is not None:
        raise JobFailed(f"the real run failed: {problem}", told.get("traceback", ""))
    check_gpu(target.gpu, told["device_name"], told["total_memory"], "this machine's run")
    own = default_stack(told["torch"])
    if own.torch_from != target.stack.torch_from:
        raise BadInput(
            f"the run had torch {told['torch']}, which is the environment {own.name}, not {target.stack.name}; "
            f"give --environment {own.name}, or none."
        )
    held = told["process_memory"]
    if held is None:
        held = _growth(before, told)
    if held is None:
        raise BadInput(
            "the driver does not tell what the process held on the GPU (is nvidia-smi there?); "
            "give what nvidia-smi shows by --nvidia-smi, or torch's counters by --memory-stats."
        )
    # At the end the cache may be smaller than it was at its peak; the rest of the process is what it was.
    total = held - told["reserved_at_end"] + told["max_reserved"]
    return Reading("run", device_total=total, reserved=told["max_reserved"], allocated=told["max_allocated"])


def _growth(before: Mapping[str, int], told: dict[str, Any]) -> int | None:
    """What the GPU holds more than before the run, where no one else used it meanwhile."""
    after: dict[str, int] = told["gpus"]
    uuid = told["uuid"] if told["uuid"] in after else next(iter(after), None) if len(after) == 1 else None
    return after[uuid] - before[uuid] if uuid is not None and uuid in before else None
