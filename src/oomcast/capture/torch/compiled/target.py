"""What compiled code is made for, and what Inductor asks about it while a graph is lowered.

On the virtual GPU `torch.cuda` answers already. Beneath it, Inductor asks torch's device interface and whether Triton
is there: kernels are written as Triton source, and never built here, so Triton itself is not needed.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch._dynamo.device_interface import CudaInterface
from torch._inductor import select_algorithm
from torch._inductor.fx_passes import joint_graph, pad_mm, post_grad, pre_grad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ....devices import Gpu
from ..patches import Patches
from .convolutions import leave_layouts_as_on
from .defaults import as_followed, plan_as_followed
from .shortcuts import answer_once, leave_kernels_out

__all__ = ["Target"]


@dataclass(frozen=True)
class _Properties:
    """The fields of CUDA's device properties that Inductor's choices depend on."""

    name: str
    major: int
    minor: int
    multi_processor_count: int
    total_memory: int
    regs_per_multiprocessor: int
    max_threads_per_multi_processor: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    clock_rate: int
    max_threads_per_block: int = 1024
    warp_size: int = 32
    shared_memory_per_block: int = 49152
    uuid: str = "00000000-0000-0000-0000-000000000000"
    gcnArchName: str = ""
    is_integrated: int = 0


def _properties(gpu: Gpu) -> _Properties:
    major, minor = gpu.compute_capability
    return _Properties(
        name=gpu.driver_name,
        major=major,
        minor=minor,
        multi_processor_count=gpu.multiprocessors,
        total_memory=gpu.total_memory,
        regs_per_multiprocessor=gpu.registers_per_multiprocessor,
        max_threads_per_multi_processor=gpu.max_threads_per_multiprocessor,
        shared_memory_per_block_optin=gpu.shared_memory_per_block_optin,
        # A block may have all of a multiprocessor's but what the driver keeps of it (CUDA's programming guide, 16.x).
        shared_memory_per_multiprocessor=gpu.shared_memory_per_block_optin + gpu.reserved_shared_memory_per_block,
        L2_cache_size=gpu.l2_cache,
        clock_rate=gpu.sm_clock_khz,
    )


@dataclass(frozen=True)
class Target:
    """What compiled code is made for: a GPU, or the host, where Inductor's own figures can be had."""

    gpu: Gpu | None
    tell: Callable[[str], None] = field(compare=False)
    """Called with what Inductor would have measured on the GPU, and what is taken instead."""

    @property
    def device_type(self) -> str:
        return "cpu" if self.gpu is None else "cuda"

    def compiling(self) -> AbstractContextManager[None]:
        """Inductor compiles for the target meanwhile."""
        return _compiling_for_host() if self.gpu is None else _compiling_for(self.gpu, self.tell)


@contextlib.contextmanager
def _compiling_for_host() -> Iterator[None]:
    with Patches() as patches:
        answer_once(patches)
        _make_patterns_on_host(patches)
        yield


@contextlib.contextmanager
def _compiling_for(gpu: Gpu, tell: Callable[[str], None]) -> Iterator[None]:
    """With Triton at hand where it supports the GPU."""
    properties = _properties(gpu)
    capability = gpu.compute_capability
    has_triton = capability >= (7, 0)  # torch/utils/_triton.py: older GPUs have none
    with as_followed(), Patches() as patches:
        for owner in (CudaInterface, CudaInterface.Worker):
            patches.set(owner, "get_device_properties", staticmethod(lambda device=None: properties))
            patches.set(owner, "current_device", staticmethod(lambda: 0))
        patches.set(
            CudaInterface,
            "get_compute_capability",
            staticmethod(lambda device=None: 10 * capability[0] + capability[1]),
        )
        patches.set(CudaInterface, "is_triton_capable", staticmethod(lambda device=None: has_triton))
        patches.set(torch.cuda, "_get_device_properties", lambda device=None: properties)
        patches.set(torch, "tensor", _tensor)
        patches.set(torch.Tensor, "copy_", _copy_to)
        patches.set(torch.Tensor, "__getitem__", _part_of)
        patches.set(torch.Tensor, "__invert__", _inverted)
        patches.set(torch.Tensor, "contiguous", _contiguous)
        answers = {"has_triton": has_triton, "triton_hash_with_backend": ""}
        for module in _asking_modules():
            for name, answer in answers.items():
                if hasattr(module, name):
                    patches.set(module, name, lambda *args, _answer=answer, **kwargs: _answer)
        answer_once(patches)
        leave_kernels_out(patches)
        _replace_measurements(patches, tell)
        leave_layouts_as_on(gpu, patches)
        plan_as_followed(patches)
        _build_no_template(patches)
        _make_patterns_on_host(patches)
        _fold_on_host(patches)
        _forget_answers()
        try:
            yield
        finally:
            _forget_answers()


def _replace_measurements(patches: Patches, tell: Callable[[str], None]) -> None:
    """Inductor times matmuls of awkward sizes with and without padding: nothing can be timed here."""

    def should_pad(match: Any, mat1: Any, mat2: Any, op: Any, input: Any = None) -> bool:
        if pad_mm.can_pad(mat1, mat2, op, input):
            tell("torch.compile: matmuls of sizes that do not fit the GPU's tiles are taken as not padded")
        return False

    patches.set(pad_mm, "should_pad", should_pad)


