"""Parameters on the virtual GPU: fake from birth, and still of the class that code expects.

A parameter costs nothing on the host, moves in place, and `type(parameter)` is a class made here that derives both from
`nn.Parameter` (or from a library's own kind of it, such as bitsandbytes' `Params4bit`) and from torch's `FakeTensor`.
Tensor subclasses that dispatch themselves (DTensor, torchao's) are not touched: their parts are what is fake.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .devices import HOST, to_real_device
from .patches import Patches
from .recorder import Recorder

__all__ = ["FakeParameter", "fake_class", "install_parameters"]

_classes: dict[type, Any] = {}


_OF_FAKES = frozenset(vars(FakeTensor(FakeTensorMode(), torch.empty(0, device="meta"), HOST)))


def _is_of_a_fake(name: str) -> bool:
    """Loaders hand a parameter's `__dict__`, which on a GPU is empty, to the class of the one that takes its place."""
    return name in _OF_FAKES or name.startswith("_oomcast_")


_attributes: Any = vars(torch.Tensor)["__dict__"]


def _set_attributes(tensor: Any, given: dict[str, Any]) -> None:
    """Libraries hand all attributes of one tensor to another; what makes it a fake, and its value, stay its own."""
    own = {name: value for name, value in _attributes.__get__(tensor).items() if _is_of_a_fake(name)}
    _attributes.__set__(tensor, {**{name: value for name, value in given.items() if not _is_of_a_fake(name)}, **own})


def fake_class(cls: type) -> Any:
    """The class of fake tensors that are, to Python code, of class `cls`, a tensor subclass that does not dispatch."""
    if issubclass(cls, FakeTensor):
        return cls
    if cls is torch.Tensor:
        return FakeTensor
    known = _classes.get(cls)
    if known is None:
        names: dict[str, Any] = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        names["__dict__"] = property(_attributes.__get__, _set_attributes)
        later = getattr(cls, "cls_to_become", None)  # what a lazy parameter turns into
        if isinstance(later, type):
            names["cls_to_become"] = fake_class(later)
            names["shape"] = torch._C.TensorBase.shape  # fake kernels ask for it, though there is none yet
        metaclass: Any = type(cls)
        known = _classes[cls] = metaclass(cls.__name__, (cls, FakeTensor), names)
        # Torch takes its way with functions from a class that dispatches, as fake tensors do; libraries count on it.
        known.__torch_function__ = next(
            vars(base)["__torch_function__"] for base in cls.__mro__ if "__torch_function__" in vars(base)
        )
    return known


FakeParameter = fake_class(nn.Parameter)


def install_parameters(patches: Patches, recorder: Recorder) -> None:
    make_parameter, make_subclass = nn.Parameter.__new__, torch.Tensor._make_subclass

    def fake_like(data: torch.Tensor) -> torch.Tensor:
        device = data.device if data.is_meta else HOST
        # What `FakeTensorMode` does for this factory, without its way there: a model makes thousands of these.
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), torch.no_grad():
            empty = torch.empty_strided(data.shape, data.stride(), dtype=data.dtype, device="meta")
            return FakeTensor(recorder.fake_mode, empty, device)

    def fake_of_class(cls: type, data: torch.Tensor, requires_grad: bool, is_fresh: bool = False) -> Any:
        """`is_fresh`: nobody else has this tensor."""
        if is_fresh:
            tensor = data
        else:
            with torch.no_grad():
                tensor = data.detach()
        tensor.requires_grad_(requires_grad)
        tensor.__class__ = fake_class(cls)
        return tensor

    def new_parameter(cls: Any, data: Any = None, requires_grad: bool = True, **attributes: Any) -> Any:
        strange = [name for name in attributes if not _is_of_a_fake(name)]
        if strange:
            raise TypeError(f"Parameter.__new__() got an unexpected keyword argument '{strange[0]}'")
        if data is None:
            data = torch.empty(0)
        if type(data) in (torch.Tensor, nn.Parameter):
            return fake_of_class(cls, fake_like(data), requires_grad, is_fresh=True)
        if isinstance(data, FakeTensor):
            return fake_of_class(cls, data, requires_grad)
        return make_parameter(cls, data, requires_grad)

    def make(cls: Any, data: torch.Tensor, *args: Any, **options: Any) -> Any:
        """`Tensor._make_subclass`, by which libraries make parameters of classes of their own."""
        if cls is FakeTensor or not (issubclass(cls, FakeTensor) or _is_plain(cls)):
            return make_subclass(cls, data, *args, **options)
        if not isinstance(data, FakeTensor) and issubclass(cls, nn.Parameter):
            data = fake_like(data)
        if not isinstance(data, FakeTensor):
            return make_subclass(cls, data, *args, **options)
        return fake_of_class(cls, data, bool(args[0]) if args else options.get("require_grad", False))

    turn_into = torch.Tensor.as_subclass

    def as_subclass(tensor: torch.Tensor, cls: Any) -> Any:
        """By which results of a library's own kind of tensor become one again: a view, with its gradients."""
        if not isinstance(tensor, FakeTensor) or not (issubclass(cls, FakeTensor) or _is_plain(cls)):
            return turn_into(tensor, cls)
        with torch._C.DisableTorchFunctionSubclass():
            out = torch.ops.aten.alias(tensor)
        out.__class__ = fake_class(cls)
        return out

    make_wrapper = torch.Tensor._make_wrapper_subclass

    def make_around(cls: Any, *args: Any, **options: Any) -> Any:
        """`Tensor._make_wrapper_subclass`, for tensors that hold others: they name the device that code is shown."""
        if options.get("device") is not None:
            options["device"] = to_real_device(options["device"])
        return make_wrapper(cls, *args, **options)

    patches.set(torch.Tensor, "_make_wrapper_subclass", staticmethod(make_around))
    patches.set(nn.Parameter, "__new__", staticmethod(new_parameter))
    patches.set(torch.Tensor, "_make_subclass", staticmethod(make))
    patches.set(torch.Tensor, "as_subclass", as_subclass)
    patches.set(nn.Module, "_apply", _apply)


def _is_plain(cls: type) -> bool:
    """A subclass of Tensor whose operators are torch's own."""
    return cls.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl  # type: ignore[attr-defined]


def _apply(module: nn.Module, fn: Any, recurse: bool = True) -> nn.Module:
    """`nn.Module._apply`, by which modules move: parameters stay the same objects, and so do their gradients."""
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


def _move_in_place(parameter: Any, fn: Any) -> None:
    gradient = parameter.grad
    moved = fn(parameter)
    if moved is not parameter:
        if is_traceable_wrapper_subclass(parameter) or is_traceable_wrapper_subclass(moved):
            # As torch does: tensors that hold others are exchanged whole.
            parameter.grad = None
            torch.utils.swap_tensors(parameter, nn.Parameter(moved, parameter.requires_grad))
        else:
            parameter.data = moved
    if gradient is not None:
        parameter.grad = None
        parameter.grad = fn(gradient)
