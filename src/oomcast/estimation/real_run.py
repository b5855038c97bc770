"""One real run of a job on this machine's GPU, in a fresh process, read from torch and from the driver."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..children import module_command
from ..devices import default_stack
from ..errors import BadInput, JobFailed, OomcastError
from ..spec import JobKind, Spec
from ..units import MiB
from .readings import Reading, check_gpu

if TYPE_CHECKING:
    from .target import Target

__all__ = ["Ask", "ask_nvidia_smi", "memory_of_gpus", "memory_of_process", "reading_of", "run_on_this_gpu"]

# -------- What the driver says that processes hold on its GPUs: NVML where its package is installed, else nvidia-smi


Ask = Callable[[str], "str | None"]
"""From an option of nvidia-smi to what it prints; None where it cannot answer."""


def ask_nvidia_smi(query: str) -> str | None:
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def memory_of_process(pid: int, ask: Ask = ask_nvidia_smi, nvml: Any = None) -> int | None:
    """Bytes of that process on the GPU it uses. None where no one tells: in containers the driver knows other ids."""
    by_nvml = _by_nvml(pid, nvml if nvml is not None else _nvml())
    if by_nvml is not None:
        return by_nvml
    rows = _rows(ask("--query-compute-apps=pid,used_memory"))
    held = [int(used) * MiB for process, used in rows if process == str(pid) and used.isdigit()]
    return max(held, default=None)


def memory_of_gpus(ask: Ask = ask_nvidia_smi) -> Mapping[str, int]:
    """Bytes in use on each GPU, by its UUID."""
    return {uuid: int(used) * MiB for uuid, used in _rows(ask("--query-gpu=uuid,memory.used")) if used.isdigit()}


def _rows(answer: str | None) -> list[tuple[str, str]]:
    parts = [[cell.strip() for cell in line.split(",")] for line in (answer or "").splitlines()]
    return [(row[0], row[1]) for row in parts if len(row) == 2]


def _nvml() -> Any:
    try:
        import pynvml  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return None
    return pynvml


def _by_nvml(pid: int, nvml: Any) -> int | None:
    if nvml is None:
        return None
    try:
        nvml.nvmlInit()
        try:
            held = [
                process.usedGpuMemory
                for number in range(nvml.nvmlDeviceGetCount())
                for process in nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(number))
                if process.pid == pid and process.usedGpuMemory
            ]
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError:
        return None
    return max(held, default=None)


_INSTEAD = "run it where the GPU is, or give what was measured there by --nvidia-smi, --snapshot or --memory-stats"


def run_on_this_gpu(spec: Spec, target: Target, ask: Ask = ask_nvidia_smi) -> Reading:
    """Train for real and read what was held. Raises BadInput where this machine cannot, and says what to give."""
    job, limit, alloc_conf = spec.workload.job, spec.effort.time_limit, spec.place.alloc_conf
    if job.kind is JobKind.OBJECT:
        raise BadInput("a job that is an object cannot go to a fresh process; give --run a job file or a name.")
    settings = {"PYTORCH_CUDA_ALLOC_CONF": alloc_conf} if alloc_conf else {}
    before = memory_of_gpus(ask)
    try:
        done = subprocess.run(
            module_command("oomcast.estimation.real_run_worker"),
            input=json.dumps(spec.as_dict()).encode(),
            capture_output=True,
            timeout=limit,
            env={**os.environ, **settings},
        )
    except subprocess.TimeoutExpired:
        raise JobFailed(
            f"{job.reference} did not finish within {limit:g} s on the GPU; "
            "if it only needs longer, raise the limit with --time-limit."
        ) from None
    try:
        held = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.decode(errors="replace").strip().splitlines()
        raise OomcastError(
            f"the real run ended without a figure (exit code {done.returncode}): {last[-1][:300] if last else ''}"
        ) from None
    return reading_of(held, target, before)


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
    if own.first_version != target.stack.first_version:
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
