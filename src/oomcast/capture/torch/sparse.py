"""Sparse COO tensors on the virtual GPU: two tensors, indices and values, are what they hold.

torch's fake kernels know the shapes, but not how many elements there are after an operator that depends on them; the
rules here keep them, at most as many as before. Compressed layouts (CSR, BSR …) are not followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ...errors import CaptureFailed
from ...trace import Category
from .fakes import keep_device
from .operator_names import by_operator

if TYPE_CHECKING:
    from .recorder import Recorder

__all__ = ["is_sparse", "parts_of_sparse", "run_sparse"]

_aten = torch.ops.aten


def is_sparse(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is not torch.strided


def parts_of_sparse(recorder: Recorder, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices and values."""
    if tensor.layout is not torch.sparse_coo:
        raise CaptureFailed(f"a tensor of layout {tensor.layout} is on the GPU: only sparse_coo ones can be followed.")
    if not isinstance(tensor, FakeTensor):
        return tensor._indices(), tensor._values()
    with recorder.fake_mode:
        return tensor._indices(), tensor._values()


def run_sparse(recorder: Recorder, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operator with a sparse tensor among its arguments."""
    if not types and kwargs.get("device", torch.device("cpu")).index is None:
        return func(*args, **kwargs)  # the host's own
    rule = _RULES.get(func)
    if rule is not None:
        with recorder:
            return rule(recorder, *args, **kwargs)
    args = recorder.all_fake(args)
    out = recorder.fake_mode.dispatch(func, types, args, kwargs)
    keep_device(args, kwargs, out)
    recorder.hold_all(func, out)
    return out


def _made(like: torch.Tensor, indices: torch.Tensor, values: torch.Tensor, is_coalesced: bool) -> torch.Tensor:
    return _aten._sparse_coo_tensor_with_dims_and_tensors(
        like.sparse_dim(),
        like.dense_dim(),
        list(like.shape),
        indices,
        values,
        dtype=values.dtype,
        layout=torch.sparse_coo,
        device=values.device,
        is_coalesced=is_coalesced,
    )


def _moved(recorder: Recorder, tensor: torch.Tensor, *, device: Any = None, dtype: Any = None, **_: Any) -> Any:
    indices, values = parts_of_sparse(recorder, tensor)
    place = values.device if device is None else device
    # Through the operator itself: the parts may be real ones of the host, or fakes.
    return _made(
        tensor,
        _aten._to_copy(indices, device=place),
        _aten._to_copy(values, device=place, dtype=dtype or values.dtype),
        tensor.is_coalesced(),
    )


def _cloned(recorder: Recorder, tensor: torch.Tensor, **_: Any) -> Any:
    indices, values = parts_of_sparse(recorder, tensor)
    return _made(tensor, indices.clone(), values.clone(), tensor.is_coalesced())


def _coalesced(recorder: Recorder, tensor: torch.Tensor) -> Any:
    """Sorted, with equal places summed. CUDA sorts numbers of the places and their origins (coalesce_sparse_cuda)."""
    indices, values = parts_of_sparse(recorder, tensor)
    ledger = recorder.ledger
    ledger.assume("coalesce depends on data: its largest possible size is taken", about_data=True)
    module, source = recorder.scope.here()
    nbytes = 8 * indices.shape[1]
    scratch = [ledger.allocate(nbytes, Category.WORKSPACE, "aten._coalesce", module, source) for _ in range(3)]
    out = _made(tensor, torch.empty_like(indices), torch.empty_like(values), True)
    for block in reversed(scratch):
        ledger.free(block)
    return out


def _masked(recorder: Recorder, dense: torch.Tensor, mask: torch.Tensor) -> Any:
    """The elements of a dense tensor at the places of a sparse one, whose indices are shared."""
    indices, values = parts_of_sparse(recorder, mask)
    return _made(mask, indices, torch.empty(values.shape, dtype=dense.dtype, device=values.device), mask.is_coalesced())


_RULES: dict[Any, Any] = by_operator(
    {"_to_copy": _moved, "clone": _cloned, "_coalesce": _coalesced, "sparse_mask": _masked}
)
