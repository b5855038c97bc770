"""Scratch of CUDA's reductions: partial results of outputs that several thread blocks share.

A long reduction with few outputs is split over thread blocks; what each found goes through a buffer in global memory,
with a counter for each group of blocks. Over a strided dimension (the gradient of a bias, a transposed layout) that
buffer is blocks x outputs x 128 values: 100 MB and more. Follows aten/src/ATen/native/cuda/Reduce.cuh
(`setReduceConfig`, `global_memory_size`, `semaphore_size`), and TensorIterator's order of dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ....devices import Gpu
from ..operator_names import by_operator

__all__ = ["REDUCTIONS", "Reduction", "reduction_scratch"]

_THREADS = 512
_WARP = 32
_VECTOR = 4
_LEAST_VALUES, _MOST_VALUES = 16, 256


class Reduction(NamedTuple):
    """How an operator reduces: which argument tells the dimensions, and the bytes of one partial result."""

    dims_at: int | None
    """Position of `dim`; None: all dimensions."""
    partial: int | None = None
    """Bytes of a partial result; None: of the accumulation type."""
    values_per_load: int = 4
    """`vt0`: the reductions that carry more (indices, Welford) do not vectorise along the input."""


_SUM_LIKE = Reduction(1)
_WITH_INDEX = Reduction(1, 16, 4)
_WELFORD = Reduction(1, 16, 2)

REDUCTIONS: dict[Any, Reduction] = by_operator(
    {
        "sum": Reduction(None),
        "sum.dim_IntList": _SUM_LIKE,
        "nansum": _SUM_LIKE,
        "mean": Reduction(None),
        "mean.dim": _SUM_LIKE,
        "prod": Reduction(None),
        "prod.dim_int": _SUM_LIKE,
        "linalg_vector_norm": Reduction(2),
        "norm.ScalarOpt_dim": Reduction(2),
        "amax": _SUM_LIKE,
        "amin": _SUM_LIKE,
        "max": Reduction(None),
        "min": Reduction(None),
        "max.dim": _WITH_INDEX,
        "min.dim": _WITH_INDEX,
        "argmax": _WITH_INDEX,
        "argmin": _WITH_INDEX,
        "any": Reduction(None, 1),
        "any.dim": Reduction(1, 1),
        "all": Reduction(None, 1),
        "all.dim": Reduction(1, 1),
        "var.correction": _WELFORD,
        "std.correction": _WELFORD,
        "var_mean.correction": _WELFORD,
        "std_mean.correction": _WELFORD,
    }
)

_DOUBLES = {torch.float64: 8, torch.int64: 8, torch.complex64: 8, torch.complex128: 16}


def _accumulated(dtype: torch.dtype) -> int:
    if not dtype.is_floating_point and not dtype.is_complex:
        return 8
    return _DOUBLES.get(dtype, 4)


def reduction_scratch(func: Any, args: Sequence[Any], kwargs: dict[str, Any], gpu: Gpu) -> tuple[int, ...]:
    """The buffer and its counters; nothing for reductions that one thread block finishes."""
    rule = REDUCTIONS.get(func)
    if rule is None:
        return ()
    tensor = args[0]
    partial = rule.partial or _accumulated(kwargs.get("dtype") or tensor.dtype)
    dims = None if rule.dims_at is None else _argument(args, kwargs, rule.dims_at, "dim")
    threads = gpu.max_threads_per_multiprocessor
    return _scratch(tensor, dims, partial, rule.values_per_load, gpu.multiprocessors, threads)


def _argument(args: Sequence[Any], kwargs: dict[str, Any], position: int, name: str) -> Any:
    return args[position] if len(args) > position else kwargs.get(name)


def _loops(tensor: torch.Tensor, dims: Any) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(extent, stride) of the reduced loops and of the others: the fastest first, neighbours fused where possible."""
    count = tensor.dim()
    chosen = range(count) if dims is None or dims == [] or dims == () else [dims] if isinstance(dims, int) else dims
    reduced = {dim % count for dim in chosen} if count else set()
    groups: list[list[tuple[int, int]]] = [[], []]
    places: list[list[int]] = [[], []]
    extents, strides = tuple(tensor.shape), tensor.stride()
    for dim in range(count):
        if extents[dim] != 1:
            places[dim not in reduced].append(dim)
    for group, members in zip(groups, places, strict=True):
        # Of equal strides the last dimension comes first, hence the reversal.
        for dim in sorted(reversed(members), key=lambda d: strides[d]):  # noqa: C414
            extent, stride = extents[dim], strides[dim]
            # The output is laid out in the order of dimensions, so loops of outputs fuse only where that agrees too.
            if group and group[-1][0] * group[-1][1] == stride:
                group[-1] = (group[-1][0] * extent, group[-1][1])
            else:
                group.append((extent, stride))
    return groups[0], groups[1]


def _power_of_two(value: int) -> int:
    return 1 << (max(value, 1).bit_length() - 1)


def _scratch(
    tensor: torch.Tensor, dims: Any, partial: int, values_per_load: int, multiprocessors: int, threads: int
) -> tuple[int, ...]:
    reduced, kept = _loops(tensor, dims)
    inputs = math.prod(extent for extent, _ in reduced)
    outputs = math.prod(extent for extent, _ in kept)
    if inputs <= 1 or outputs == 0:
        return ()
    along_input = not kept or reduced[0][1] < kept[0][1]
    dim0, dim1 = (inputs, outputs) if along_input else (outputs, inputs)
    fastest = reduced[0][1] if along_input else kept[0][1]
    output_vector = 1
    if fastest == 1:
        if along_input:
            if dim0 > 128 and len(reduced) + len(kept) == 1 and values_per_load >= _VECTOR:
                dim0 //= _VECTOR
        else:
            output_vector = _output_vector(tensor, reduced, kept)
            dim0 //= output_vector
    most = _THREADS // output_vector
    wide, high = min(_power_of_two(dim0), most), min(_power_of_two(dim1), most)
    width = min(wide, _WARP)
    height = min(high, most // width)
    width = min(wide, most // height)
    step_input, step_output = (width, 1) if along_input else (1, width)
    values = -(-inputs // step_input)
    split_across_warps = values >= min(height * 16, _MOST_VALUES)
    if split_across_warps:
        step_input *= height
    else:
        step_output *= height
    values = -(-inputs // step_input)
    grid = -(-(outputs // output_vector) // step_output)
    target = multiprocessors * (threads // (width * height))
    if not split_across_warps or values < _MOST_VALUES or grid > target:
        return ()
    blocks = max(min(-(-target // grid), -(-values // _LEAST_VALUES)), -(-values // _MOST_VALUES))
    if blocks <= 1:
        return ()
    size = partial * outputs * blocks
    if not along_input:
        size *= width * output_vector
    return size, 4 * grid


def _output_vector(tensor: torch.Tensor, reduced: list[tuple[int, int]], kept: list[tuple[int, int]]) -> int:
    """How many outputs one load serves: 4, or less where extents, strides or the start do not divide."""
    size = _VECTOR
    numbers = [tensor.storage_offset(), kept[0][0], *(stride for _, stride in (*reduced, *kept[1:]))]
    for number in numbers:
        while number % size:
            size //= 2
    return size
