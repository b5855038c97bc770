"""Operators that need more than a fake kernel: those that read values, and those whose output size depends on them.

A rule gets (recorder, func, args, kwargs) and answers NotImplemented to let the normal path go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ...trace import Phase
from .bounds import different_values
from .errors import GpuIndexError
from .operator_names import by_operator

if TYPE_CHECKING:
    from .recorder import Recorder

__all__ = ["LATE_KERNELS", "RULES"]


def _read_scalar(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if not isinstance(args[0], FakeTensor):
        return NotImplemented
    recorder.synchronize()
    line = recorder.scope.user_line()
    return recorder.values.read(args[0], f" at {line}" if line else "")


def _equal(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    left, right = recorder.values.of(args[0]), recorder.values.of(args[1])
    if left is not None and right is not None:
        return torch.equal(left, right)
    recorder.ledger.assume("two tensors were compared by torch.equal: taken as different")
    return args[0] is args[1]


def _quantifier(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Remember that a condition came from `all` or `any`: unknown, checks pass, and work is done."""
    if not isinstance(args[0], FakeTensor):
        return NotImplemented
    out = recorder.run_fake(func, (FakeTensor,), args, kwargs)
    recorder.hold_all(func, out)
    recorder.values.note_origin(func, out)
    recorder.values.follow(func, args, kwargs, out)
    return out


def _new(like: torch.Tensor, shape: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype or like.dtype, device=like.device)


