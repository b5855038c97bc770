"""The virtual GPU itself: everything that must be in place while code written for CUDA runs without one."""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer as _optimizer
from torch.optim.optimizer import Optimizer
from torch.utils import _foreach_utils
from torch.utils import checkpoint as _checkpoint
from torch.utils._pytree import tree_leaves

from oomcast.devices import Gpu
from oomcast.trace import Category, Phase, Trace

from ._amp import install_amp
from ._cuda import MemoryCounters, install_cuda
from ._devices import HOST
from ._functions import VirtualDevice, shown_device_property
from ._ledger import Ledger
from ._patches import Patches
from ._recorder import Recorder
from ._scope import Scope
from .personality import Personality, Target

__all__ = ["VirtualGpu", "virtual_gpu"]


_CUDNN_VERSION = 92000
_CUDA_VERSION = (13, 0)
"""The libraries that torch 2.12 and 2.13 bring."""


class VirtualGpu:
    """What was recorded so far on the virtual GPU. Phases are found out by themselves; `enter` sets one by hand."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.ledger = Ledger()
        self.scope = Scope()
        self.recorder = Recorder(self.ledger, self.scope, gpu)
        self._models: dict[int, nn.Module] = {}
        self._names: dict[int, str] = {}
        """By the parameter's id; the models are kept, so ids stay theirs."""
        self._in_engine = False
        self._stepped = False

    def trace(self, workload: dict[str, Any] | None = None) -> Trace:
        """The record up to now; it may be asked for again later."""
        self._label_state()
        return self.ledger.trace(_versions(), workload or {})

    # -- phases --------------------------------------------------------------------------------------------------

    def enter(self, phase: Phase, step: int | None = None) -> None:
        """From here on the job is in this phase; it stays there until the next is entered."""
        if step is not None:
            self._stepped = False
        self.ledger.enter(phase, self.ledger.step if step is None else step)

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """Within the autograd engine. A gradient taken inside of a module's forward returns to the forward."""
        before = self.ledger.phase
        nested = self._in_engine or self.scope.inside_module
        self._in_engine, was_in_engine = True, self._in_engine
        self.enter(Phase.BACKWARD)
        try:
            yield
        finally:
            self._in_engine = was_in_engine
            if nested:
                self.enter(before)

    # -- categories ----------------------------------------------------------------------------------------------

    def adopt_model(self, module: nn.Module) -> None:
        """Know a model's parameters and buffers for what they are, now."""
        self._models[id(module)] = module
        self._label_state()

    def saw_model(self, module: nn.Module) -> None:
        """A module's parameters and buffers are known for what they are from its first forward on."""
        self._models.setdefault(id(module), module)
        if not self._in_engine and self.ledger.phase is not Phase.FORWARD:
            step = max(self.ledger.step, 0)
            self.enter(Phase.FORWARD, step + 1 if self._stepped else step)
        self._label_state()

    def stepped(self, optimizer: Optimizer) -> None:
        """After an optimizer's step: the next forward belongs to the next training step."""
        self.label_optimizer(optimizer)
        self._stepped = True

    def label(self, tree: Any, category: Category, name: str = "") -> None:
        """Label every tensor in a nest of containers."""
        for tensor in tree_leaves(tree):
            if isinstance(tensor, torch.Tensor):
                self.recorder.label(tensor, category, name)

    def _label_state(self) -> None:
        with torch._C.DisableTorchFunction():
            for module in self._models.values():
                for name, parameter in module.named_parameters():
                    self._names[id(parameter)] = name
                    self.recorder.label(parameter, Category.PARAMETER, name)
                for name, buffer in module.named_buffers():
                    self.recorder.label(buffer, Category.BUFFER, name)

    def label_gradients(self) -> None:
        with torch._C.DisableTorchFunction():
            for module in self._models.values():
                for name, parameter in module.named_parameters():
                    if parameter.grad is not None:
                        self.recorder.label(parameter.grad, Category.GRADIENT, name)

    def label_optimizer(self, optimizer: Optimizer) -> None:
        with torch._C.DisableTorchFunction():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    name = self._names.get(id(parameter), "")
                    self.recorder.label(parameter, Category.PARAMETER, name)
                    if parameter.grad is not None:
                        self.recorder.label(parameter.grad, Category.GRADIENT, name)
                    self.label(optimizer.state.get(parameter), Category.OPTIMIZER_STATE, name)


