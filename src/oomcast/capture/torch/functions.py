"""Between Python code and torch: the code says and sees `cuda`, torch gets the stand-in (see `devices.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch._C._functorch import peek_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from .devices import HOST, is_virtual, to_real_device, to_shown_device
from .errors import GpuTypeError
from .host_work import BENEATH_MODES, is_work_of_the_host
from .recorder import Recorder, parts_of

__all__ = ["VirtualDevice", "of_old_type", "shown_device_property", "tolist", "translates"]

_Tensor = torch.Tensor
_PLAIN = (torch.Tensor, nn.Parameter)


class VirtualDevice(TorchFunctionMode):
    """Translates devices on the way in and out; everything else passes."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        handler = _HANDLERS.get(func)
        if handler is not None:
            return handler(self.recorder, args, kwargs or {})
        on_host = is_work_of_the_host(func, args, kwargs, self.recorder.host_is_real)
        # Within torch.func's transforms a plain tensor may hold a virtual one.
        if on_host and torch._C._len_torch_dispatch_stack() == 1 and peek_interpreter_stack() is None:
            with torch._C._ExcludeDispatchKeyGuard(BENEATH_MODES):
                return func(*args, **kwargs) if kwargs else func(*args)
        if kwargs:
            device = kwargs.get("device")
            if device is not None:
                kwargs = {**kwargs, "device": to_real_device(device)}
            if kwargs.get("pin_memory"):
                kwargs = {**kwargs, "pin_memory": False}
            return func(*args, **kwargs)
        return func(*args)


def shown_device_property() -> property:
    """`FakeTensor.device` as Python code reads it: `cuda:0`. Code beneath (our mode is not on) sees the stand-in."""
    real = FakeTensor.device

    def device(tensor: FakeTensor) -> torch.device:
        if translates():
            return to_shown_device(tensor.fake_device)
        return real.__get__(tensor)

    return property(device)


def translates() -> bool:
    """Whether our mode is on. Others may be without it: torch has its own, while it traces flex attention."""
    if not torch._C._is_torch_function_mode_enabled():
        return False
    places = range(torch._C._len_torch_function_stack())
    return any(isinstance(torch._C._get_function_stack_at(place), VirtualDevice) for place in places)


def _on_gpu(tensor: torch.Tensor) -> bool:
    if isinstance(tensor, FakeTensor):
        return tensor.fake_device.index is not None
    if type(tensor) in _PLAIN:
        return False
    with torch._C.DisableTorchFunction():
        return is_virtual(tensor.device)


def _device(recorder: Recorder, args: Any, kwargs: Any) -> torch.device:
    """Of tensors that hold others (DTensor, torchao's …) too, whose device C++ code keeps."""
    tensor = args[0]
    if isinstance(tensor, FakeTensor):
        return to_shown_device(tensor.fake_device)
    with torch._C.DisableTorchFunction():
        device = tensor.device
    return device if type(tensor) in _PLAIN else to_shown_device(device)


def _is_cuda(recorder: Recorder, args: Any, kwargs: Any) -> bool:
    return _on_gpu(args[0])


def _is_cpu(recorder: Recorder, args: Any, kwargs: Any) -> bool:
    return not _on_gpu(args[0]) and args[0].device.type == "cpu"


def _get_device(recorder: Recorder, args: Any, kwargs: Any) -> int:
    index = _device(recorder, args, kwargs).index if _on_gpu(args[0]) else None
    return -1 if index is None else index


def _to(recorder: Recorder, args: Any, kwargs: Any) -> torch.Tensor:
    tensor, *rest = args
    rest = [to_real_device(item) if isinstance(item, (str, torch.device, int)) and not isinstance(item, bool) else item
            for item in rest]  # fmt: skip
    if "device" in kwargs:
        kwargs = {**kwargs, "device": to_real_device(kwargs["device"])}
    if HOST in rest or kwargs.get("device") == HOST:
        _wait_for(recorder, tensor)
    return _Tensor.to(tensor, *rest, **kwargs)


def _wait_for(recorder: Recorder, tensor: torch.Tensor) -> None:
    """The host is about to hold what the GPU computed."""
    if _on_gpu(tensor):
        recorder.synchronize()


