"""Beneath autograd: runs each operator on fake tensors and follows every storage on the virtual GPU."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from oomcast.devices import Gpu
from oomcast.trace import Category, Phase

from ._devices import HOST
from ._errors import GpuRuntimeError
from ._fakes import FakeKernels
from ._gradients import as_on_cuda
from ._host import is_large, is_large_factory, may_expand
from ._kernels import KERNELS
from ._ledger import Ledger
from ._operators import RULES
from ._scope import Scope
from ._values import Values
from .personality import COMPOSITES, FAKE_KERNELS, OUTPUT_CORRECTIONS, assumptions, internal_scratch
from .personality._reductions import reduction_scratch

__all__ = ["Recorder"]

_PRIM_DEVICE = torch.ops.prim.device.default
_aten_names: dict[Any, str] = {}


class Recorder(TorchDispatchMode):
    """The virtual GPU's own dispatch mode. Tensors on the host stay real while they are small."""

    def __init__(self, ledger: Ledger, scope: Scope, gpu: Gpu) -> None:
        super().__init__()
        self.ledger = ledger
        self.scope = scope
        self.values = Values(ledger)
        self.fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._fake_kernels = FakeKernels(self.fake_mode)
        self.stream = 0
        self._gpu = gpu
        self.live: dict[int, tuple[weakref.ref[Any], int]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch wraps each call of a mode for its compiler; nothing is compiled here, and the wrapper costs time."""
        return False

    # -- running an operator -------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _PRIM_DEVICE:
            return args[0].fake_device
        with torch._C.DisableTorchFunction():
            return self._dispatch(func, types, args, kwargs or {})

    def _dispatch(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
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
        if FakeTensor not in types:
            device = kwargs.get("device")
            if device is None or device.index is None:
                return self._on_host(func, args, kwargs)
        if torch.is_grad_enabled() and self.ledger.phase is Phase.FORWARD:
            self.scope.remember_node()
        given = args
        args, kwargs = self._all_fake(args), {key: self._fake(value) for key, value in kwargs.items()}
        if self.ledger.phase is Phase.BACKWARD:
            func = as_on_cuda(func, args, kwargs)
        out = self.run_fake(func, types, args, kwargs)
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
        return out

    def _all_fake(self, args: Any) -> Any:
        return type(args)(
            self._fake(arg) if isinstance(arg, torch.Tensor) else self._all_fake(arg) if type(arg) is list else arg
            for arg in args
        )

    def _fake(self, value: Any) -> Any:
        """A real host tensor as a fake one without its value: torch would fold it as a constant, onto the host."""
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return value
        with self.fake_mode:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=HOST)

    def run_fake(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The operator's outputs as fake tensors: from our own table first, then from torch's fake kernels."""
        kernel = FAKE_KERNELS.get(func)
        if kernel is not None:
            for sentence in assumptions(func, args):
                self.ledger.assume(sentence)
            with self.fake_mode:
                return kernel(func, args, kwargs)
        try:
            return self._fake_kernels(func, types, args, kwargs)
        except RuntimeError as error:
            if "two devices" in str(error) or "two different devices" in str(error):
                raise GpuRuntimeError(
                    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
                    f"({operator_name(func)})"
                ) from None
            raise

    def _on_host(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Small host tensors are real, so that values can be read; large ones are fake, so that they cost nothing."""
        if is_large_factory(func, args, kwargs):
            return self.run_fake(func, (), args, kwargs)
        if may_expand(args) and not func._schema.is_mutable:
            out = self.run_fake(func, (), args, kwargs)
            if is_large(out):
                return out
        return func(*args, **kwargs)

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
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.live:
            return
        nbytes = storage.nbytes()
        if not nbytes:
            return
        module, source = self.scope.here()
        index = self.ledger.allocate(
            nbytes,
            operator_name(func),
            module,
            source,
            tuple(tensor.shape),
            str(tensor.dtype)[6:],
            self.stream,
            category,
        )
        live, ledger, values = self.live, self.ledger, self.values

        def gone(_: Any) -> None:
            live.pop(key, None)
            values.forget_storage(key)
            ledger.free(index)

        live[key] = (weakref.ref(storage, gone), index)

    def _scratch(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> None:
        """Memory that a kernel takes and gives back while it runs, and no tensor shows: all of it at once."""
        sizes = internal_scratch(func, args, kwargs, out) or reduction_scratch(func, args, kwargs, self._gpu)
        if not sizes or not any(sizes) or not _on_virtual_gpu(args):
            return
        module, source = self.scope.here()
        taken = [
            self.ledger.allocate(size, operator_name(func), module, source, (), "", self.stream, Category.WORKSPACE)
            for size in sizes
            if size
        ]
        for index in reversed(taken):
            self.ledger.free(index)

    def label(self, tensor: Any, category: Category, name: str = "") -> None:
        if isinstance(tensor, FakeTensor) and tensor.fake_device.index is not None:
            held = self.live.get(tensor.untyped_storage()._cdata)
            if held is not None:
                self.ledger.label(held[1], category, name)

    def stop_following(self) -> None:
        """Nothing that dies after the capture is an event of the job."""
        self.live.clear()

    @contextlib.contextmanager
    def on_stream(self, stream: int) -> Any:
        before, self.stream = self.stream, stream
        try:
            yield
        finally:
            self.stream = before


def operator_name(func: Any) -> str:
    name = _aten_names.get(func)
    if name is None:
        name = _aten_names[func] = func if isinstance(func, str) else str(func).removesuffix(".default")
    return name


def _on_virtual_gpu(args: Any) -> bool:
    return any(isinstance(arg, FakeTensor) and arg.fake_device.index is not None for arg in args)
