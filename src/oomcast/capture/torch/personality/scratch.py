"""Buffers that CUDA's kernels take for themselves and give back: no operator's output shows them.

Each formula follows the source named in `INTERNAL_SCRATCH`. Copies that a kernel makes of its arguments belong here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ..operator_names import by_operator
from . import ctc as _ctc
from . import recurrent as _recurrent
from . import vision as _vision
from .platforms import on_virtual_gpu

__all__ = ["INTERNAL_SCRATCH", "internal_scratch"]

_HALVES = (torch.float16, torch.bfloat16)
_FLOAT = 4
_EMBEDDING_SORTS_FROM = 3072
_EMBEDDING_ROWS = 10
_SMALL_SORT = 4096

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Formula = Callable[[Args, Kwargs], tuple[int, ...]]


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _bytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.itemsize)


def _copies(*tensors: torch.Tensor) -> list[int]:
    """Attention kernels work on (batch, tokens, heads, head): what is laid out otherwise is copied."""
    return [_bytes(tensor) for tensor in tensors if not tensor.transpose(1, 2).is_contiguous()]


def _flash_backward(args: Args, kwargs: Kwargs) -> tuple[int, ...]:
    grad, query, key, _, out = args[:5]
    batch, heads, tokens, head = query.shape
    rows, width = _up(tokens, 128), _up(head, 32 if head <= 128 else 64)
    sizes = [*_copies(grad, out), batch * heads * rows * _FLOAT, batch * rows * heads * width * _FLOAT]
    if key.shape[1] != heads:
        sizes += [batch * key.shape[2] * heads * head * key.itemsize] * 2
    return tuple(sizes)


def _efficient_forward(args: Args, kwargs: Kwargs) -> tuple[int, ...]:
    """Heads wider than 128 do not fit the registers: half outputs are accumulated in an fp32 buffer."""
    query, value = args[0], args[2]
    if query.dtype not in _HALVES or max(query.shape[3], value.shape[3]) <= 128:
        return ()
    return (math.prod(query.shape[:3]) * value.shape[3] * _FLOAT,)


def _efficient_backward(args: Args, kwargs: Kwargs) -> tuple[int, ...]:
    """Two phases: the row sums of gradient times output, then the kernel with its workspace. The larger one counts."""
    grad, query, key, value = args[:4]
    batch, heads, tokens, head = query.shape
    keys, value_head = key.shape[2], value.shape[3]
    half = query.dtype in _HALVES
    copies = _copies(grad)
    delta = batch * heads * tokens * _FLOAT
    workspace = batch * heads * _efficient_workspace(batch * heads, tokens, keys, head, value_head, half) * _FLOAT
    kernel = [*copies, delta, workspace]
    if half:
        return tuple(kernel)
    sums = [*copies, math.prod(query.shape[:3]) * value_head * _FLOAT, delta, delta]
    return tuple(max(kernel, sums, key=sum))


def _efficient_workspace(pairs: int, queries: int, keys: int, head: int, value_head: int, half: bool) -> int:
    """fp32 values for one batch entry and head, on Ampere and later."""
    widest = max(head, value_head)
    if widest <= 64:
        rows, columns = 64, 64
    elif widest <= 128:
        rows, columns = 128, 128 if half else 64
    else:
        rows, columns = 128, 64
    splits = -(-keys // columns)
    if pairs * splits >= 256 and keys <= 2 * columns:
        splits = 1
    in_memory = half and widest > rows
    if in_memory:
        splits = min(splits, 200 // pairs)
    splits = max(splits, 1)
    values = -(-queries // rows) * -(-head // columns) * (rows * columns + 4)
    if in_memory:
        values += splits * columns * (_up(head, rows) + _up(value_head, rows))
    return _up(values, 4)


def _cudnn_backward(args: Args, kwargs: Kwargs) -> tuple[int, ...]:
    query, key, value = args[1:4]
    batch, heads, tokens, head = query.shape
    sizes = [batch * heads * tokens * _FLOAT, batch * heads * tokens * head * _FLOAT]
    if key.shape[1] != heads:
        sizes += [batch * heads * key.shape[2] * (head + value.shape[3]) * key.itemsize]
    return tuple(sizes)


def _safe_softmax(args: Args, kwargs: Kwargs) -> tuple[int, ...]:
    return (args[0].numel(), args[0].numel() // max(args[0].shape[args[1]], 1))


def _embedding_backward(args: Args, kwargs: Kwargs) -> tuple[int, ...]:
    grad, indices, weights = args[:3]
    count, width = indices.numel(), grad.shape[-1]
    by_frequency = args[4] if len(args) > 4 else kwargs.get("scale_grad_by_freq", False)
    copies = [] if grad.is_contiguous() else [_bytes(grad)]
    if count <= _EMBEDDING_SORTS_FROM and not by_frequency:
        return tuple(copies)
    index = count * indices.itemsize
    segments = min(count, weights)
    partial = count // _EMBEDDING_ROWS + segments
    table = segments * indices.itemsize
    per_value = 8 if grad.dtype == torch.float64 else _FLOAT
    return (*copies, index, index, table, table, table, partial * indices.itemsize, partial * width * per_value)


def _softmax_backward(args: Args, kwargs: Kwargs) -> tuple[int, ...]:
    return (_bytes(args[0]),)


def _contiguous_gradient(args: Args, kwargs: Kwargs) -> tuple[int, ...]:
    """The gradient of a sum or a mean is one value expanded: a kernel that wants it laid out makes a copy."""
    return () if args[0].is_contiguous() else (_bytes(args[0]),)


def _sort(args: Args, kwargs: Kwargs) -> tuple[int, ...]:
    """Long rows are sorted segment by segment: the original positions, and cub's second set of keys and values."""
    values = args[0]
    dim = kwargs.get("dim", args[1] if len(args) > 1 and not isinstance(args[1], bool) else -1)
    if values.dim() == 0 or values.shape[dim] <= _SMALL_SORT:
        return ()
    positions = values.numel() * 8
    return positions, values.numel() * values.itemsize + positions


