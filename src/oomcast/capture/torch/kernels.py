"""Operators whose kernels may take memory that no tensor shows: they are written into the Trace with their shapes.

What they take is decided later, by the rules of `simulate/`, which know the target's libraries. Outputs are followed
here in the order in which CUDA allocates them, so that a workspace stands at its true moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ...trace import KernelCall, Operand

if TYPE_CHECKING:
    from .recorder import Recorder

__all__ = ["KERNELS"]

_aten = torch.ops.aten


def _operand(tensor: torch.Tensor) -> Operand:
    return Operand(tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype)[6:])


def _on_gpu(out: Any) -> bool:
    first = out[0] if isinstance(out, (tuple, list)) and out else out
    return isinstance(first, FakeTensor) and first.fake_device.index is not None


def _convolution(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> None:
    recorder.hold_all(func, out)
    if not _on_gpu(out):
        return
    x, weight, _, stride, padding, dilation, transposed, _, groups = args
    attributes = _convolution_attributes(stride, padding, dilation, groups)
    # A transposed convolution's forward is the data gradient of the plain one with input and output exchanged.
    name, seen = ("conv_dgrad", (out, weight, x)) if transposed else ("conv_fprop", (x, weight, out))
    recorder.ledger.kernel(KernelCall(name, tuple(map(_operand, seen)), attributes))


def _convolution_backward(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> None:
    gradient, x, weight, _, stride, padding, dilation, transposed, _, groups, _ = args
    attributes = _convolution_attributes(stride, padding, dilation, groups)
    small, large = (gradient, x) if not transposed else (x, gradient)
    operands = tuple(map(_operand, (large, weight, small)))
    names = ("conv_fprop" if transposed else "conv_dgrad", "conv_wgrad")
    for name, result in zip(names, out, strict=False):
        if isinstance(result, FakeTensor):
            recorder.hold(func, result)
            if result.fake_device.index is not None:
                recorder.ledger.kernel(KernelCall(name, operands, attributes))
    if isinstance(out[2], FakeTensor):
        recorder.hold(func, out[2])


def _convolution_attributes(stride: Any, padding: Any, dilation: Any, groups: int) -> tuple[tuple[str, Any], ...]:
    return (
        ("stride", tuple(stride)),
        ("padding", tuple(padding)),
        ("dilation", tuple(dilation)),
        ("groups", groups),
    )


def _plain(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> None:
    recorder.hold_all(func, out)
    if _on_gpu(out):
        operands = tuple(_operand(arg) for arg in args if isinstance(arg, torch.Tensor))
        name = str(func).removesuffix(".default").removesuffix(".out")
        recorder.ledger.kernel(KernelCall(name, operands))


KERNELS: dict[Any, Any] = {
    _aten.convolution.default: _convolution,
    _aten.convolution_backward.default: _convolution_backward,
    **dict.fromkeys(
        (
            _aten.mm.default,
            _aten.mm.out,
            _aten.addmm.out,
            _aten.bmm.out,
            _aten.baddbmm.out,
            _aten.addmm.default,
            _aten.bmm.default,
            _aten.baddbmm.default,
            _aten.mv.default,
            _aten.addmv.default,
            _aten.dot.default,
            _aten.topk.default,
            _aten.cumsum.default,
            _aten.cumprod.default,
            _aten.nonzero.default,
        ),
        _plain,
    ),
}