def _cuda(recorder: Recorder, args: Any, kwargs: Any) -> torch.Tensor:
    device = args[1] if len(args) > 1 else kwargs.get("device")
    return args[0].to(to_real_device("cuda" if device is None else device))


def _cpu(recorder: Recorder, args: Any, kwargs: Any) -> torch.Tensor:
    _wait_for(recorder, args[0])
    return args[0].to(HOST)


def _type(recorder: Recorder, args: Any, kwargs: Any) -> Any:
    tensor, *rest = args
    wanted = rest[0] if rest else kwargs.get("dtype")
    if wanted is None:
        name = _Tensor.type(tensor)
        return name.replace("torch.", "torch.cuda.") if _on_gpu(tensor) else name
    if isinstance(wanted, type) and wanted.__module__ == "torch.cuda":
        wanted = f"torch.cuda.{wanted.__name__}"
    if isinstance(wanted, str) and wanted.startswith("torch.cuda."):
        dtype = torch.tensor([]).type("torch." + wanted.removeprefix("torch.cuda.")).dtype
        return tensor.to(to_real_device("cuda"), dtype)
    return _Tensor.type(tensor, wanted)


def _build_then_move(build: Any) -> Any:
    """`torch.tensor(data, device="cuda")` reads Python data: it is built on the host, with values, and then moved."""

    def handler(recorder: Recorder, args: Any, kwargs: Any) -> torch.Tensor:
        if args and isinstance(args[0], (list, tuple, FakeTensor)):
            args = (_without_fakes(args[0]), *args[1:])
        device = to_real_device(kwargs.get("device"))
        kwargs = {key: value for key, value in kwargs.items() if key not in ("device", "pin_memory")}
        if isinstance(device, torch.device) and is_virtual(device):
            wants_grad = kwargs.pop("requires_grad", False)
            tensor = build(*args, **kwargs).to(device)
            return tensor.requires_grad_() if wants_grad else tensor
        if device is not None:
            kwargs["device"] = device
        return build(*args, **kwargs)

    return handler


def _new_tensor(recorder: Recorder, args: Any, kwargs: Any) -> torch.Tensor:
    """`x.new_tensor(data)`: data read from Python, on the device of `x`, which C++ takes for the host."""
    tensor, *rest = args
    data = rest[0] if rest else kwargs["data"]
    options = {key: value for key, value in kwargs.items() if key not in ("data", "pin_memory")}
    if options.get("dtype") is None:
        options["dtype"] = tensor.dtype
    if options.get("device") is None:
        options["device"] = _device(recorder, args, kwargs)
    if isinstance(data, torch.Tensor):
        wants_grad = options.pop("requires_grad", False)
        copy = data.detach().clone().to(to_real_device(options["device"]), options["dtype"])
        return copy.requires_grad_() if wants_grad else copy
    return _build_then_move(torch.tensor)(recorder, (data,), options)


def _new(recorder: Recorder, args: Any, kwargs: Any) -> torch.Tensor:
    """`x.new(...)`, the old way: sizes, data, or nothing."""
    tensor, *rest = args
    if not _on_gpu(tensor) or tensor.is_sparse:
        return _Tensor.new(tensor, *rest, **kwargs)
    return of_old_type(rest, tensor.dtype, to_real_device(_device(recorder, args, kwargs)))


def of_old_type(args: Sequence[Any], dtype: torch.dtype, device: Any) -> torch.Tensor:
    """What `torch.FloatTensor(...)` makes of its arguments, on that device."""
    if not args or all(isinstance(size, int) for size in args):
        return torch.empty(tuple(args) or (0,), dtype=dtype, device=device)
    if isinstance(args[0], torch.Size):
        return torch.empty(args[0], dtype=dtype, device=device)
    data = args[0]
    if isinstance(data, FakeTensor):
        return data.to(device, dtype)
    return torch.tensor(data, dtype=dtype).to(device)


def _make_device(recorder: Recorder, args: Any, kwargs: Any) -> torch.device:
    """`torch.device(0)` is the accelerator's, which torch itself does not find."""
    if len(args) == 1 and type(args[0]) is int and not kwargs:
        return torch.device("cuda", args[0])
    return torch.device(*args, **kwargs)


