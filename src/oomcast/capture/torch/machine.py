"""The virtual GPU itself: everything that must be in place while code written for CUDA runs without one.

Which GPU and which versions of torch, CUDA and cuDNN it follows is given by a `Gpu` and a `Stack`. The Python code of
torch and of the libraries on it is the installed one; where the versions that are followed made a difference, or where
it is known that a library of their time did, the Trace says so as an assumption.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer as _optimizer
from torch.optim.optimizer import Optimizer
from torch.utils import _foreach_utils
from torch.utils import checkpoint as _checkpoint
from torch.utils._pytree import tree_leaves

from ...devices import Gpu, Stack
from ...errors import BadInput
from ...spec import Place
from ...trace import Category, Moment, Phase, Trace, TraceBuilder
from ..collector import collector_as_before, let_collector_rest
from .amp import install_amp
from .answers import is_never_fake
from .compiled import CompiledRegions
from .cuda import MemoryCounters, install_cuda
from .devices import DEVICES
from .extensions import extensions_refused
from .functions import VirtualDevice, shown_device_property, tolist, translates
from .host import install_host, leave_in_forks
from .job_settings import sentences_about
from .later_dynamo import loading_dynamo_within
from .libraries import forget_tensors, install_libraries, load_in_turn
from .native_files import install_native_files
from .parameters import FakeParameter, install_parameters
from .patches import Patches
from .personality import Personality, Platform, before
from .personality.flex import let_flex_attention_run
from .recorder import Recorder
from .saving import install_saving
from .scope import COMPILED_PREFIX, Scope
from .software import assumptions_about_versions, library_versions, predicts_tokens
from .spellings import install_spellings
from .stand_ins import stand_ins
from .tracing import install_tracing
from .vision_operators import prepare_torchvision

if TYPE_CHECKING:
    from ...estimation import Estimate

__all__ = ["VirtualGpu", "virtual_gpu"]


class VirtualGpu:
    """What was recorded so far on the virtual GPU. Phases are found out by themselves; `enter` sets one by hand."""

    def __init__(self, gpu: Gpu, stack: Stack) -> None:
        self.gpu = gpu
        self.stack = stack
        self.personality = Personality(Platform.of(gpu, stack))
        self.ledger = TraceBuilder()
        self.scope = Scope()
        self.recorder = Recorder(self.ledger, self.scope, gpu)
        self._models: weakref.WeakValueDictionary[int, nn.Module] = weakref.WeakValueDictionary()
        """Those that ran, by their id. A model that the job drops must go: its memory is free from then on."""
        self._predicted_tokens = False
        """Whether one of them was a language model of transformers, also if it is gone."""
        self._names: dict[int, str] = {}
        """By the parameter's id, as the models that are there were labelled last."""
        self._trained: weakref.WeakValueDictionary[int, nn.Module] = weakref.WeakValueDictionary()
        """Those of them that ran in training mode."""
        self.job_settings = self.recorder.job_settings
        self.compiled: CompiledRegions
        self._in_engine = False
        self._computes_loss = False
        self._stepped = False
        self.nothing_new = False
        """Set while a script's steps are made up: every tensor has its label already."""
        self.on_step: list[Callable[[Optimizer | None], None]] = []
        """Called after each step of an optimizer; with None where a script updated its parameters by hand."""
        self.on_backward: list[Callable[[], None]] = []
        """Called after each outermost backward."""

    @property
    def torch_version(self) -> tuple[int, int]:
        """Of the torch that is followed, which need not be the installed one."""
        return self.stack.version

    def trace(self, workload: dict[str, Any] | None = None, *, whole_process: bool = False) -> Trace:
        """The record up to now; it may be asked for again later.

        With `whole_process`, settings that hold in this process count as the job's, even if it has not made them.
        """
        self._label_state()
        trace = self.ledger.trace(library_versions(), workload or {})
        about_versions = assumptions_about_versions(self.personality, trace, predicted_tokens=self._predicted_tokens)
        settings = self.job_settings.in_force() if whole_process else self.job_settings.changed()
        compiled = self.compiled.findings.sentences(trace)
        told = (*trace.assumptions, *about_versions, *sentences_about(settings), *compiled)
        groups = self.recorder.groups.communicators()
        return dataclasses.replace(trace, assumptions=told, settings=settings, communicators=groups)

    def estimate(self) -> Estimate:
        """What was recorded so far as `oomcast.estimate` would answer it, for this GPU and its software.

        cuDNN's benchmark mode, the allocator's settings and cuBLAS's are those that hold in this process.
        """
        # By name: estimates are made of what is captured, so their room stands above this one.
        estimation = importlib.import_module("oomcast.estimation")
        place = Place(device=self.gpu.name, environment=self.stack.environment)
        target = estimation.Target.of(place, "torch", gpu=self.gpu)
        trace = self.trace({"job": "this process"}, whole_process=True)
        answer: Estimate = estimation.estimate_trace(trace, target)
        return answer

    def job_ends(self) -> None:
        """All that belongs to the record has happened. What the job still lets go by itself is in it, too; what only
        the collector would find is not, since it may come at any time or never."""
        let_collector_rest()  # until this virtual GPU is left

    def moment(self) -> Moment:
        """How far the record has come."""
        return self.ledger.moment()

    def goes_on_as_since(self, moment: Moment, times: int) -> bool:
        """Write down what happened since then so many times more, where it would happen again just so; False where
        that cannot be told: compiled code has a state of its own, and what is sized by values may differ each time."""
        if self.compiled.is_used or self.ledger.reads_data:
            return False
        return self.ledger.repeat_since(moment, times)

    # -- phases --------------------------------------------------------------------------------------------------

    def enter(self, phase: Phase, step: int | None = None) -> None:
        """From here on the job is in this phase; it stays there until the next is entered."""
        if step is not None:
            self._stepped = False
        self.ledger.enter(phase, self.ledger.step if step is None else step)

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """Within the autograd engine. A gradient taken inside of a module's forward returns to the forward.

        AOTAutograd takes gradients when it traces a forward: the job itself has not come to its backward.
        """
        if self.compiled.findings.is_compiling:
            yield
            return
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
        if not nested:
            for call in self.on_backward:
                call()

    # -- categories ----------------------------------------------------------------------------------------------

    def adopt_model(self, module: nn.Module) -> None:
        """Know a model's parameters and buffers for what they are, now."""
        self._know(module)
        self._label_state()

    def _know(self, module: nn.Module) -> None:
        if id(module) not in self._models:
            self._models[id(module)] = module
            self._predicted_tokens = self._predicted_tokens or predicts_tokens(module)

    @contextlib.contextmanager
    def loss(self) -> Iterator[None]:
        """While our own loop computes a loss: what runs without gradients then is no evaluation."""
        self._computes_loss = True
        try:
            yield
        finally:
            self._computes_loss = False

    def saw_model(self, module: nn.Module) -> None:
        """A module's parameters and buffers are known for what they are from its first forward on."""
        self._know(module)
        with_gradients = torch.is_grad_enabled()
        if with_gradients and module.training:
            self._trained[id(module)] = module
        if self._computes_loss and not with_gradients:
            pass  # a teacher, a reference, a frozen encoder: a part of the training step
        elif not with_gradients or (not module.training and id(module) in self._trained):
            # A model that was trained and is in `eval()` now is evaluated, though nobody turned gradients off.
            if not self._in_engine and self.ledger.phase not in (Phase.PREFILL, Phase.DECODE):
                self.enter(Phase.GENERATION if _is_generating() else Phase.EVALUATION)
        else:
            self.goes_forward()
        self._label_state()

    def goes_forward(self) -> None:
        """What is computed now is differentiated later, unless it is computed again within a backward."""
        if not self._in_engine and self.ledger.phase is not Phase.FORWARD:
            step = max(self.ledger.step, 0)
            self.enter(Phase.FORWARD, step + 1 if self._stepped else step)

    def stepped(self, optimizer: Optimizer) -> None:
        """After an optimizer's step: the next forward belongs to the next training step."""
        self.label_optimizer(optimizer)
        self._stepped = True
        for call in self.on_step:
            call(optimizer)

    def updated(self, target: Any) -> None:
        """Something was written to after a backward: if that is a parameter, the script is its own optimizer."""
        if self._in_engine:
            return
        for tensor in target if isinstance(target, (tuple, list)) else (target,):
            if self.recorder.category_of(tensor) is Category.PARAMETER:
                self.enter(Phase.OPTIMIZER)
                self._stepped = True
                for call in self.on_step:
                    call(None)
                return

    def label(self, tree: Any, category: Category, name: str = "") -> None:
        """Label every tensor in a nest of containers."""
        for tensor in tree_leaves(tree):
            if isinstance(tensor, torch.Tensor):
                self.recorder.label(tensor, category, name)

    def _label_state(self) -> None:
        if self.nothing_new:
            return
        with torch._C.DisableTorchFunction():
            for module in list(self._models.values()):
                for name, parameter in module.named_parameters():
                    name = name.replace(COMPILED_PREFIX, "")
                    self._names[id(parameter)] = name
                    self.recorder.label(parameter, Category.PARAMETER, name)
                for name, buffer in module.named_buffers():
                    self.recorder.label(buffer, Category.BUFFER, name)

    def label_gradients(self) -> None:
        if self.nothing_new:
            return
        with torch._C.DisableTorchFunction():
            for module in list(self._models.values()):
                for name, parameter in module.named_parameters():
                    if parameter.grad is not None:
                        self.recorder.label(parameter.grad, Category.GRADIENT, name.replace(COMPILED_PREFIX, ""))

    def label_optimizer(self, optimizer: Optimizer) -> None:
        if self.nothing_new:
            return
        with torch._C.DisableTorchFunction():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    name = self._names.get(id(parameter), "")
                    self.recorder.label(parameter, Category.PARAMETER, name)
                    if parameter.grad is not None:
                        self.recorder.label(parameter.grad, Category.GRADIENT, name)
                    self.label(optimizer.state.get(parameter), Category.OPTIMIZER_STATE, name)


