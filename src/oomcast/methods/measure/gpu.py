"""What NVIDIA's driver tells of GPUs: through NVML where its Python package is installed, else through nvidia-smi."""

from __future__ import annotations

import contextlib
import csv
import functools
import importlib
import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from ...devices import find_gpu, other_variants
from ...errors import BadInput, UnknownName

__all__ = ["Gpu", "GpuReader", "NvidiaSmi", "Nvml", "find_reader", "gpu_for", "known_reader", "visible_gpus"]


_ANY = ("cuda", "gpu")


@dataclass(frozen=True)
class Gpu:
    """One device as the driver names it. `uuid` also serves as a value of CUDA_VISIBLE_DEVICES."""

    index: int
    uuid: str
    name: str
    memory: int


class GpuReader(Protocol):
    """A source of figures about this machine's GPUs."""

    @property
    def driver(self) -> str: ...

    def gpus(self) -> tuple[Gpu, ...]: ...

    def used(self, gpu: Gpu) -> int | None:
        """Bytes in use on the device by everyone."""

    def held_by(self, gpu: Gpu, pids: Iterable[int]) -> int | None:
        """Bytes that the given processes hold, context included; None where the driver does not know them."""


class Nvml:
    """NVML by the package nvidia-ml-py."""

    def __init__(self, library: Any) -> None:
        self._library = library
        library.nvmlInit()
        self._handles: dict[str, Any] = {}

    @property
    def driver(self) -> str:
        return _text(self._library.nvmlSystemGetDriverVersion())

    def gpus(self) -> tuple[Gpu, ...]:
        gpus = []
        for index in range(self._library.nvmlDeviceGetCount()):
            handle = self._library.nvmlDeviceGetHandleByIndex(index)
            gpu = Gpu(
                index=index,
                uuid=_text(self._library.nvmlDeviceGetUUID(handle)),
                name=_text(self._library.nvmlDeviceGetName(handle)),
                memory=int(self._library.nvmlDeviceGetMemoryInfo(handle).total),
            )
            self._handles[gpu.uuid] = handle
            gpus.append(gpu)
        return tuple(gpus)

    def used(self, gpu: Gpu) -> int | None:
        try:
            return int(self._library.nvmlDeviceGetMemoryInfo(self._handle(gpu)).used)
        except self._library.NVMLError:
            return None

    def held_by(self, gpu: Gpu, pids: Iterable[int]) -> int | None:
        wanted = set(pids)
        try:
            processes = self._library.nvmlDeviceGetComputeRunningProcesses(self._handle(gpu))
        except self._library.NVMLError:
            return None
        # In a container the driver speaks of pids that are not ours, and under WDDM it gives no figure.
        known = [p.usedGpuMemory for p in processes if p.pid in wanted and p.usedGpuMemory is not None]
        return sum(known) if known else None

    def _handle(self, gpu: Gpu) -> Any:
        if gpu.uuid not in self._handles:
            self.gpus()
        return self._handles[gpu.uuid]


class NvidiaSmi:
    """The same from the program that comes with the driver; each look takes tens of milliseconds."""

    def __init__(self, program: str = "nvidia-smi") -> None:
        self._program = program

    @property
    def driver(self) -> str:
        rows = self._ask("--query-gpu=driver_version")
        return rows[0][0] if rows else ""

    def gpus(self) -> tuple[Gpu, ...]:
        rows = self._ask("--query-gpu=index,uuid,name,memory.total")
        return tuple(Gpu(int(index), uuid, name, _mebibytes(memory) or 0) for index, uuid, name, memory in rows)

    def used(self, gpu: Gpu) -> int | None:
        rows = self._ask("--query-gpu=memory.used", f"--id={gpu.uuid}")
        return _mebibytes(rows[0][0]) if rows else None

    def held_by(self, gpu: Gpu, pids: Iterable[int]) -> int | None:
        wanted = {str(pid) for pid in pids}
        rows = self._ask("--query-compute-apps=pid,used_memory", f"--id={gpu.uuid}")
        known = [held for pid, text in rows if pid in wanted and (held := _mebibytes(text)) is not None]
        return sum(known) if known else None

    def _ask(self, *options: str) -> list[list[str]]:
        command = [self._program, *options, "--format=csv,noheader,nounits"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            return []
        rows = [[cell.strip() for cell in row] for row in csv.reader(answer.splitlines()) if row]
        return [row for row in rows if len(row) == options[0].count(",") + 1]


def find_reader() -> GpuReader | None:
    """The best source on this machine, None where there is no NVIDIA GPU or driver."""
    with contextlib.suppress(Exception):  # the package may be absent, or installed without a driver
        reader: GpuReader = Nvml(importlib.import_module("pynvml"))
        if reader.gpus():
            return reader
    program = NvidiaSmi()
    return program if program.gpus() else None


@functools.cache
def known_reader() -> GpuReader | None:
    """`find_reader`, asked once: drivers do not come and go while a campaign runs."""
    return find_reader()


def visible_gpus(reader: GpuReader, variables: dict[str, str] | os._Environ[str] = os.environ) -> tuple[Gpu, ...]:
    """The GPUs that CUDA would see, in its order."""
    gpus = reader.gpus()
    text = variables.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return gpus
    chosen = []
    for part in (part.strip() for part in text.split(",")):
        # CUDA itself stops at the first entry that names no device.
        match = [g for g in gpus if (part == str(g.index)) or (part.startswith("GPU-") and g.uuid.startswith(part))]
        if len(match) != 1:
            break
        chosen.append(match[0])
    return tuple(chosen)


def gpu_for(device: str, gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """The GPUs that are what a case's `device` names (a name of the catalogue; `cuda` for any); none is an error."""
    present = tuple(gpus)
    fitting = tuple(gpu for gpu in present if _is_a(device, gpu))
    if not fitting:
        there = ", ".join(sorted({gpu.name for gpu in present})) or "no GPU"
        raise BadInput(f"the campaign measures on {device!r}, but this machine has {there}.")
    return fitting


def _is_a(device: str, gpu: Gpu) -> bool:
    if device in _ANY:
        return True
    wanted = find_gpu(device)
    try:
        like = (find_gpu(gpu.name), *other_variants(gpu.name))
    except UnknownName:
        return False
    # Some cards of one name come with different memory.
    return wanted in like and abs(gpu.memory / wanted.total_memory - 1) < 0.1


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _mebibytes(text: str) -> int | None:
    return int(float(text)) << 20 if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else None
