"""Runs one case and makes a Measurement of what became of it, however it ended."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import BadInput
from ...units import format_bytes
from .environment import environment_of, facts_of
from .gpu import Gpu, GpuReader, gpu_for, known_reader, visible_gpus
from .measurement import CaseSpec, Limits, Measurement, Outcome
from .processes import available_memory
from .watch import Watched, watch

__all__ = ["STEADY_MALLOC", "Conditions", "measure_case", "usable_memory"]

_OUT_OF_MEMORY_WORDS = ("bad_alloc", "can't allocate memory", "Cannot allocate memory", "out of memory", "MemoryError")
STEADY_MALLOC: Mapping[str, str] = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
"""For `Conditions.variables`: glibc then gives every tensor its own pages and takes them back at once. Repeated runs
differ by a thousandth instead of some hundredths, and the peak is that of live tensors, without the heap's holes."""
_SPARED = 0.9
"""The part of the free memory that a case without a limit of its own may fill."""


@dataclass(frozen=True)
class Conditions:
    """What is the same for every case of a campaign."""

    limits: Limits = field(default_factory=Limits)
    threads: int = 1
    """Fixed, since every thread brings memory of its own: stacks, arenas, the buffers of its kernels."""
    interpreters: Mapping[str, str] = field(default_factory=dict)
    """The Python for a framework; without an entry, the one that runs oomcast."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Set in the environment of each case, over what oomcast sets."""

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise BadInput(f"the number of threads of a case must be at least 1, not {self.threads!r}.")

    def interpreter(self, framework: str) -> str:
        return self.interpreters.get(framework, sys.executable)


def measure_case(
    case: CaseSpec,
    conditions: Conditions | None = None,
    *,
    cancel: threading.Event | None = None,
    gpu: Gpu | None = None,
    reader: GpuReader | None = None,
    marker: str | None = None,
    observe: Callable[[int], None] | None = None,
) -> Measurement:
    """Run `case` in a fresh process and say what it held. Whatever the case does, a Measurement comes back.

    `gpu` fixes the device; else the first that is what the case names. `cancel` ends it early (`Cancelled`).
    `marker` is a random text by which processes that the case leaves behind are known; `observe` is told the resident
    bytes while it runs.
    """
    conditions = conditions or Conditions()
    limits = conditions.limits
    on_gpu = case.device != "cpu"
    if on_gpu:
        reader = reader or known_reader()
        gpu = gpu or _choose_gpu(case.device, reader)
    else:
        reader = gpu = None
    interpreter = conditions.interpreter(case.framework)
    variables = _variables(conditions, gpu)
    host_bytes = limits.bytes if limits.bytes is not None else usable_memory()
    watched = watch(
        case.source,
        Limits(limits.seconds, host_bytes),
        interpreter=interpreter,
        variables=variables,
        device_bytes=_device_look(reader, gpu),
        cancel=cancel,
        marker=marker,
        observe=observe,
    )
    report = _Report.read(watched.report)
    outcome, message = _outcome(watched, report, limits.seconds, host_bytes)
    counters = _counters(watched, report.counters)
    return Measurement(
        case=case,
        outcome=outcome,
        peak_bytes=_device_peak(watched, counters) if on_gpu else counters["host_total"],
        seconds=round(watched.seconds, 4),
        environment=environment_of(
            case.framework,
            report.environment or _facts_from_outside(case.framework, interpreter),
            variables,
            threads=conditions.threads,
            gpu=gpu.name if gpu is not None else "",
            driver=reader.driver if reader is not None else "",
        ),
        timeline=watched.timeline,
        counters=counters,
        message=message,
    )


def _facts_from_outside(framework: str, interpreter: str) -> Mapping[str, Any]:
    """A case that was killed could not tell where it ran."""
    try:
        return facts_of(framework, interpreter)
    except BadInput:
        return {}


def usable_memory() -> int:
    """Bytes that cases without a limit of their own may fill now."""
    return int(available_memory() * _SPARED)