class _PlainCounters:
    """Bytes as they were asked for; the public `virtual_gpu` brings counters that simulate the allocator."""

    def __init__(self, virtual: VirtualGpu) -> None:
        self._ledger = virtual.ledger
        self._memory = virtual.gpu.usable_memory

    def allocated(self) -> int:
        return self._ledger.held

    reserved = peak_allocated = peak_reserved = allocated

    def free_on_device(self) -> int:
        return max(self._memory - self._ledger.held, 0)

    def segments(self) -> list[dict[str, Any]]:
        return []

    def reset_peaks(self) -> None: ...


_in_use = threading.Lock()
"""Held while torch is patched: what a second virtual GPU puts back would be the first one's patches."""


@contextlib.contextmanager
def virtual_gpu(
    gpu: Gpu, stack: Stack, *, counters: Callable[[VirtualGpu], MemoryCounters] | None = None, devices: int = 1
) -> Iterator[VirtualGpu]:
    """Run torch code written for CUDA on a GPU that is not there, as under that software; record what it allocates.

    `devices` says how many such GPUs the code sees; to name one beyond them is the error that CUDA gives.

    There is one at a time in a process: torch itself is patched meanwhile. Raises BadInput for a second one.
    """
    if not _in_use.acquire(blocking=False):
        raise BadInput(
            "a virtual GPU is in use in this process already, here or in another thread; leave it first, or use a "
            "process of its own for the second."
        )
    with contextlib.ExitStack() as contexts:
        contexts.callback(_in_use.release)
        contexts.enter_context(collector_as_before())
        contexts.enter_context(DEVICES.visible(devices))
        virtual = VirtualGpu(gpu, stack)
        recorder, scope = virtual.recorder, virtual.scope
        functions, patches = VirtualDevice(recorder), Patches()
        virtual.compiled = CompiledRegions(patches, virtual, functions)
        # Once torch is itself again: what was compiled on this GPU is of no use to the next one.
        contexts.callback(virtual.compiled.close)
        contexts.callback(forget_tensors)
        autocast_dtype = torch.get_autocast_dtype("cpu")
        meter: MemoryCounters = counters(virtual) if counters is not None else _PlainCounters(virtual)
        contexts.enter_context(patches)
        contexts.enter_context(loading_dynamo_within(patches.suspended))
        contexts.callback(recorder.stop_following)
        recorder.on_write_after_backward = virtual.updated
        contexts.callback(torch.set_autocast_dtype, "cpu", autocast_dtype)
        torch.set_autocast_dtype("cpu", torch.float16)
        prepare_torchvision()
        install_cuda(patches, recorder, gpu, virtual.personality.platform, meter)
        install_amp(patches, virtual.ledger)
        install_saving(patches, virtual.ledger)
        install_host(patches, contexts, recorder)
        patches.set(FakeTensor, "device", shown_device_property())
        patches.set(FakeTensor, "tolist", lambda tensor: tolist(recorder, tensor))
        install_parameters(patches, recorder)
        contexts.enter_context(install_spellings(patches, functions))
        _install_engine(patches, virtual, functions)
        _install_optimizers(patches, contexts, virtual)
        _install_checkpoint(patches)
        _install_saved_tensors_hooks(patches, functions)
        _install_compiler(patches, virtual.compiled)
        install_tracing(patches, virtual.ledger.assume)
        load_in_turn(patches)
        scope.on_root.append(virtual.saw_model)
        scope.on_root.append(lambda module: _install_late(patches, virtual))
        contexts.enter_context(scope)
        contexts.enter_context(stand_ins(virtual.ledger.assume))
        contexts.enter_context(extensions_refused(patches, virtual.ledger.assume, scope.user_line))
        contexts.enter_context(virtual.personality)
        contexts.enter_context(recorder)
        contexts.enter_context(functions)
        with leave_in_forks(contexts, recorder, functions):
            yield virtual


