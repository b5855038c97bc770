"""`torch.cuda` as code on the virtual GPU sees it: the target is there, answers for itself, and keeps count."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ...devices import Gpu
from ...trace import Category
from .devices import DEVICES
from .graphs import graph_classes
from .patches import Patches
from .personality import Platform
from .recorder import Recorder
from .streams import event_class, stream_class

__all__ = ["MemoryCounters", "install_cuda"]


class MemoryCounters(Protocol):
    """Answers the memory questions of `torch.cuda`, from what was recorded so far."""

    def allocated(self) -> int: ...
    def reserved(self) -> int: ...
    def peak_allocated(self) -> int: ...
    def peak_reserved(self) -> int: ...
    def reset_peaks(self) -> None: ...
    def free_on_device(self) -> int: ...
    def segments(self) -> list[dict[str, Any]]:
        """As `torch.cuda.memory_snapshot` tells them."""
        ...


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
    uuid: str = "00000000-0000-0000-0000-000000000000"
    pci_bus_id: int = 0
    pci_device_id: int = 0
    shared_memory_per_block: int = 49152


class _DeviceContext(contextlib.ContextDecorator):
    """`torch.cuda.device`, also `device_of` a tensor."""

    def __init__(self, device: Any) -> None:
        self.idx = DEVICES.index(device.device if isinstance(device, torch.Tensor) else device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx, DEVICES.current = DEVICES.current, self.idx

    def __exit__(self, *exc: object) -> None:
        DEVICES.current = self.prev_idx


class _StreamContext:
    """`torch.cuda.stream`."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *exc: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*exc)


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def _of_device(value: Any) -> Callable[..., Any]:
    """The same answer for every GPU that is there."""

    def answer(device: Any = None) -> Any:
        DEVICES.index(device)
        return value

    return answer


def install_cuda(patches: Patches, recorder: Recorder, gpu: Gpu, platform: Platform, counters: MemoryCounters) -> None:
    """Exchange the functions of `torch.cuda` and `torch.accelerator` that code for a GPU calls."""
    memory = _memory_answers(recorder, gpu, counters)
    streams = _stream_answers(recorder)
    random = _random_answers()
    answers = {**_device_answers(gpu), **_sensor_answers(gpu), **memory, **streams, **random}
    _set_all(patches, torch.cuda, answers)
    _set_all(patches, torch.cuda.memory, memory)
    _set_all(patches, torch.cuda.random, random)
    _set_all(patches, torch.cuda.streams, {name: streams[name] for name in ("Stream", "Event", "ExternalStream")})
    _install_graphs(patches, recorder)
    _install_accelerator(patches, memory, streams)
    _install_quiet_calls(patches)
    _install_copies(patches)
    # Generic streams and events are only made for the accelerator, which is this one.
    patches.set(torch, "Stream", streams["Stream"])
    patches.set(torch, "Event", streams["Event"])
    patches.set(torch._C, "_get_accelerator", lambda *args, **kwargs: torch.device("cuda"))
    patches.set(torch._C, "_cuda_getCurrentRawStream", lambda device: recorder.stream)
    patches.set(torch._C, "_host_emptyCache", _constant(None))
    patches.set(torch._C, "_cuda_getDeviceCount", lambda: DEVICES.count)
    patches.set(torch.backends.cudnn, "is_available", _constant(True))
    patches.set(torch.backends.cudnn, "is_acceptable", lambda tensor: tensor.is_cuda)
    # Recurrent layers ask in their own way whether torch was built with cuDNN: their weights come into one buffer then.
    patches.set(torch, "_use_cudnn_rnn_flatten_weight", _constant(True))
    # By its name: as an attribute, torch 2.9 has something else there until it is first imported.
    cudnn_rnn = importlib.import_module("torch.backends.cudnn.rnn")
    patches.set(cudnn_rnn, "get_cudnn_mode", _RECURRENT_MODES.__getitem__)
    patches.set(torch.backends.cudnn, "version", _constant(platform.cudnn))
    patches.set(torch.backends.cuda, "is_built", _constant(True))
    patches.set(torch.version, "cuda", platform.cuda_text)


def _set_all(patches: Patches, owner: Any, answers: Mapping[str, Any]) -> None:
    """Those that this version of torch has, and those that only its CUDA builds have."""
    for name, answer in answers.items():
        if owner is torch.cuda or hasattr(owner, name):
            patches.set(owner, name, answer)


