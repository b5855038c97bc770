"""`torch.cuda` as code on the virtual GPU sees it: there is one device, the target, and it keeps count."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from oomcast.devices import Gpu

from ._patches import Patches
from ._recorder import Recorder

__all__ = ["MemoryCounters", "install_cuda"]


class MemoryCounters(Protocol):
    """Answers the memory questions of `torch.cuda`, from what was recorded so far."""

    def allocated(self) -> int: ...
    def reserved(self) -> int: ...
    def peak_allocated(self) -> int: ...
    def peak_reserved(self) -> int: ...
    def reset_peaks(self) -> None: ...
    def free_on_device(self) -> int: ...


@dataclass(frozen=True)
class _DeviceProperties:
    """The fields of torch's own device properties that code reads."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    max_threads_per_multi_processor: int
    L2_cache_size: int
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    warp_size: int = 32
    regs_per_multiprocessor: int = 65536
    gcnArchName: str = ""


class _Stream:
    """A stream is only an identity here: what is allocated on it is kept apart by the allocator."""

    _next = 1

    def __init__(self, device: Any = None, priority: int = 0, stream_id: int | None = None, **_: Any) -> None:
        if stream_id is None:
            stream_id, _Stream._next = _Stream._next, _Stream._next + 1
        self.stream_id = stream_id
        self.cuda_stream = stream_id
        self.device = torch.device("cuda", 0)
        self.priority = priority

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)

    def synchronize(self) -> None: ...
    def wait_stream(self, stream: Any) -> None: ...
    def wait_event(self, event: Any) -> None: ...

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def record_event(self, event: Any = None) -> _Event:
        return event or _Event()


class _Event:
    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.cuda_event = 0

    def record(self, stream: Any = None) -> None: ...
    def wait(self, stream: Any = None) -> None: ...
    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        """No time passes on a virtual GPU; code divides by this, so it is not zero."""
        return 1.0


class _DeviceContext(contextlib.ContextDecorator):
    def __init__(self, device: Any) -> None:
        self.idx = 0
        self.prev_idx = 0

    def __enter__(self) -> None: ...
    def __exit__(self, *exc: object) -> None: ...


def install_cuda(patches: Patches, recorder: Recorder, gpu: Gpu, counters: MemoryCounters) -> None:
    """Exchange the functions of `torch.cuda` that code for a GPU calls."""
    major, minor = gpu.compute_capability
    properties = _DeviceProperties(
        name=gpu.driver_name,
        major=major,
        minor=minor,
        total_memory=gpu.total_memory,
        multi_processor_count=gpu.multiprocessors,
        max_threads_per_multi_processor=gpu.max_threads_per_multiprocessor,
        L2_cache_size=gpu.l2_cache,
    )
    default_stream = _Stream(stream_id=0)
    current = [default_stream]

    @contextlib.contextmanager
    def stream_context(stream: Any) -> Iterator[None]:
        if stream is None:
            yield
            return
        current.append(stream)
        with recorder.on_stream(stream.stream_id):
            try:
                yield
            finally:
                current.pop()

    def set_stream(stream: Any) -> None:
        current[-1] = stream
        recorder.stream = stream.stream_id

    def memory_stats(device: Any = None) -> dict[str, int]:
        return {
            "allocated_bytes.all.current": counters.allocated(),
            "allocated_bytes.all.peak": counters.peak_allocated(),
            "reserved_bytes.all.current": counters.reserved(),
            "reserved_bytes.all.peak": counters.peak_reserved(),
            "active_bytes.all.current": counters.allocated(),
            "active_bytes.all.peak": counters.peak_allocated(),
            "num_alloc_retries": 0,
            "num_ooms": 0,
        }

    def random_state(device: Any = None) -> torch.Tensor:
        return torch.zeros(16, dtype=torch.uint8)

    def constant(value: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: value

    answers: dict[str, Any] = {
        "is_available": constant(True),
        "is_initialized": constant(True),
        "_is_in_bad_fork": constant(False),
        "_lazy_init": constant(None),
        "_lazy_call": constant(None),
        "init": constant(None),
        "device_count": constant(1),
        "current_device": constant(0),
        "set_device": constant(None),
        "device": _DeviceContext,
        "device_of": _DeviceContext,
        "_exchange_device": constant(0),
        "_maybe_exchange_device": constant(0),
        "synchronize": constant(None),
        "ipc_collect": constant(None),
        "get_device_name": constant(gpu.driver_name),
        "get_device_capability": constant((major, minor)),
        "get_device_properties": constant(properties),
        "get_arch_list": constant([f"sm_{major}{minor}"]),
        "is_bf16_supported": constant(major >= 8),
        "is_tf32_supported": constant(major >= 8),
        "can_device_access_peer": constant(False),
        "memory_allocated": lambda device=None: counters.allocated(),
        "max_memory_allocated": lambda device=None: counters.peak_allocated(),
        "memory_reserved": lambda device=None: counters.reserved(),
        "max_memory_reserved": lambda device=None: counters.peak_reserved(),
        "reset_peak_memory_stats": lambda device=None: counters.reset_peaks(),
        "reset_max_memory_allocated": lambda device=None: counters.reset_peaks(),
        "reset_accumulated_memory_stats": constant(None),
        "memory_stats": memory_stats,
        "memory_summary": constant("virtual GPU"),
        "mem_get_info": lambda device=None: (counters.free_on_device(), gpu.total_memory),
        "empty_cache": lambda: recorder.ledger.empty_cache(),
        "manual_seed": constant(None),
        "manual_seed_all": constant(None),
        "seed": constant(None),
        "seed_all": constant(None),
        "initial_seed": constant(0),
        "get_rng_state": random_state,
        "get_rng_state_all": lambda: [random_state()],
        "set_rng_state": constant(None),
        "set_rng_state_all": constant(None),
        "Stream": _Stream,
        "Event": _Event,
        "stream": stream_context,
        "set_stream": set_stream,
        "current_stream": lambda device=None: current[-1],
        "is_current_stream_capturing": constant(False),
        "default_stream": constant(default_stream),
    }
    for name, answer in answers.items():
        patches.set(torch.cuda, name, answer)
    for name in ("empty_cache", "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved",
                 "memory_stats", "mem_get_info", "reset_peak_memory_stats"):  # fmt: skip
        patches.set(torch.cuda.memory, name, answers[name])
    for name in ("get_rng_state", "set_rng_state", "manual_seed", "manual_seed_all"):
        patches.set(torch.cuda.random, name, answers[name])
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        patches.set(accelerator, "is_available", constant(True))
        patches.set(accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
        patches.set(accelerator, "device_count", constant(1))
        patches.set(accelerator, "synchronize", constant(None))
        patches.set(accelerator, "current_device_index", constant(0))
        patches.set(accelerator, "current_stream", lambda device=None: current[-1])
        patches.set(accelerator, "set_stream", set_stream)
    patches.set(torch.backends.cudnn, "is_available", constant(True))
    patches.set(torch.backends.cudnn, "is_acceptable", lambda tensor: tensor.is_cuda)
    patches.set(torch.backends.cudnn, "version", constant(92000))
    patches.set(torch.version, "cuda", "13.0")