def _build_no_template(patches: Patches) -> None:
    """Kernels from Inductor's templates (flex attention's) are loaded when they are written, so that they can be timed:
    that needs Triton, and nothing is timed here."""
    unbuilt = SimpleNamespace(__file__="", key="")
    patches.set(select_algorithm, "PyCodeCache", SimpleNamespace(load=lambda *args, **options: unbuilt))


_PATTERNS: tuple[tuple[Any, Any], ...] = tuple(
    (passes, passes.lazy_init) for passes in (pre_grad, joint_graph, post_grad)
)


def _make_patterns_on_host(patches: Patches) -> None:
    """The patterns that Inductor's passes look for are traced with small tensors, which need not be on the GPU.

    torch makes them once for each device that it is told, and refuses to register the same ones for a second: they are
    made once a process, whatever is compiled for.
    """
    for passes, make in _PATTERNS:

        def on_host(*devices: Any, _make: Any = make) -> Any:
            if _make.cache_info().currsize:
                return None
            with Patches() as meanwhile:
                meanwhile.set(torch.cuda, "is_available", lambda: False)
                return _make(*(torch.device("cpu") if isinstance(d, torch.device) else d for d in devices))

        patches.set(passes, "lazy_init", on_host)


class _OnHost(TorchDispatchMode):
    """Real tensors that would be made on the GPU are made on the host."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(_host_for_gpu, (args, kwargs or {}))
        return func(*args, **kwargs)


def _host_for_gpu(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value


def _fold_on_host(patches: Patches) -> None:
    """Constants in a graph are computed when it is compiled, one element of each."""
    folder = joint_graph.UniformValueConstantFolder
    for name in ("_deduce_value", "_add_peephole_patterns"):
        method = vars(folder).get(name)
        if method is not None:

            def on_host(self: Any, *args: Any, _method: Any = method) -> Any:
                with _OnHost():
                    return _method(self, *args)

            patches.set(folder, name, on_host)


_tensor_of = torch.tensor


def _tensor(data: Any, *, device: Any = None, **options: Any) -> torch.Tensor:
    """`torch.tensor` starts CUDA, even for a fake tensor; moving one does not."""
    tensor = _tensor_of(data, **options)
    if device is None or torch.device(device).type != "cuda":
        return tensor if device is None else tensor.to(device)
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device)


def _copy_to(tensor: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """`Tensor.copy_` asks C++ for the device, the operator beneath it does not."""
    copied: torch.Tensor = torch.ops.aten.copy_.default(tensor, source, non_blocking)
    return copied


_as_contiguous = torch.Tensor.contiguous


def _contiguous(tensor: torch.Tensor, memory_format: torch.memory_format = torch.contiguous_format) -> torch.Tensor:
    """`Tensor.contiguous` does as well: fake convolutions of one dimension call it."""
    if tensor.device.type != "cuda":
        return _as_contiguous(tensor, memory_format=memory_format)
    if tensor.is_contiguous(memory_format=memory_format):
        return tensor
    cloned: torch.Tensor = torch.ops.aten.clone.default(tensor, memory_format=memory_format)
    return cloned


_getitem = torch.Tensor.__getitem__
_invert = torch.Tensor.__invert__


def _part_of(tensor: torch.Tensor, index: Any) -> Any:
    """Indexing asks C++ for the device too: the same by operators, as torch itself takes an index apart."""
    if tensor.device.type != "cuda":
        return _getitem(tensor, index)
    parts = index if isinstance(index, tuple) else (index,)
    result, dimension = tensor, 0
    gathered: list[torch.Tensor | None] = []
    for place, part in enumerate(parts):
        if part is Ellipsis:
            dimension = result.dim() - sum(later is not None for later in parts[place + 1 :])
        elif part is None:
            result, dimension = torch.ops.aten.unsqueeze.default(result, dimension), dimension + 1
        elif isinstance(part, slice):
            if part != slice(None):
                result = torch.ops.aten.slice.Tensor(result, dimension, part.start, part.stop, part.step or 1)
            dimension += 1
        elif isinstance(part, torch.Tensor):
            gathered += [None] * (dimension - len(gathered)) + [part]
            dimension += part.dim() if part.dtype in (torch.bool, torch.uint8) else 1
        elif isinstance(part, (int, torch.SymInt)):
            result = torch.ops.aten.select.int(result, dimension, part)
        else:
            return _getitem(tensor, index)
    return torch.ops.aten.index.Tensor(result, gathered) if gathered else result


def _inverted(tensor: torch.Tensor) -> torch.Tensor:
    """`~tensor`, which asks C++ for the device as well."""
    if tensor.device.type != "cuda":
        return _invert(tensor)
    inverted: torch.Tensor = torch.ops.aten.bitwise_not.default(tensor)
    return inverted


def _asking_modules() -> list[Any]:
    """Modules import the questions by name, so each has to be told."""
    return [module for name, module in list(sys.modules.items()) if module is not None and name.startswith(_ASKING)]


_ASKING = ("torch._inductor", "torch.utils._triton", "torch._functorch")
_REMEMBERING = ("torch._inductor.utils", "torch._inductor.runtime.hints", "torch.utils._triton")


def _forget_answers() -> None:
    """What torch remembers of one GPU must not be told of the next one."""
    for name in _REMEMBERING:
        for value in list(vars(sys.modules.get(name, torch.utils)).values()):
            for holder in (value, *(vars(value).values() if isinstance(value, type) else ())):
                clear = getattr(holder, "cache_clear", None) or getattr(
                    getattr(holder, "__func__", None), "cache_clear", None
                )
                if callable(clear):
                    clear()