class _NoCounters:
    """Used where nobody asks; the public `virtual_gpu` brings counters that simulate the allocator."""

    def allocated(self) -> int:
        return 0

    reserved = peak_allocated = peak_reserved = free_on_device = allocated

    def reset_peaks(self) -> None: ...


@contextlib.contextmanager
def virtual_gpu(gpu: Gpu, counters: Callable[[VirtualGpu], MemoryCounters] | None = None) -> Iterator[VirtualGpu]:
    """Run torch code written for CUDA on a GPU that is not there, and record what it allocates."""
    virtual = VirtualGpu(gpu)
    recorder, scope = virtual.recorder, virtual.scope
    functions = VirtualDevice(recorder)
    target = Target(gpu.compute_capability, _CUDNN_VERSION, _CUDA_VERSION)
    autocast_dtype = torch.get_autocast_dtype("cpu")
    meter: MemoryCounters = counters(virtual) if counters is not None else _NoCounters()
    with contextlib.ExitStack() as stack:
        patches = stack.enter_context(Patches())
        stack.callback(recorder.stop_following)
        stack.callback(torch.set_autocast_dtype, "cpu", autocast_dtype)
        torch.set_autocast_dtype("cpu", torch.float16)
        install_cuda(patches, recorder, gpu, meter)
        install_amp(patches, virtual.ledger)
        patches.set(FakeTensor, "device", shown_device_property())
        _install_parameters(patches, recorder)
        _install_engine(patches, virtual, functions)
        _install_optimizers(patches, stack, virtual)
        _install_checkpoint(patches)
        _install_compiler(patches, virtual)
        scope.on_root.append(virtual.saw_model)
        scope.on_root.append(lambda module: _install_transformers(patches))
        stack.enter_context(scope)
        stack.enter_context(Personality(target))
        stack.enter_context(recorder)
        stack.enter_context(functions)
        yield virtual


def _install_parameters(patches: Patches, recorder: Recorder) -> None:
    """Parameters are fake from birth, on the host too, so that they cost nothing and can move in place."""
    make = nn.Parameter.__new__

    def new_parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        if data is None:
            data = torch.empty(0)
        if type(data) in (torch.Tensor, nn.Parameter) and cls is nn.Parameter:
            with recorder.fake_mode, torch._C.DisableTorchFunction(), torch.no_grad():
                data = torch.empty_strided(data.shape, data.stride(), dtype=data.dtype, device=HOST)
        return make(cls, data, requires_grad)

    patches.set(nn.Parameter, "__new__", staticmethod(new_parameter))

    def apply(module: nn.Module, fn: Any, recurse: bool = True) -> nn.Module:
        if recurse:
            for child in module.children():
                child._apply(fn)
        with torch.no_grad():
            for parameter in module._parameters.values():
                if parameter is not None:
                    _move_in_place(parameter, fn)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = fn(buffer)
        return module

    patches.set(nn.Module, "_apply", apply)
    patches.set(torch, "Generator", _generator_class())


def _move_in_place(parameter: Any, fn: Any) -> None:
    """As on a GPU: the parameter stays the same object, its data is exchanged, and so is its gradient's."""
    gradient = parameter.grad
    moved = fn(parameter)
    if moved is not parameter:
        parameter.data = moved
    if gradient is not None:
        parameter.grad = None
        parameter.grad = fn(gradient)