def _variables(conditions: Conditions, gpu: Gpu | None) -> dict[str, str]:
    threads = str(conditions.threads)
    fixed = {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "KERAS_BACKEND": "tensorflow",
        "PYTHONHASHSEED": "0",
    }
    if gpu is None:
        fixed["CUDA_VISIBLE_DEVICES"] = ""
    else:
        # Without growth TensorFlow takes the whole device and every figure is the same.
        fixed |= {"CUDA_VISIBLE_DEVICES": gpu.uuid, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return {**os.environ, **fixed, **conditions.variables}


def _choose_gpu(device: str, reader: GpuReader | None) -> Gpu:
    return gpu_for(device, visible_gpus(reader) if reader is not None else ())[0]


def _device_look(reader: GpuReader | None, gpu: Gpu | None) -> Callable[[tuple[int, ...]], int | None] | None:
    if reader is None or gpu is None:
        return None
    before = reader.used(gpu)

    def look(pids: tuple[int, ...]) -> int | None:
        held = reader.held_by(gpu, pids)
        if held is not None or before is None:
            return held
        # In a container the driver does not know our pids; the case has the device to itself, so what came is its own.
        used = reader.used(gpu)
        return None if used is None else max(0, used - before)

    return look


@dataclass(frozen=True)
class _Report:
    """The worker's word, checked: the case runs in the same process and could have written it."""

    outcome: Outcome | None = None
    message: str = ""
    counters: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, report: Mapping[str, Any] | None) -> _Report:
        try:
            assert report is not None
            counters = {
                str(name): value
                for name, value in report["counters"].items()
                if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62
            }
            environment = report["environment"]
            return cls(
                outcome=Outcome(report["outcome"]),
                message=_storable(str(report["message"])[:1000]),
                counters=counters,
                environment=environment if isinstance(environment, dict) else {},
            )
        except (AssertionError, KeyError, TypeError, ValueError, AttributeError):
            return cls()


def _outcome(watched: Watched, report: _Report, seconds: float, host_bytes: int) -> tuple[Outcome, str]:
    if watched.stopped_for == "time":
        return Outcome.TIMEOUT, f"ended after its time limit of {seconds:g} s."
    if watched.stopped_for == "memory":
        return Outcome.OOM, f"ended when it held more than its limit of {format_bytes(host_bytes)}."
    if report.outcome is not None:
        return report.outcome, report.message
    last = _last_words(watched.log)
    if watched.exit_code == -signal.SIGKILL:
        if watched.kernel_killed:
            return Outcome.OOM, "killed by the kernel, which had run out of memory."
        return Outcome.CRASH, "killed by SIGKILL from outside."
    if any(word in watched.log for word in _OUT_OF_MEMORY_WORDS):
        return Outcome.OOM, f"ended without a report: {last}"
    if watched.exit_code < 0:
        return Outcome.CRASH, f"ended by {_signal_name(-watched.exit_code)}{': ' + last if last else '.'}"
    sentence = f"left with exit code {watched.exit_code} before its end"
    return Outcome.CRASH, f"{sentence}: {last}" if last else f"{sentence}."


def _counters(watched: Watched, reported: Mapping[str, int]) -> dict[str, int]:
    counters = {**reported, "host_peak": watched.host_peak, "host_exact": int(watched.exact)}
    if watched.family_peak:
        counters["family_peak"] = watched.family_peak
    if watched.device_peak is not None:
        counters["device_sampled_peak"] = watched.device_peak
    if watched.device_at_end is not None:
        counters["device_at_end"] = watched.device_at_end
    counters["host_total"] = max(watched.host_peak, watched.family_peak)
    return counters


def _device_peak(watched: Watched, counters: Mapping[str, int]) -> int:
    """What the device showed at most. Samples can miss a moment; torch's own peak, beside what the device holds for
    the process outside torch's allocator (which only grows), cannot."""
    peaks = [watched.device_peak or 0]
    reserved = counters.get("cuda_peak_reserved")
    at_end, reserved_at_end = watched.device_at_end, counters.get("cuda_reserved_at_end")
    if reserved is not None:
        outside = max(0, at_end - reserved_at_end) if at_end is not None and reserved_at_end is not None else 0
        peaks.append(reserved + outside)
    peaks.append(counters.get("tensorflow_peak", 0))
    return max(peaks)


def _storable(text: str) -> str:
    """Without what databases refuse: lone surrogates and NUL."""
    return text.encode("utf-8", errors="replace").decode().replace("\0", "")


def _last_words(log: str) -> str:
    """The last line that says something; C++ prints its reason before it aborts."""
    lines = [" ".join("".join(c if c.isprintable() else " " for c in line).split()) for line in log.splitlines()]
    lines = [line for line in lines if line]
    telling = [line for line in lines if "rror" in line or "what()" in line]
    return (telling or lines or [""])[-1][:300]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
