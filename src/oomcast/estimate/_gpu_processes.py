"""What the driver says that processes hold on its GPUs: NVML where its package is installed, else nvidia-smi."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from ..units import MiB

__all__ = ["Ask", "ask_nvidia_smi", "memory_of_gpus", "memory_of_process"]

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