def _install_engine(patches: Patches, virtual: VirtualGpu, functions: VirtualDevice) -> None:
    """Backward is a phase of its own; Python code called from it (hooks, checkpoints) sees the virtual GPU too.

    The engine itself is wrapped, since not all call it through `torch.autograd`: Megatron's pipelines do not.
    """
    engine = torch.autograd.Variable._execution_engine

    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        with virtual.backward(), functions:
            result = engine.run_backward(*args, **kwargs)
        virtual.label_gradients()
        virtual.scope.forget_nodes()
        return result

    patches.set(torch.autograd.Variable, "_execution_engine", _Engine(engine, _engine_run_backward))


class _Engine:
    """The autograd engine, with another way in."""

    def __init__(self, engine: Any, run_backward: Callable[..., Any]) -> None:
        self._engine = engine
        self.run_backward = run_backward

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def _install_checkpoint(patches: Patches) -> None:
    """Checkpointing compares tensors saved beneath the function mode with ones it looks at above it."""

    def metadata(tensor: torch.Tensor) -> dict[str, Any]:
        return {"shape": tensor.shape, "dtype": tensor.dtype}

    checks = {**_checkpoint._allowed_determinism_checks_to_fns, _checkpoint._DEFAULT_DETERMINISM_MODE: metadata}
    patches.set(_checkpoint, "_allowed_determinism_checks_to_fns", checks)