def _device_answers(gpu: Gpu) -> dict[str, Any]:
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

    def set_device(device: Any) -> None:
        DEVICES.choose(device)

    def init() -> None:
        DEVICES.choose()

    def exchange_device(device: int) -> int:
        before = DEVICES.current
        if device >= 0:
            DEVICES.current = DEVICES.checked(device)
        return before

    return {
        "is_available": _constant(True),
        "is_initialized": lambda: DEVICES.is_started,
        "_is_compiled": _constant(True),
        "_is_in_bad_fork": _constant(False),
        "_lazy_init": init,
        "_lazy_call": _constant(None),
        "init": init,
        "device_count": lambda: DEVICES.count,
        "current_device": DEVICES.choose,
        "set_device": set_device,
        "device": _DeviceContext,
        "device_of": _DeviceContext,
        "_exchange_device": exchange_device,
        "_maybe_exchange_device": exchange_device,
        "ipc_collect": _constant(None),
        "get_device_name": _of_device(gpu.driver_name),
        "get_device_capability": _of_device((major, minor)),
        "get_device_properties": _of_device(properties),
        "get_arch_list": _constant([f"sm_{major}{minor}"]),
        "get_gencode_flags": _constant(f"-gencode compute=compute_{major}{minor},code=sm_{major}{minor}"),
        "is_bf16_supported": _constant(major >= 8),
        "is_tf32_supported": _constant(major >= 8),
        "can_device_access_peer": _constant(False),
        "current_blas_handle": _constant(1),
        "current_solver_handle": _constant(1),
        "set_sync_debug_mode": _constant(None),
        "get_sync_debug_mode": _constant(0),
        "cudart": _constant(_CudaRuntime()),
        "check_error": _constant(None),
        "_sleep": _constant(None),
    }


class _CudaRuntime:
    """`torch.cuda.cudart()`: whatever is called succeeds and does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _constant(0)


def _sensor_answers(gpu: Gpu) -> dict[str, Any]:
    """What NVML reports of a card that does nothing."""
    return {
        "utilization": _of_device(0),
        "memory_usage": _of_device(0),
        "temperature": _of_device(40),
        "power_draw": _of_device(0),
        "clock_rate": _of_device(0),
        "list_gpu_processes": _of_device("no processes are running"),
    }


def _memory_answers(recorder: Recorder, gpu: Gpu, counters: MemoryCounters) -> dict[str, Any]:
    own_blocks: dict[int, int] = {}

    def memory_stats(device: Any = None) -> dict[str, int]:
        allocated, peak = counters.allocated(), counters.peak_allocated()
        reserved, peak_reserved = counters.reserved(), counters.peak_reserved()
        stats = {"num_alloc_retries": 0, "num_ooms": 0, "num_device_alloc": 0, "num_device_free": 0}
        for kind, now, highest in (
            ("allocated_bytes", allocated, peak),
            ("active_bytes", allocated, peak),
            ("requested_bytes", allocated, peak),
            ("reserved_bytes", reserved, peak_reserved),
            ("inactive_split_bytes", reserved - allocated, peak_reserved - peak),
        ):
            stats[f"{kind}.all.current"], stats[f"{kind}.all.peak"] = now, highest
        return stats

    def set_fraction(share: float, device: Any = None) -> None:
        if not isinstance(share, float):
            raise TypeError("Invalid type for fraction argument, must be `float`")
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"Invalid fraction value: {share}. Allowed range: 0~1")
        recorder.job_settings.memory_fraction = share

    def take(size: int, device: Any = None, stream: Any = None) -> int:
        block = recorder.ledger.allocate(size, Category.TEMPORARY, "caching_allocator_alloc", "", "", (size,), "uint8")
        address = (len(own_blocks) + 1) << 9
        if block is not None:
            own_blocks[address] = block
        return address

    def give_back(address: int) -> None:
        block = own_blocks.pop(address, None)
        if block is not None:
            recorder.ledger.free(block)

    def empty_cache() -> None:
        recorder.streams.synchronize()
        recorder.streams.reuse()
        recorder.ledger.empty_cache()

    def dump_snapshot(*args: Any, **kwargs: Any) -> None:
        recorder.ledger.assume("a memory snapshot that the job dumps was not written; `oomcast estimate` can make one")

    return {
        "memory_allocated": lambda device=None: counters.allocated(),
        "max_memory_allocated": lambda device=None: counters.peak_allocated(),
        "memory_reserved": lambda device=None: counters.reserved(),
        "max_memory_reserved": lambda device=None: counters.peak_reserved(),
        "memory_cached": lambda device=None: counters.reserved(),
        "max_memory_cached": lambda device=None: counters.peak_reserved(),
        "reset_peak_memory_stats": lambda device=None: counters.reset_peaks(),
        "reset_max_memory_allocated": lambda device=None: counters.reset_peaks(),
        "reset_max_memory_cached": lambda device=None: counters.reset_peaks(),
        "reset_accumulated_memory_stats": _constant(None),
        "memory_stats": memory_stats,
        "memory_summary": _constant("virtual GPU"),
        "memory_snapshot": lambda mempool_id=None: counters.segments(),
        "mem_get_info": lambda device=None: (counters.free_on_device(), gpu.total_memory),
        "device_memory_used": lambda device=None: gpu.total_memory - counters.free_on_device(),
        "empty_cache": empty_cache,
        "set_per_process_memory_fraction": set_fraction,
        "get_per_process_memory_fraction": lambda device=None: recorder.job_settings.memory_fraction,
        "_set_allocator_settings": recorder.job_settings.set_allocator,
        "get_allocator_backend": _constant("native"),
        "caching_allocator_alloc": take,
        "caching_allocator_delete": give_back,
        "caching_allocator_enable": _constant(None),
        "host_memory_stats": dict,
        "reset_peak_host_memory_stats": _constant(None),
        "reset_accumulated_host_memory_stats": _constant(None),
        "_record_memory_history": _constant(None),
        "_snapshot": lambda device=None: {"segments": counters.segments(), "device_traces": [[]]},
        "_dump_snapshot": dump_snapshot,
    }


def _stream_answers(recorder: Recorder) -> dict[str, Any]:
    table = recorder.streams
    stream_type = stream_class(table)
    default_stream = stream_type(stream_id=0)
    table.push(default_stream)

    def synchronize(device: Any = None) -> None:
        table.synchronize()

    def external(pointer: int = 0, device: Any = None, **_: Any) -> Any:
        """A stream that another library made: known by its address."""
        return stream_type(device, stream_id=pointer)

    return {
        "Stream": stream_type,
        "ExternalStream": external,
        "get_stream_from_external": external,
        "Event": event_class(table),
        "stream": _StreamContext,
        "StreamContext": _StreamContext,
        "set_stream": table.set_current,
        "current_stream": lambda device=None: table.current(),
        "default_stream": _constant(default_stream),
        "is_current_stream_capturing": _constant(False),
        "synchronize": synchronize,
    }


def _random_answers() -> dict[str, Any]:
    def state(device: Any = None) -> torch.Tensor:
        return torch.zeros(16, dtype=torch.uint8)

    nothing = ("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all")
    return {
        **{name: _constant(None) for name in nothing},
        "initial_seed": _constant(0),
        "get_rng_state": state,
        "get_rng_state_all": lambda: [state() for _ in range(DEVICES.count)],
    }


_RECURRENT_MODES = {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}
"""cuDNN's `cudnnRNNMode_t`, which builds of torch without cuDNN do not know."""


