"""How autograd's C++ code works in place, where it owns the tensor it writes to.

It refuses to do so for tensor subclasses, which fake tensors are: the engine then sums two gradients into a third
tensor, and the formulas of `max`, `gather`, indexing and others scatter into a copy of the zeros that they have just
made. On a GPU there is no such copy, so the recorder turns these calls into their in-place forms, under torch's own
conditions: gradient mode is off, the tensor is dense, and nobody else holds it.

Whether somebody else holds it is told by reference counts, and whether C++ called by the names of the frames above: so
every local variable on the way here counts. tests/capture/test_gradients_in_place.py pins what comes out.

Known limitation: one tensor that waits in two places of the engine (`left + right` gives both its gradient) is taken
for a tensor of its own, so a sum that needs a new tensor on a GPU needs none here.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["as_on_cuda"]

_aten = torch.ops.aten
_IN_PLACE: dict[Any, Any] = {
    _aten.add.Tensor: _aten.add_.Tensor,
    _aten.scatter.src: _aten.scatter_.src,
    _aten.scatter.value: _aten.scatter_.value,
    _aten.scatter_add.default: _aten.scatter_add_.default,
    _aten.index_add.default: _aten.index_add_.default,
    _aten.index_put.default: _aten.index_put_.default,
    _aten.index_fill.int_Scalar: _aten.index_fill_.int_Scalar,
    _aten.masked_scatter.default: _aten.masked_scatter_.default,
}
_ENGINE = "_engine_run_backward"
_SOLE_OWNER = 2
"""The engine's reference, and the Python storage object that the recorder's weak reference keeps."""
_OUR_REFERENCES = 5
"""The recorder's and this module's own references to an argument; more means that Python code holds it."""


def as_on_cuda(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operator that CUDA would run: the in-place form, if C++ code in backward called it on a tensor of its own."""
    in_place = _IN_PLACE.get(func)
    if in_place is None or torch.is_grad_enabled():
        return func
    target = args[0]
    if not isinstance(target, FakeTensor) or not _called_by_the_engine(sys._getframe(2)):
        return func
    if func is _aten.add.Tensor:
        other = args[1]
        if kwargs or not isinstance(other, FakeTensor):
            return func
        if target.shape != other.shape or target.dtype != other.dtype:
            return func
    owns = (
        sys.getrefcount(target) <= _OUR_REFERENCES
        and torch._C._storage_Use_Count(target.untyped_storage()._cdata) <= _SOLE_OWNER
    )
    return in_place if owns and _is_dense(target) else func


def _called_by_the_engine(frame: FrameType | None) -> bool:
    """Frames of the recorder stand between; nodes written in C++ have no frame, those in Python have the user's."""
    while frame is not None and frame.f_code.co_name in ("_dispatch", "__torch_dispatch__", "inner", "_fn"):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == _ENGINE


def _is_dense(tensor: torch.Tensor) -> bool:
    """Non-overlapping and dense, in any order of dimensions."""
    expected = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent != 1:
            if stride != expected:
                return False
            expected *= extent
    return True