def _without_fakes(data: Any) -> Any:
    """Nested Python data with numbers in place of the tensors on the GPU that are read; the rest is as it was."""
    if isinstance(data, FakeTensor):
        return data.detach()
    if type(data) not in (list, tuple):
        return data
    return type(data)(
        (item.item() if item.dim() == 0 else item.tolist()) if isinstance(item, FakeTensor) else _without_fakes(item)
        for item in data
    )


def _is_finite(recorder: Recorder, args: Any, kwargs: Any) -> torch.Tensor:
    """All numbers are finite, as in a run that goes well: what checks them goes on."""
    tensor = args[0] if args else kwargs["input"]
    out = torch.isfinite(tensor)
    if isinstance(out, FakeTensor):
        recorder.values.know(out, torch.ones((), dtype=torch.bool).expand(out.shape))
    return out


def _set_data(recorder: Recorder, args: Any, kwargs: Any) -> None:
    tensor, data = args
    if isinstance(tensor, FakeTensor) and type(data) in _PLAIN:
        data = recorder.all_fake((data,))[0]  # a fake tensor must not get real memory
    if type(tensor) is torch.Tensor and isinstance(data, FakeTensor):
        _become_fake(tensor, data)
        return
    _Tensor.data.__set__(tensor, data)  # type: ignore[attr-defined]
    if isinstance(tensor, FakeTensor) and isinstance(data, FakeTensor):
        tensor.fake_device = data.fake_device


def _become_fake(tensor: torch.Tensor, data: FakeTensor) -> None:
    """A real tensor of the host moves to the GPU by its data, and stays the same object.

    What C++ has of it is exchanged, too: setting the data alone would leave it the keys of a plain tensor, and C++ that
    works on it (a broadcast of several tensors) would go past the recorder, to memory that is not there. Only where
    something else holds the tensor that is all there is.
    """
    inside = data.detach().requires_grad_(tensor.requires_grad)
    gradient, tensor.grad = tensor.grad, None
    try:
        torch._C._swap_tensor_impl(tensor, inside)
    except RuntimeError:
        _Tensor.data.__set__(tensor, data)  # type: ignore[attr-defined]
    tensor.__class__ = FakeTensor
    tensor.__dict__.update(inside.__dict__)
    tensor.grad = gradient


def _values_or_stand_in(recorder: Recorder, tensor: torch.Tensor) -> torch.Tensor:
    """A real host tensor of that shape: the values where they are known, else one value that takes no memory.

    Integers are those that `item()` gives, since code divides by them; all else is zero.
    """
    value = recorder.values.of(tensor)
    if value is not None:
        return value.detach()
    is_whole = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype is torch.bool)
    one = recorder.values.integer_for(tensor) if is_whole else 0
    taken = "zeros" if one == 0 else str(one)
    recorder.ledger.assume(f"the values of a tensor were read on the host: taken as {taken}", about_data=True)
    with torch.utils._python_dispatch._disable_current_modes():
        return torch.full((), one, dtype=tensor.dtype).expand(tensor.shape)


def tolist(recorder: Recorder, tensor: torch.Tensor) -> Any:
    """One stand-in for all that is not known: fake tensors of torch read each element, as if a loop waited for it."""
    _wait_for(recorder, tensor)
    value = recorder.values.of(tensor)
    if value is None:
        line = recorder.scope.user_line()
        one = recorder.values.read(tensor, f" at {line}" if line else "")
        with torch.utils._python_dispatch._disable_current_modes():
            value = torch.full((), one, dtype=tensor.dtype).expand(tensor.shape)
    return _Tensor.tolist(value.detach())