def _accumulating_index_put(args: Args, kwargs: Kwargs) -> tuple[int, ...]:
    """Indices that may recur are sorted first: linear indices, positions, sorted both, and cub's second set."""
    indices, values = args[1], args[2]
    if not (args[3] if len(args) > 3 else kwargs.get("accumulate", False)):
        return ()
    counts = [index.numel() for index in indices if isinstance(index, torch.Tensor)]
    copies = [] if values.is_contiguous() else [_bytes(values)]
    return (*copies, *[max(counts, default=0) * 8] * 6)


def _bce_with_logits(args: Args, kwargs: Kwargs) -> tuple[int, ...]:
    """The log-sigmoid, and the unreduced loss."""
    weighted = len(args) > 3 and args[3] is not None
    return (_bytes(args[0]),) * (3 if weighted else 2)


_FORMULAS: dict[Any, tuple[Formula, str]] = by_operator(
    {
        "_scaled_dot_product_flash_attention_backward": (
            _flash_backward,
            "softmax_d and dq_accum in fp32 with tokens rounded to 128 and heads to 32 (64 above 128); dk, dv of all "
            "query heads for grouped queries; contiguous gradient and output: flash_api.cpp mha_bwd, "
            "attention_backward.cu",
        ),
        "_scaled_dot_product_efficient_attention": (
            _efficient_forward,
            "output accumulator for heads above 128 in half: mem_eff_attention/kernel_forward.h, attention.cu",
        ),
        "_scaled_dot_product_efficient_attention_backward": (
            _efficient_backward,
            "delta, and the accumulators of dq (dk, dv for wide halves): mem_eff_attention/kernel_backward.h, "
            "attention_backward.cu",
        ),
        "_scaled_dot_product_cudnn_attention_backward": (
            _cudnn_backward,
            "row sums and dq accumulator in fp32, dk and dv of all query heads for grouped queries: the graph of "
            "cudnn-frontend's scaled_dot_product_flash_attention; cuDNN may ask for another size",
        ),
        "_safe_softmax": (_safe_softmax, "boolean masks of scores and rows: transformers/attention.cpp"),
        "embedding_dense_backward": (
            _embedding_backward,
            "above 3072 indices: sorted indices, segment tables, partial sums in fp32: EmbeddingBackwardKernel.cu",
        ),
        "_softmax_backward_data": (_softmax_backward, "gradient times output: cuda/SoftMax.cu"),
        **dict.fromkeys(
            (
                "native_layer_norm_backward",
                "native_group_norm_backward",
                "_fused_rms_norm_backward",
            ),
            (_contiguous_gradient, "a contiguous copy of the gradient: cuda/layer_norm_kernel.cu, group_norm.cpp"),
        ),
        **dict.fromkeys(
            ("sort", "sort.stable"),
            (_sort, "above 4096 values a row: positions and cub's double buffer: cuda/Sort.cpp, cuda/SortStable.cu"),
        ),
        **dict.fromkeys(
            ("index_put_", "index_put", "_index_put_impl_"),
            (_accumulating_index_put, "sorted indices, a contiguous copy of the values: cuda/Indexing.cu"),
        ),
        "binary_cross_entropy_with_logits": (_bce_with_logits, "log-sigmoid and unreduced loss: Loss.cpp"),
        **{
            name: (formula, "inputs with time steps first, workspace (assumed): cudnn/RNN.cpp")
            for name, formula in _recurrent.SCRATCH.items()
        },
        **{name: (formula, "the backward variables: cuda/LossCTC.cu") for name, formula in _ctc.SCRATCH.items()},
    }
)

INTERNAL_SCRATCH: dict[Any, str] = {op: source for op, (_, source) in _FORMULAS.items()}
"""Operator → what its kernel allocates inside, and the source (under aten/src/ATen/native)."""


class _OfLateOperators(dict[Any, Any]):
    """Operators of libraries that a job loads when it pleases: looked up by name when one is first met."""

    def __missing__(self, func: Any) -> Any:
        found = self[func] = _vision.SCRATCH.get(func.name(), (None, ""))
        return found


_known = _OfLateOperators(_FORMULAS)


def internal_scratch(func: Any, args: Args, kwargs: Kwargs, out: Any) -> tuple[int, ...]:
    """Bytes of each buffer that the kernel holds while it runs, beside its outputs; empty for operators without any."""
    formula, _ = _known[func]
    if formula is None or not on_virtual_gpu(args[0]):
        return ()
    return tuple(size for size in formula(args, kwargs) if size)
