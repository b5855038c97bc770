"""Beneath autograd: runs each operator on fake tensors and follows every storage on the virtual GPU."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.nested._internal.nested_int import NestedIntNode
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from ...devices import Gpu
from ...trace import Category, Phase, TraceBuilder
from .devices import DEVICES, HOST
from .errors import GpuRuntimeError
from .fakes import FakeKernels, may_expand, size_if_expanded, size_if_large
from .gradients import as_on_cuda
from .job_settings import JobSettings
from .kernels import KERNELS
from .libraries import custom_scratch
from .operators import LATE_KERNELS, RULES
from .personality import (
    COMPOSITES,
    FAKE_KERNELS,
    OUTPUT_CORRECTIONS,
    PLAIN_KERNELS,
    assumptions,
    internal_scratch,
)
from .personality.overrides import composite as whole
from .personality.reductions import reduction_scratch
from .rank_groups import GroupsInUse
from .scope import Scope, is_building_a_module
from .sparse import is_sparse, parts_of_sparse, run_sparse
from .streams import StreamTable
from .values import Values

__all__ = ["Recorder", "parts_of"]

_TO_COPY = torch.ops.aten._to_copy.default
_PRIM_DEVICE = torch.ops.prim.device.default
_FAKE_SLOT = torch._C._TorchDispatchModeKey.FAKE
_NO_DISPATCH = torch._C._disabled_torch_dispatch_impl
_aten_names: dict[Any, str] = {}
_OF_TORCH = ("aten.", "prim.", "prims.", "torchvision.", "fsdp.", "c10d.", "_c10d_functional.")
"""Whose kernels are known: the buffers that they take for themselves have a rule, or there are none to speak of."""


class _FakeMode(FakeTensorMode):
    """torch's, for eager code: lengths of nested tensors are told apart by number, as eager torch does.

    That a kernel runs it notes for each thread, as torch's dispatcher does: scripts plot and save in threads.
    """

    def __init__(self, **options: Any) -> None:
        self._of_thread = threading.local()
        super().__init__(**options)
        # Ours (`FakeKernels`) is asked first: to keep what it does not know once more would cost more than it brings.
        self.cache_enabled = False

    @property
    def in_kernel_invocation(self) -> bool:
        return getattr(self._of_thread, "in_kernel", False)

    @in_kernel_invocation.setter
    def in_kernel_invocation(self, value: bool) -> None:
        self._of_thread.in_kernel = value

    def create_symbolic_nested_int(self, *, nt_tensor_id: int | None = None) -> Any:
        if nt_tensor_id is None:
            nt_tensor_id = self.nt_tensor_id_counter
            self.nt_tensor_id_counter += 1
        return torch.SymInt(NestedIntNode(nt_tensor_id, 1))


class Recorder(TorchDispatchMode):
    """The virtual GPU's own dispatch mode. Tensors on the host stay real while they are small."""

    def __init__(self, ledger: TraceBuilder, scope: Scope, gpu: Gpu) -> None:
        super().__init__()
        self.ledger = ledger
        self.scope = scope
        self.values = Values(ledger)
        self.fake_mode = _FakeMode(allow_non_fake_inputs=True)
        self._fake_kernels = FakeKernels(self.fake_mode, PLAIN_KERNELS)
        self._gpu = gpu
        self._real_host = 0
        self.bytes_of_data = 0
        """How much more of what code makes on the host, outside of modules and loaders, is real though it is large."""
        self._sparse_met = False
        self._pending: list[tuple[Any, weakref.ref[Any], tuple[int, ...], torch.dtype]] | None = None
        """Within `fused`: what was made, and is followed only if it outlives it."""
        self.streams = StreamTable(ledger)
        self.job_settings = JobSettings()
        self.groups = GroupsInUse()
        self.live: dict[int, tuple[weakref.ref[Any], _Held]] = {}
        """By the address of the storage."""
        self.on_write_after_backward: Callable[[Any], None] | None = None
        """Told what an operator in place wrote to while the phase is still that of the last backward."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch wraps each call of a mode for its compiler; nothing is compiled here, and the wrapper costs time."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Code within this mode is compiled as it would be without: see `compiled/`."""
        return True

    # -- running an operator -------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _PRIM_DEVICE:
            return args[0].fake_device if isinstance(args[0], FakeTensor) else args[0].device
        if _is_foreign(types):
            # DTensor, torchao's, nested tensors …: their own dispatch runs, and comes back here with their parts.
            return NotImplemented
        other = torch._C._get_dispatch_mode(_FAKE_SLOT)
        if other is not None and other is not self.fake_mode:
            # Somebody infers shapes with fake tensors of their own, as DTensor does.
            return args[0] if func in _NEED_CUDA_FOR_NOTHING else func(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunction():
            return self._dispatch(func, types, args, kwargs or {})

    def _dispatch(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        self.streams.launches += 1
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        if (self._sparse_met or func is _TO_COPY) and any(map(is_sparse, args)):
            return run_sparse(self, func, types, args, kwargs)
        rule = RULES.get(func)
        if rule is not None:
            out = rule(self, func, args, kwargs)
            if out is not NotImplemented:
                return out
        composite = COMPOSITES.get(func)
        if composite is not None:
            # Without autograd (`torch.inference_mode`) composites come whole; on the GPU they are taken apart as well.
            with self:
                return composite(*args, **kwargs)
        if _comes_whole(func):
            with self:
                return whole(func)(*args, **kwargs)
        if not types or not _has_fakes(types):
            device = kwargs.get("device")
            if device is None or device.index is None:
                return self._on_host(func, args, kwargs)
        if torch.is_grad_enabled() and self.ledger.phase is Phase.FORWARD:
            self.scope.remember_node()
        given = args
        args, kwargs = self.all_fake(args), {key: self._fake(value) for key, value in kwargs.items()}
        if self.ledger.phase is Phase.BACKWARD:
            func = as_on_cuda(func, args, kwargs)
        out = self.run_fake(func, types, args, kwargs)
        if _is_custom(func) and _on_virtual_gpu(args):
            self._custom(func, args, out)
        correction = OUTPUT_CORRECTIONS.get(func)
        if correction is not None:
            with self.fake_mode:
                out = correction(func, args, kwargs, out)
        kernels = KERNELS.get(func)
        if kernels is not None:
            kernels(self, func, args, kwargs, out)
        else:
            self.hold_all(func, out)
        self._scratch(func, args, kwargs, out)
        self.values.follow(func, given, kwargs, out)
        if func is _TO_COPY and (known := self._back_on_host(out)) is not None:
            return known
        if self.ledger.phase is Phase.BACKWARD and self.on_write_after_backward and func._schema.is_mutable and given:
            self.on_write_after_backward(given[0])
        return out

    def _back_on_host(self, out: Any) -> torch.Tensor | None:
        """Integers that were on the GPU and are known, such as the state of a generator, are real again on the host."""
        if not isinstance(out, FakeTensor) or out.fake_device.index is not None or out.dtype.is_floating_point:
            return None
        value = self.values.of(out)
        if value is None or out.dtype.is_complex:
            return None
        with torch.utils._python_dispatch._disable_current_modes():
            return value.clone(memory_format=torch.contiguous_format)

    def _custom(self, func: Any, args: Any, out: Any) -> None:
        """Somebody else's kernel: what it takes for itself is in a table, or told as not known."""
        sizes = custom_scratch(operator_name(func), args, out)
        if sizes is None:
            self.ledger.note_unsupported(f"custom operator {operator_name(func)}: only its outputs are counted")
        else:
            self.borrow(func, sizes)

    def all_fake(self, args: Any) -> Any:
        """Arguments with the host's real tensors among them as fakes."""
        return type(args)(
            self._fake(arg) if isinstance(arg, torch.Tensor) else self.all_fake(arg) if type(arg) is list else arg
            for arg in args
        )

    def _fake(self, value: Any) -> Any:
        """A real host tensor as a fake one without its value: torch would fold it as a constant, onto the host."""
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return value
        device = value.device if value.is_meta else HOST
        with self.fake_mode:
            return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=device)

    def run_fake(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The operator's outputs as fake tensors: from our own table first, then from torch's fake kernels."""
        kernel = FAKE_KERNELS.get(func)
        if kernel is not None:
            for sentence in assumptions(func, args):
                self.ledger.assume(sentence)
            with self.fake_mode:
                return kernel(func, args, kwargs)
        try:
            if torch.is_inference_mode_enabled() and _views_normal_tensor(func, args):
                with torch.inference_mode(False), torch.no_grad():
                    return self._fake_kernels(func, types, args, kwargs)
            return self._fake_kernels(func, types, args, kwargs)
        except (UnsupportedOperatorException, DynamicOutputShapeException):
            late = LATE_KERNELS.get(func.name())
            if late is not None:
                return late(self, args)
            if not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeExplicitAutograd"):
                raise
            with self:  # made of other operators, which can be followed
                return func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
        except RuntimeError as error:
            if "two devices" in str(error) or "two different devices" in str(error):
                raise GpuRuntimeError(
                    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
                    f"({operator_name(func)})"
                ) from None
            raise

    def _on_host(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Small host tensors are real, so that values can be read; large ones are fake, so that they cost nothing."""
        if not self._real_host:
            size = size_if_large(func, args, kwargs)
            if size and not self._may_be_real(size):
                return self.run_fake(func, (), args, kwargs)
            if not size and may_expand(func, args):
                out = self.run_fake(func, (), self.all_fake(args), kwargs)
                size = size_if_expanded(out, args)
                if size and not self._may_be_real(size):
                    return out
        return func(*args, **kwargs)

    def _may_be_real(self, size: int) -> bool:
        """Whether a large tensor of the host is a script's data, which its code may read, and not a model's part."""
        if size > self.bytes_of_data or is_building_a_module():
            return False
        self.bytes_of_data -= size
        return True

    @property
    def host_is_real(self) -> bool:
        return self._real_host > 0

    @contextlib.contextmanager
    def real_host(self) -> Iterator[None]:
        """Data code runs: whatever it makes on the host is real, however large."""
        self._real_host += 1
        try:
            yield
        finally:
            self._real_host -= 1

    # -- following storages --------------------------------------------------------------------------------------

    def hold_all(self, func: Any, out: Any) -> None:
        if isinstance(out, FakeTensor):
            self.hold(func, out)
        elif isinstance(out, (tuple, list)):
            for item in out:
                if isinstance(item, FakeTensor):
                    self.hold(func, item)

    def hold(self, func: Any, tensor: FakeTensor, category: Category | None = None) -> None:
        """Follow the tensor's storage, if it is a new one on the virtual GPU."""
        if tensor.fake_device.index is None:
            return
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:
            self._sparse_met = True
            for part in parts_of_sparse(self, tensor):
                self.hold(func, part, category)  # type: ignore[arg-type]
            return
        key = storage._cdata
        if key in self.live:
            return
        nbytes = storage.nbytes()
        if not nbytes:
            return
        DEVICES.used.add(tensor.fake_device.index)
        if self._pending is not None:
            self._pending.append((func, weakref.ref(storage), tuple(tensor.shape), tensor.dtype))
            return
        self._follow(func, storage, tuple(tensor.shape), tensor.dtype, category)

    def _follow(
        self, func: Any, storage: Any, shape: tuple[int, ...], dtype: torch.dtype, category: Category | None
    ) -> None:
        key, nbytes = storage._cdata, storage.nbytes()
        module, source = self.scope.here()
        self.streams.reuse()
        index = self.ledger.allocate(nbytes, category, operator_name(func), module, source, shape, str(dtype)[6:])
        assert index is not None
        live, streams, values, held = self.live, self.streams, self.values, _Held(index)

        def gone(_: Any) -> None:
            live.pop(key, None)
            values.forget_storage(key)
            if not held.is_empty:
                streams.free(held.block)

        live[key] = (weakref.ref(storage, gone), held)

    @contextlib.contextmanager
    def fused(self) -> Iterator[None]:
        """One kernel stands for all operators in here: what they hand to each other is never in memory."""
        before, self._pending = self._pending, []
        try:
            yield
        finally:
            pending, self._pending = self._pending, before
            for func, reference, shape, dtype in pending:
                storage = reference()
                if storage is not None and storage._cdata not in self.live:
                    self._follow(func, storage, shape, dtype, None)

    def _held(self, storage: Any) -> _Held | None:
        entry = self.live.get(storage._cdata)
        return None if entry is None else entry[1]

    def resized(self, storage: Any, nbytes_before: int) -> None:
        """`storage.resize_`: the storage stays the same object, its block is exchanged: the new one is taken first."""
        held = self._held(storage)
        nbytes = storage.nbytes()
        if held is None or nbytes == nbytes_before:
            return
        before, was_empty = held.block, held.is_empty
        held.is_empty = not nbytes
        if nbytes:
            module, source = self.scope.here()
            self.streams.reuse()
            block = self.ledger.allocate(nbytes, None, "storage.resize_", module, source, (nbytes,), "uint8")
            assert block is not None
            self.ledger.label_like(block, before)
            held.block = block
        if not was_empty:
            self.streams.free(before)

    def used_on(self, tensor: Any, stream: int) -> None:
        """`tensor.record_stream`."""
        held = self._held(tensor.untyped_storage())
        if held is not None and not held.is_empty:
            self.streams.lend(held.block, stream)

    def _scratch(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> None:
        """Memory that a kernel takes and gives back while it runs, and no tensor shows: all of it at once."""
        sizes = internal_scratch(func, args, kwargs, out) or reduction_scratch(func, args, kwargs, self._gpu)
        if not sizes or not any(sizes) or not _on_virtual_gpu(args):
            return
        self.borrow(func, sizes)

    def borrow(self, func: Any, sizes: Sequence[int]) -> None:
        if self._pending is not None:
            return
        module, source = self.scope.here()
        taken = [self.ledger.allocate(size, Category.WORKSPACE, operator_name(func), module, source) for size in sizes]
        for index in reversed(taken):
            self.ledger.free(index)

    def label(self, tensor: Any, category: Category, name: str = "") -> None:
        if not isinstance(tensor, FakeTensor):
            for part in parts_of(tensor):
                if part is not tensor:
                    self.label(part, category, name)
        elif tensor.fake_device.index is not None:
            if self._sparse_met and is_sparse(tensor):
                for part in parts_of_sparse(self, tensor):
                    self.label(part, category, name)
                return
            held = self._held(tensor.untyped_storage())
            if held is not None:
                self.ledger.label(held.block, category, name)

    def category_of(self, tensor: Any) -> Category | None:
        """What the memory of a tensor on the virtual GPU is for, as far as that is known yet."""
        if not isinstance(tensor, FakeTensor) or tensor.fake_device.index is None or is_sparse(tensor):
            return None
        held = self._held(tensor.untyped_storage())
        return None if held is None else self.ledger.category_of(held.block)

    def stop_following(self) -> None:
        """Nothing that dies after the capture is an event of the job."""
        self.live.clear()

    @property
    def stream(self) -> int:
        return self.ledger.stream

    def synchronize(self) -> None:
        """The host reads something that the current stream made."""
        self.streams.synchronize(self.streams.progress_of(self.ledger.stream))


_fakes: dict[Any, bool] = {}


def _has_fakes(types: Any) -> bool:
    """Other subclasses of Tensor that do not dispatch are among the types as well."""
    known = _fakes.get(types)
    if known is None:
        known = _fakes[types] = any(issubclass(kind, FakeTensor) for kind in types)
    return known


_whole: dict[Any, bool] = {}


def _comes_whole(func: Any) -> bool:
    """Whether an operator is made of others only, so that it reaches a mode in `torch.inference_mode` alone."""
    known = _whole.get(func)
    if known is None:
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        # Some have kernels of their own as well, like `silu_backward`: those run.
        known = _whole[func] = has(func.name(), "CompositeImplicitAutograd") and not has(func.name(), "CPU")
    return known


def parts_of(tensor: Any) -> list[torch.Tensor]:
    """The tensors that a tensor of another library's class holds (DTensor, torchao's …); else itself."""
    if not is_traceable_wrapper_subclass(tensor):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    return [part for name in names for part in parts_of(getattr(tensor, name))]


class _Held:
    """A storage on the virtual GPU that is followed, and its block."""

    __slots__ = ("block", "is_empty")

    def __init__(self, block: int) -> None:
        self.block = block
        self.is_empty = False
        """Resized to nothing: the block, its last one, is free already."""


def _views_normal_tensor(func: Any, args: Any) -> bool:
    """In `torch.inference_mode` a view of a tensor from outside of it (a parameter) is no inference tensor either."""
    return bool(func.is_view and args and isinstance(args[0], torch.Tensor) and not args[0].is_inference())


_NEED_CUDA_FOR_NOTHING = {torch.ops.aten.copy_.default, torch.ops.aten.uniform_.default}
"""In-place operators, whose result is their first argument, that C++ does not run on another's fake CUDA tensors where
torch was built without CUDA."""
_foreign: dict[Any, bool] = {}


def _is_foreign(types: Any) -> bool:
    """Whether one of the tensors is of a class that dispatches itself, and not one of ours."""
    known = _foreign.get(types)
    if known is None:
        known = _foreign[types] = any(
            kind.__torch_dispatch__ is not _NO_DISPATCH and not issubclass(kind, FakeTensor) for kind in types
        )
    return known


def operator_name(func: Any) -> str:
    name = _aten_names.get(func)
    if name is None:
        name = _aten_names[func] = func if isinstance(func, str) else str(func).removesuffix(".default")
    return name


def _is_custom(func: Any) -> bool:
    """Whether somebody else's kernel runs: what it takes for itself nobody here knows."""
    return not operator_name(func).startswith(_OF_TORCH)


def _on_virtual_gpu(args: Any) -> bool:
    return any(isinstance(arg, FakeTensor) and arg.fake_device.index is not None for arg in args)