def _generator_class() -> Any:
    plain = torch.Generator

    class Generator(plain):  # type: ignore[misc, valid-type]
        def __new__(cls, device: Any = "cpu") -> Any:
            return plain.__new__(cls, HOST)  # type: ignore[call-arg]

    return Generator


def _install_engine(patches: Patches, virtual: VirtualGpu, functions: VirtualDevice) -> None:
    """Backward is a phase of its own; Python code called from it (hooks, checkpoints) sees the virtual GPU too."""
    run = torch.autograd.graph._engine_run_backward

    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        with virtual.backward(), functions:
            result = run(*args, **kwargs)
        virtual.label_gradients()
        virtual.scope.forget_nodes()
        return result

    patches.set(torch.autograd, "_engine_run_backward", _engine_run_backward)
    patches.set(torch.autograd.graph, "_engine_run_backward", _engine_run_backward)


def _install_checkpoint(patches: Patches) -> None:
    """Checkpointing compares tensors saved beneath the function mode with ones it looks at above it."""

    def metadata(tensor: torch.Tensor) -> dict[str, Any]:
        return {"shape": tensor.shape, "dtype": tensor.dtype}

    checks = {**_checkpoint._allowed_determinism_checks_to_fns, _checkpoint._DEFAULT_DETERMINISM_MODE: metadata}
    patches.set(_checkpoint, "_allowed_determinism_checks_to_fns", checks)


def _install_compiler(patches: Patches, virtual: VirtualGpu) -> None:
    """Compiled code allocates otherwise than eager code; until that is modelled, it runs eagerly and says so."""

    def note() -> None:
        virtual.ledger.assume("torch.compile was called: the memory of eager execution is taken")

    def compile_nothing(model: Any = None, **options: Any) -> Any:
        note()
        return model if model is not None else lambda function: function

    def compile_in_place(module: nn.Module, *args: Any, **options: Any) -> None:
        note()

    patches.set(torch, "compile", compile_nothing)
    patches.set(nn.Module, "compile", compile_in_place)


def _install_optimizers(patches: Patches, stack: contextlib.ExitStack, virtual: VirtualGpu) -> None:
    """Optimizers choose foreach and fused kernels as on CUDA; their step and zero_grad are phases."""
    patches.set(_foreach_utils, "_foreach_supported_types", [*_foreach_utils._foreach_supported_types, FakeTensor])
    patches.set(_optimizer, "_foreach_supported_types", [*_optimizer._foreach_supported_types, FakeTensor])

    def begin(optimizer: Any, args: Any, kwargs: Any) -> None:
        virtual.label_gradients()
        virtual.enter(Phase.OPTIMIZER)

    def end(optimizer: Any, args: Any, kwargs: Any) -> None:
        virtual.stepped(optimizer)

    for handle in (
        _optimizer.register_optimizer_step_pre_hook(begin),
        _optimizer.register_optimizer_step_post_hook(end),
    ):
        stack.callback(handle.remove)
    zero_grad = Optimizer.zero_grad

    def zero_grad_as_phase(self: Any, set_to_none: bool = True) -> None:
        virtual.enter(Phase.ZERO_GRAD)
        zero_grad(self, set_to_none)

    patches.set(Optimizer, "zero_grad", zero_grad_as_phase)


def _install_transformers(patches: Patches) -> None:
    """transformers takes fake tensors for a tracer's, and then builds masks that it skips in a real run."""
    library = sys.modules.get("transformers.utils.import_utils")
    if library is not None and getattr(library, "is_fake_tensor", _is_never_fake) is not _is_never_fake:
        patches.set(library, "is_fake_tensor", _is_never_fake)


def _is_never_fake(tensor: Any) -> bool:
    return False


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("timm", "torchvision", "transformers", "peft"):
        if package in sys.modules:
            with contextlib.suppress(metadata.PackageNotFoundError):
                versions[package] = metadata.version(package)
    return versions