def _numpy(recorder: Recorder, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if _on_gpu(tensor):
        raise GpuTypeError(
            f"can't convert {to_shown_device(tensor.fake_device)} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    if isinstance(tensor, FakeTensor):
        return _Tensor.numpy(_values_or_stand_in(recorder, tensor))
    return _Tensor.numpy(tensor, **kwargs)


def _array(recorder: Recorder, args: Any, kwargs: Any) -> Any:
    array = _numpy(recorder, args[:1], {})
    return array if len(args) < 2 or args[1] is None else array.astype(args[1])


def _data_ptr(recorder: Recorder, args: Any, kwargs: Any) -> int:
    tensor = args[0]
    if isinstance(tensor, FakeTensor):
        return tensor.untyped_storage()._cdata + tensor.storage_offset() * tensor.element_size()
    return _Tensor.data_ptr(tensor)


def _deepcopy(recorder: Recorder, args: Any, kwargs: Any) -> torch.Tensor:
    tensor, memo = args
    if not isinstance(tensor, FakeTensor):
        return _Tensor.__deepcopy__(tensor, memo)
    if id(tensor) in memo:
        return memo[id(tensor)]
    with torch.no_grad():
        copy = tensor.detach().clone()
    if isinstance(tensor, nn.Parameter):
        copy = nn.Parameter(copy, tensor.requires_grad)
    elif tensor.requires_grad:
        copy.requires_grad_()
    memo[id(tensor)] = copy
    return copy


def _split(recorder: Recorder, args: Any, kwargs: Any) -> Any:
    """Sizes that were read from data (the tokens of each expert) are stand-ins: they are made to add up."""
    tensor, *rest = args
    for name in ("split_size_or_sections", "split_size", "split_sizes", "dim"):
        if name in kwargs:
            rest.append(kwargs[name])
    sizes, dim = rest[0], rest[1] if len(rest) > 1 else 0
    if isinstance(sizes, (tuple, list)) and sizes and isinstance(tensor, FakeTensor) and recorder.ledger.reads_data:
        extent = tensor.shape[dim]
        if sum(sizes) != extent:
            recorder.ledger.assume("the sizes of a split depend on data: taken as equal", about_data=True)
            least, more = divmod(extent, len(sizes))
            sizes = [least + (place < more) for place in range(len(sizes))]
    return _Tensor.split(tensor, sizes, dim)


def _format(recorder: Recorder, args: Any, kwargs: Any) -> str:
    tensor, spec = args
    return format(tensor.item() if tensor.dim() == 0 else repr(tensor), spec if tensor.dim() == 0 else "")


def _itself(recorder: Recorder, args: Any, kwargs: Any) -> Any:
    return args[0]


def _record_stream(recorder: Recorder, args: Any, kwargs: Any) -> None:
    tensor, stream = args[0], args[1] if len(args) > 1 else kwargs["s"]
    for part in parts_of(tensor):
        if _on_gpu(part):
            recorder.used_on(part, stream.stream_id)


_HANDLERS: dict[Any, Any] = {
    _Tensor.device.__get__: _device,
    _Tensor.is_cuda.__get__: _is_cuda,  # type: ignore[attr-defined]
    _Tensor.is_cpu.__get__: _is_cpu,  # type: ignore[attr-defined]
    torch.device: _make_device,
    _Tensor.data.__set__: _set_data,  # type: ignore[attr-defined]
    _Tensor.get_device: _get_device,
    _Tensor.to: _to,
    _Tensor.cuda: _cuda,
    _Tensor.cpu: _cpu,
    _Tensor.type: _type,
    _Tensor.tolist: lambda recorder, args, kwargs: tolist(recorder, args[0]),
    _Tensor.numpy: _numpy,
    _Tensor.__array__: _array,
    _Tensor.data_ptr: _data_ptr,
    _Tensor.__deepcopy__: _deepcopy,
    _Tensor.__format__: _format,
    _Tensor.split: _split,
    _Tensor.split_with_sizes: _split,
    torch.split: _split,
    torch.split_with_sizes: _split,
    _Tensor.record_stream: _record_stream,
    _Tensor.share_memory_: _itself,
    torch.isfinite: _is_finite,
    _Tensor.isfinite: _is_finite,
    _Tensor.new_tensor: _new_tensor,
    _Tensor.new: _new,
    torch.tensor: _build_then_move(torch.tensor),
    torch.as_tensor: _build_then_move(torch.as_tensor),
    torch.asarray: _build_then_move(torch.asarray),
}