def _install_graphs(patches: Patches, recorder: Recorder) -> None:
    for name, answer in graph_classes(recorder).items():
        for module in (torch.cuda, torch.cuda.graphs, torch.cuda.memory):
            if module is torch.cuda or hasattr(module, name):
                patches.set(module, name, answer)
    patches.set(torch.cuda.graphs.graph, "default_capture_stream", None)


def _install_accelerator(patches: Patches, memory: dict[str, Any], streams: dict[str, Any]) -> None:
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:
        return

    def set_device_index(device: Any) -> None:
        DEVICES.choose(device)

    answers = {
        "is_available": _constant(True),
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "device_count": lambda: DEVICES.count,
        "current_device_index": DEVICES.choose,
        "current_device_idx": DEVICES.choose,
        "set_device_index": set_device_index,
        "set_device_idx": set_device_index,
        "device_index": _DeviceContext,
        **{name: streams[name] for name in ("current_stream", "set_stream", "synchronize")},
    }
    asked = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats",
             "reset_peak_memory_stats", "reset_accumulated_memory_stats", "empty_cache")  # fmt: skip
    answers.update((name, memory[name]) for name in asked)
    answers["get_memory_info"] = memory["mem_get_info"]
    for owner in (accelerator, getattr(accelerator, "memory", None)):
        for name, answer in answers.items():
            if owner is not None and hasattr(owner, name):
                patches.set(owner, name, answer)


def _install_copies(patches: Patches) -> None:
    """Between GPUs, as DataParallel asks for them; to the GPU where a tensor is already, it is that tensor."""

    def scatter(tensor: Any, devices: Any, chunk_sizes: Any = None, dim: int = 0, streams: Any = None) -> Any:
        parts = tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(devices), dim)
        return tuple(part.to(torch.device("cuda", device)) for part, device in zip(parts, devices, strict=False))

    def gather(tensors: Any, dim: int = 0, destination: Any = None) -> Any:
        place = torch.device("cuda", destination) if destination is None or destination >= 0 else torch.device("cpu")
        return torch.cat([tensor.to(place) for tensor in tensors], dim)

    def broadcast(tensor: Any, devices: Any) -> Any:
        return tuple(tensor.to(torch.device("cuda", device)) for device in devices)

    def broadcast_coalesced(tensors: Any, devices: Any, buffer_size: int = 0) -> Any:
        return tuple(tuple(tensor.to(torch.device("cuda", device)) for tensor in tensors) for device in devices)

    answers = {"_scatter": scatter, "_gather": gather, "_broadcast": broadcast}
    for name, answer in {**answers, "_broadcast_coalesced": broadcast_coalesced}.items():
        patches.set(torch._C, name, answer)


def _install_quiet_calls(patches: Patches) -> None:
    """Notes for profilers: they cost no memory."""
    for name in ("range_push", "range_pop", "range_start", "mark", "_device_range_start"):
        if hasattr(torch.cuda.nvtx, name):
            patches.set(torch.cuda.nvtx, name, _constant(0))
    for name in ("range_end", "_device_range_end"):
        if hasattr(torch.cuda.nvtx, name):
            patches.set(torch.cuda.nvtx, name, _constant(None))
    for name in ("start", "stop", "init"):
        if hasattr(torch.cuda.profiler, name):
            patches.set(torch.cuda.profiler, name, _constant(None))
