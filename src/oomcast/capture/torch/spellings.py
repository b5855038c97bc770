"""The other ways in which code says where a tensor goes: default devices, old tensor types, indices, generators.

What Python code says through a function that torch lets a mode see is translated by `functions.py`; this file is about
the rest, which torch's C++ code reads directly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._device import DeviceContext, _device_constructors

from ...errors import CaptureFailed
from .devices import HOST, to_real_device
from .functions import VirtualDevice, of_old_type
from .patches import Patches

__all__ = ["install_spellings"]

_OLD_TYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "ShortTensor": torch.int16,
    "CharTensor": torch.int8,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}


@contextlib.contextmanager
def install_spellings(patches: Patches, functions: VirtualDevice) -> Iterator[None]:
    """Until the context is left; a default device or type that the job set is undone then."""
    default_device, default_dtype = _default_device(), torch.get_default_dtype()
    _install_default_device(patches, functions)
    _install_old_types(patches)
    _install_storages(patches, functions)
    _install_nested(patches)
    parse_to = torch._C._nn._parse_to

    def _parse_to(*args: Any, **kwargs: Any) -> Any:
        """`Module.to(0)`: an index is the accelerator's, which this torch has none of."""
        if args and isinstance(args[0], int) and not isinstance(args[0], bool):
            args = (torch.device("cuda", args[0]), *args[1:])
        if isinstance(kwargs.get("device"), int):
            kwargs = {**kwargs, "device": torch.device("cuda", kwargs["device"])}
        parsed = parse_to(*args, **kwargs)
        to_real_device(parsed[0])  # an index beyond the last GPU is an error here, as on CUDA
        return parsed

    patches.set(torch._C._nn, "_parse_to", _parse_to)
    patches.set(torch, "Generator", _generator_class())
    try:
        yield
    finally:
        torch.set_default_dtype(default_dtype)
        if _default_device() != default_device:
            torch.set_default_device(default_device)


def _default_device() -> Any:
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else context.device


def _install_default_device(patches: Patches, functions: VirtualDevice) -> None:
    """`with torch.device("cuda")` and `set_default_device` act beneath our mode: they name the stand-in themselves."""

    def with_device(context: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _device_constructors() and kwargs.get("device") is None:
            kwargs["device"] = to_real_device(context.device)
            return functions.__torch_function__(func, types, args, kwargs)
        return func(*args, **kwargs)

    set_type, make_tensor = torch.set_default_tensor_type, torch.Tensor.__new__

    def new_tensor(cls: Any, *args: Any, **kwargs: Any) -> Any:
        """`torch.Tensor([1.0])` is of the default type."""
        if cls is torch.Tensor and not kwargs and torch._C._is_torch_function_mode_enabled():
            context = _default_device()
            if context is not None and context.type == "cuda":
                return of_old_type(args, torch.get_default_dtype(), context)
        return make_tensor(cls, *args, **kwargs)

    def set_default_tensor_type(wanted: Any) -> None:
        name = wanted if isinstance(wanted, str) else f"{wanted.__module__}.{wanted.__name__}"
        if not name.startswith("torch.cuda."):
            torch.set_default_device(None)
            set_type(wanted)
            return
        torch.set_default_dtype(_OLD_TYPES[name.rpartition(".")[2]])
        torch.set_default_device("cuda")
        if vars(torch.Tensor).get("__new__") is not by_type:
            patches.set(torch.Tensor, "__new__", by_type)

    by_type = staticmethod(new_tensor)
    patches.set(DeviceContext, "__torch_function__", with_device)
    patches.set(torch, "set_default_tensor_type", set_default_tensor_type)


def _install_old_types(patches: Patches) -> None:
    """`torch.cuda.FloatTensor(2, 3)`, and `isinstance(x, torch.cuda.FloatTensor)`."""

    class OldType(type):
        dtype: torch.dtype

        def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
            return of_old_type(args, cls.dtype, "cuda")

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype == cls.dtype

    for name, dtype in _OLD_TYPES.items():
        old_type = OldType(name, (), {"dtype": dtype, "__module__": "torch.cuda"})
        patches.set(torch.cuda, name, old_type)


def _install_nested(patches: Patches) -> None:
    """Nested tensors of the old layout live in C++ alone, which reads their sizes from memory."""
    for name in ("nested_tensor", "as_nested_tensor"):
        make = getattr(torch.nested, name)

        def checked(tensors: Any, *args: Any, _make: Any = make, **options: Any) -> Any:
            parts = tensors if isinstance(tensors, (list, tuple)) else [tensors]
            if options.get("layout") is not torch.jagged and any(isinstance(part, FakeTensor) for part in parts):
                raise CaptureFailed("nested tensors of strided layout cannot be followed; give layout=torch.jagged.")
            return _make(tensors, *args, **options)

        patches.set(torch.nested, name, checked)


def _install_storages(patches: Patches, functions: VirtualDevice) -> None:
    """What tensors' storages are asked directly: to grow, to shrink, to be used on another stream."""
    recorder = functions.recorder
    resize = torch.UntypedStorage.resize_

    def resize_(storage: Any, size: int) -> Any:
        before = storage.nbytes()
        out = resize(storage, size)
        recorder.resized(storage, before)
        return out

    patches.set(torch.UntypedStorage, "resize_", resize_)
    # C++ refuses our streams, so code that reaches it beneath the function mode (FSDP does) finds this first.
    patches.set(FakeTensor, "record_stream", lambda tensor, stream: recorder.used_on(tensor, stream.stream_id))


def _generator_class() -> Any:
    plain = torch.Generator

    class Generator(plain):  # type: ignore[misc, valid-type]
        def __new__(cls, device: Any = "cpu") -> Any:
            return plain.__new__(cls, HOST)  # type: ignore[call-arg]

    return Generator