def _bounded(name: str, make: Any) -> Any:
    """An operator whose output size depends on data: exact where the values are known, else the stated bound."""

    def rule(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if not any(isinstance(tensor, FakeTensor) for tensor in tensors):
            return NotImplemented
        values = [recorder.values.of(tensor) for tensor in tensors]
        if all(value is not None for value in values):
            replaced = iter(values)
            real_args = [next(replaced) if isinstance(arg, torch.Tensor) else arg for arg in args]
            real = func(*real_args, **kwargs)
            out = _as_fakes(recorder, tensors[0], real)
        else:
            with recorder.fake_mode:
                out = make(*args, **kwargs)
            recorder.ledger.assume(f"{name} depends on data: its largest possible size is taken", about_data=True)
            if make is _nonzero and recorder.values.small_enough(out.numel(), out.dtype):
                # All are taken, so it is known which they are: what is gathered by them agrees with the assumption.
                recorder.values.know(out, torch.ones(args[0].shape, dtype=torch.bool).nonzero())
        recorder.hold_all(func, out)
        return out

    return rule


def _as_fakes(recorder: Recorder, like: torch.Tensor, real: Any) -> Any:
    if isinstance(real, torch.Tensor):
        with recorder.fake_mode:
            fake = torch.empty(real.shape, dtype=real.dtype, device=like.device)
        recorder.values.know(fake, real)  # type: ignore[arg-type]
        return fake
    return type(real)(_as_fakes(recorder, like, item) for item in real)


def _nonzero(x: torch.Tensor) -> Any:
    return _new(x, (x.numel(), x.dim()), torch.int64)


def _masked_select(x: torch.Tensor, mask: torch.Tensor) -> Any:
    return _new(x, (torch.broadcast_shapes(x.shape, mask.shape).numel(),))


def _selected(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """How many are selected is the mask's to say, whatever is selected from."""
    x, mask = args[:2]
    known = recorder.values.of(mask)
    if known is None or not isinstance(x, FakeTensor) or recorder.values.of(x) is not None:
        return _bounded("masked_select", _masked_select)(recorder, func, args, kwargs)
    count = int(known.broadcast_to(torch.broadcast_shapes(x.shape, mask.shape)).sum())
    with recorder.fake_mode:
        out = _new(x, (count,))
    recorder.hold_all(func, out)
    return out


def _unique(x: torch.Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    none = _new(x, (0,), torch.int64)
    most = different_values(x) or x.numel()
    return (
        _new(x, (most,)),
        _new(x, x.shape, torch.int64) if return_inverse or return_counts else none,
        _new(x, (most,), torch.int64) if return_counts else none,
    )


def _unique_dim(x: torch.Tensor, dim: int, *args: Any) -> Any:
    return (_new(x, x.shape), _new(x, (x.shape[dim],), torch.int64), _new(x, (x.shape[dim],), torch.int64))


def _unique_consecutive(
    x: torch.Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    return _unique(x, True, return_inverse, return_counts)


def _repeat_interleave(repeats: torch.Tensor, *, output_size: int | None = None) -> Any:
    return _new(repeats, (output_size if output_size is not None else repeats.numel(),), torch.int64)


def _bincount(x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> Any:
    dtype = weights.dtype if weights is not None else torch.int64
    # Who says how many bins there must be knows how many there are: experts, classes.
    return _new(x, (minlength or x.numel(),), dtype)


def _index(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`x[mask]`: CUDA turns each mask into its indices first, and then gathers."""
    indices = args[1]
    if not any(isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices):
        return NotImplemented
    if not any(isinstance(t, FakeTensor) for t in (args[0], *indices)):
        return NotImplemented
    expanded: list[Any] = []
    with recorder:
        for index in indices:
            if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
                places = index.to(args[0].device).nonzero()
                expanded.extend(places[:, axis] for axis in range(index.dim()))
            else:
                expanded.append(index)
        return func(args[0], expanded, *args[2:], **kwargs)


def _finite(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`isnan`, `isinf`: nothing is, so that checks which count them pass."""
    if not isinstance(args[0], FakeTensor):
        return NotImplemented
    out = recorder.run_fake(func, (FakeTensor,), args, kwargs)
    recorder.hold_all(func, out)
    recorder.values.know(out, torch.zeros((), dtype=torch.bool).expand(out.shape))
    return out


def _pack_padded(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Made of other operators, one for each length; unknown lengths are the longest possible."""
    data, lengths, *rest = args
    if not isinstance(data, FakeTensor):
        return NotImplemented
    known = recorder.values.of(lengths)
    if known is None:
        batch_first = bool(rest[0] if rest else kwargs.get("batch_first", False))
        recorder.ledger.assume(
            "the lengths of packed sequences depend on data: all taken as the longest", about_data=True
        )
        known = torch.full(lengths.shape, data.shape[1 if batch_first else 0], dtype=torch.int64)
    with recorder:
        return func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, data, known, *rest, **kwargs)


def _grouped_mm(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """torch's own fake kernel takes bf16 only; CUDA's multiplies group by group in the other types, into one output."""
    left, right = args[:2]
    if not isinstance(left, FakeTensor) or left.dtype == torch.bfloat16:
        return NotImplemented
    if torch.is_grad_enabled() and recorder.ledger.phase is Phase.FORWARD:
        recorder.scope.remember_node()
    rows, columns = left.shape[-2], right.shape[-1]
    if left.dim() == right.dim():
        offsets = args[2] if len(args) > 2 else kwargs.get("offs")
        groups = left.shape[0] if left.dim() == 3 or offsets is None else offsets.shape[0]
        shape: tuple[int, ...] = (groups, rows, columns)
    else:
        shape = (rows, columns)
    to_16_bytes = 16 // left.element_size()
    width = -(-columns // to_16_bytes) * to_16_bytes
    strides = (rows * width, width, 1)[-len(shape) :]
    with recorder.fake_mode:
        out = torch.empty_strided(shape, strides, dtype=left.dtype, device=left.device)
    recorder.hold_all(func, out)
    return out


def _unscale(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """GradScaler looks for infinities: there are none, so the optimizer steps, as in all but the first few steps."""
    found = args[1]
    if isinstance(found, FakeTensor):
        recorder.values.know(found, torch.zeros((), dtype=found.dtype))
    return None


def _update_scale(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return args[0]


def _embedding(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """A GPU stops at an index beyond the table (more tokens than positions); so does this, where values are known."""
    rows, indices = args[0].shape[0], recorder.values.of(args[1])
    if indices is not None and indices.numel() and isinstance(args[0], FakeTensor):
        highest = int(indices.max())
        if highest >= rows:
            raise GpuIndexError(f"index {highest} is out of range for an embedding of {rows} rows")
    return NotImplemented


def _nms(recorder: Recorder, args: Any) -> torch.Tensor:
    boxes = args[0]
    recorder.ledger.assume("nms depends on data: all boxes are kept", about_data=True)
    with recorder.fake_mode:
        return _new(boxes, (boxes.shape[0],), torch.int64)


LATE_KERNELS: dict[str, Any] = {"torchvision::nms": _nms}
"""Of libraries that a job loads when it pleases, by name: operators whose output size depends on data."""

RULES: dict[Any, Any] = by_operator(
    {
        "embedding": _embedding,
        "_amp_foreach_non_finite_check_and_unscale_": _unscale,
        "_amp_update_scale_": _update_scale,
        "_local_scalar_dense": _read_scalar,
        "equal": _equal,
        "all": _quantifier,
        "all.dim": _quantifier,
        "any": _quantifier,
        "any.dim": _quantifier,
        "_is_all_true": _quantifier,
        "_pack_padded_sequence": _pack_padded,
        "nonzero": _bounded("nonzero", _nonzero),
        "masked_select": _selected,
        "_unique2": _bounded("unique", _unique),
        "unique_dim": _bounded("unique", _unique_dim),
        "unique_consecutive": _bounded("unique_consecutive", _unique_consecutive),
        "repeat_interleave.Tensor": _bounded("repeat_interleave", _repeat_interleave),
        "bincount": _bounded("bincount", _bincount),
        "index.Tensor": _index,
        "index_put": _index,
        "index_put_": _index,
        "_index_put_impl_": _index,
        "isnan": _finite,
        "isinf": _finite,
        "_grouped_mm": _grouped_mm,
    }
)