def _install_saved_tensors_hooks(patches: Patches, functions: VirtualDevice) -> None:
    """C++ code calls them from within an operator, where the function mode is off: they must see the virtual GPU, or
    offloading that asks for the device of what is saved would find nothing to do. Checkpointing asks nothing."""

    def seeing(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(saved: Any) -> Any:
            if translates():
                return hook(saved)
            with functions:
                return hook(saved)

        return call

    def enter(self: Any) -> None:
        hooks = self.pack_hook, self.unpack_hook
        if type(self).__module__ != _checkpoint.__name__:
            hooks = seeing(hooks[0]), seeing(hooks[1])
        torch._C._autograd._push_saved_tensors_default_hooks(*hooks)

    patches.set(torch.autograd.graph.saved_tensors_hooks, "__enter__", enter)


def _install_compiler(patches: Patches, regions: CompiledRegions) -> None:
    """Compiled code allocates otherwise than eager code: it is followed as Inductor compiles it."""

    def compile_in_place(module: nn.Module, *args: Any, **options: Any) -> None:
        module._compiled_call_impl = regions.compile(module._call_impl, *args, **options)

    patches.set(torch, "compile", regions.compile)
    patches.set(nn.Module, "compile", compile_in_place)


def _install_optimizers(patches: Patches, contexts: contextlib.ExitStack, virtual: VirtualGpu) -> None:
    """Optimizers choose foreach and fused kernels as on CUDA; their step and zero_grad are phases.

    foreach is the default since torch 2.0 (pytorch#92306), fused never was one (pytorch#95415). What may take foreach
    kernels is a list of tensor types: without ours on it, optimizers and the clipping of gradients loop. Since 2.0,
    too, `zero_grad` frees the gradients by default (pytorch#92656).
    """
    if virtual.personality.platform.torch >= (2, 0):
        for module in (_foreach_utils, _optimizer):
            patches.set(
                module, "_foreach_supported_types", [*module._foreach_supported_types, FakeTensor, FakeParameter]
            )

    def begin(optimizer: Any, args: Any, kwargs: Any) -> None:
        if optimizer.defaults.get("foreach", True) is None and not optimizer.defaults.get("fused"):
            before((2, 0), "optimizers' loops over parameters")
        virtual.label_gradients()
        virtual.enter(Phase.OPTIMIZER)

    def end(optimizer: Any, args: Any, kwargs: Any) -> None:
        virtual.stepped(optimizer)

    for handle in (
        _optimizer.register_optimizer_step_pre_hook(begin),
        _optimizer.register_optimizer_step_post_hook(end),
    ):
        contexts.callback(handle.remove)
    zero_grad = Optimizer.zero_grad

    def zero_grad_as_phase(self: Any, set_to_none: bool | None = None) -> None:
        if set_to_none is None:
            set_to_none = not before((2, 0), "gradients zeroed in place")
        virtual.enter(Phase.ZERO_GRAD)
        zero_grad(self, set_to_none)

    patches.set(Optimizer, "zero_grad", zero_grad_as_phase)


_GENERATORS = frozenset({"generate", "sample", "_sample", "p_sample_loop"})
"""Functions in which models run on what they gave before, as HF, nanoGPT, diffusion models … call them."""


def _is_generating() -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name in _GENERATORS:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _install_late(patches: Patches, virtual: VirtualGpu) -> None:
    """What concerns libraries that a job loads when it pleases."""
    library = sys.modules.get("transformers.utils.import_utils")
    if library is not None and getattr(library, "is_fake_tensor", is_never_fake) is not is_never_fake:
        # transformers takes fake tensors for a tracer's, and then builds masks that it skips in a real run.
        patches.set(library, "is_fake_tensor", is_never_fake)
    install_libraries(patches, virtual.recorder)
    install_native_files(patches)
    let_flex_attention_run(patches, virtual.ledger.assume, lambda: virtual.compiled.findings.is_compiling)
