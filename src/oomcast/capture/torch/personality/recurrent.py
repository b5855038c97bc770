"""Recurrent layers as CUDA runs them: one cuDNN call for all layers and time steps.

`lstm`, `gru`, `rnn_tanh` and `rnn_relu`, padded or packed, go to `_cudnn_rnn` unless cuDNN is switched off
(aten/src/ATen/native/RNN.cpp, cudnn/RNN.cpp, aten/src/ATen/cudnn/AutocastRNN.cpp). torch has no complete fake kernels
for cuDNN's recurrent operators, so they are here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .autocast import cached_cast, without_autocast
from .overrides import Overrides, composite
from .platforms import current_platform, on_virtual_gpu
from .recurrent_native import layers_without_cudnn

__all__ = ["FAKE_KERNELS", "SCRATCH", "assumptions", "install"]

_aten = torch.ops.aten
_rnn_op = _aten._cudnn_rnn.default

_RELU, _TANH, _LSTM, _GRU = range(4)
_GATES = {_RELU: 1, _TANH: 1, _LSTM: 4, _GRU: 3}
_RESERVED = {_RELU: 2, _TANH: 2, _LSTM: 6, _GRU: 5}
_DROPOUT_STATE_BYTES = 2 * 2**20 + 2**16

_SIZES = (
    "cuDNN keeps, for the backward pass of a recurrent layer, per time step and direction 6 values a hidden unit for "
    "LSTM, 5 for GRU, 2 for plain RNN; with dropout, one value and one byte more between layers",
    "cuDNN's workspace for a recurrent layer is the gates of one layer for all time steps",
)
_DROPOUT_STATE = "the state of cuDNN's dropout for recurrent layers takes slightly over 2 MiB"


def assumptions(func: Any, args: tuple[Any, ...]) -> tuple[str, ...]:
    """What this call is modelled by without a source: cuDNN tells these sizes only with a device."""
    if func is not _rnn_op:
        return ()
    return _SIZES if args[-1] is None else (*_SIZES, _DROPOUT_STATE)


def install(overrides: Overrides) -> None:
    """Put cuDNN's recurrent layers in place."""
    states = _DropoutStates()
    for name, mode in (("lstm", _LSTM), ("gru", _GRU), ("rnn_tanh", _TANH), ("rnn_relu", _RELU)):
        overrides.add(f"{name}.input", _padded(getattr(_aten, name).input, mode, states), "AutogradCPU")
        overrides.add(f"{name}.data", _packed(getattr(_aten, name).data, mode, states), "AutogradCPU")
    overrides.add("_cudnn_rnn", _autocast_rnn, "AutocastCPU")


def _takes_cudnn(input: torch.Tensor) -> bool:
    """torch asks for no dtype since it lets bf16 through (checked in the binary of 2.13)."""
    return bool(current_platform().cudnn and torch.backends.cudnn.enabled and input.numel())


def _padded(op: Any, mode: int, states: _DropoutStates) -> Callable[..., Any]:
    usual = composite(op)

    def layers(input: torch.Tensor, hx: Any, params: list[torch.Tensor], biases: bool, *options: Any) -> Any:
        if not on_virtual_gpu(input):
            return usual(input, hx, params, biases, *options)
        if not _takes_cudnn(input):
            return layers_without_cudnn(usual, mode == _LSTM, input, hx, params, biases, *options)
        return _cudnn(states, mode, [], input, hx, params, biases, *options)

    return layers


def _packed(op: Any, mode: int, states: _DropoutStates) -> Callable[..., Any]:
    usual = composite(op)

    def layers(
        data: torch.Tensor, batch_sizes: torch.Tensor, hx: Any, params: list[torch.Tensor], biases: bool, *options: Any
    ) -> Any:
        if not on_virtual_gpu(data) or not _takes_cudnn(data):
            return usual(data, batch_sizes, hx, params, biases, *options)
        return _cudnn(states, mode, _sizes(batch_sizes, hx), data, hx, params, biases, *options)

    return layers


def _sizes(batch_sizes: torch.Tensor, hx: Any) -> list[int]:
    """The sequences alive at each step; of a fake only the number of steps is known, so the widest batch stands in."""
    if isinstance(batch_sizes, FakeTensor):
        if batch_sizes.constant is None:
            first = hx[0] if isinstance(hx, (list, tuple)) else hx
            return [int(first.shape[1])] * batch_sizes.shape[0]
        batch_sizes = batch_sizes.constant
    return [int(size) for size in batch_sizes.tolist()]


class _DropoutStates:
    """torch keeps one state a device, made at the first use, for good."""

    def __init__(self) -> None:
        self._state: Any = None

    def get(self, input: torch.Tensor) -> torch.Tensor:
        if self._state is None or getattr(self._state, "fake_mode", None) is not getattr(input, "fake_mode", None):
            self._state = torch.empty(_DROPOUT_STATE_BYTES, dtype=torch.uint8, device=input.device)
        return self._state


def _cudnn(
    states: _DropoutStates,
    mode: int,
    batch_sizes: list[int],
    input: torch.Tensor,
    hx: Any,
    params: list[torch.Tensor],
    biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool = False,
) -> tuple[torch.Tensor, ...]:
    hidden, cell = (hx[0], hx[1]) if mode == _LSTM else (hx, None)
    size, projection = hidden.shape[2], 0
    if cell is not None and cell.shape[2] != size:
        size, projection = cell.shape[2], size
    per_layer = (4 if biases else 2) + bool(projection)
    state = states.get(input) if train and dropout > 0 else None
    # `flatten_parameters` has made the weights views of one buffer: any of them stands for it.
    flat = params[0].detach()
    options = (size, projection, num_layers, batch_first, dropout, train, bidirectional, batch_sizes, state)
    output, hy, cy, _, _ = _rnn_op(input, params, per_layer, flat, hidden, cell, mode, *options)
    return (output, hy, cy) if mode == _LSTM else (output, hy)


def _autocast_rnn(
    input: torch.Tensor, weight: list[torch.Tensor], stride: int, flat: Any, hx: torch.Tensor, cx: Any, *options: Any
) -> Any:
    """Under autocast the weights are copied, cast, into a new flat buffer at each call; autograd sees the copies."""
    dtype = torch.get_autocast_dtype("cpu")
    if on_virtual_gpu(input) and weight[0].dtype != dtype and weight[0].dtype != torch.float64:
        flat = torch.zeros(sum(tensor.numel() for tensor in weight), dtype=dtype, device=input.device)
        weight = [view.copy_(tensor) for view, tensor in zip(_split(flat, weight), weight, strict=True)]
    input, hx = cached_cast(input), cached_cast(hx)
    cx = cached_cast(cx) if cx is not None else None
    with without_autocast():
        return _rnn_op(input, weight, stride, flat, hx, cx, *options)


def _split(flat: torch.Tensor, like: list[torch.Tensor]) -> list[torch.Tensor]:
    """The flat buffer as tensors of these shapes, unrelated for autograd."""
    parts, start = [], 0
    for tensor in like:
        parts.append(flat.detach().narrow(0, start, tensor.numel()).view(tensor.shape).detach())
        start += tensor.numel()
    return parts


def _geometry(input: torch.Tensor, batch_first: bool, batch_sizes: list[int]) -> tuple[int, int]:
    """Tokens (time steps times batch) and the batch."""
    if batch_sizes:
        return input.shape[0], batch_sizes[0]
    return input.shape[0] * input.shape[1], input.shape[0 if batch_first else 1]


def _steps_first(shape: tuple[int, ...], like: torch.Tensor, batch_first: bool) -> torch.Tensor:
    """A tensor as cuDNN makes it: time steps outermost, also where the batch comes first."""
    if batch_first and len(shape) == 3:
        batch, steps, width = shape
        return torch.empty(steps, batch, width, dtype=like.dtype, device=like.device).transpose(0, 1)
    return torch.empty(shape, dtype=like.dtype, device=like.device)


def _reserve_bytes(
    mode: int, tokens: int, size: int, layers: int, directions: int, itemsize: int, dropout: bool
) -> int:
    units = tokens * size * directions
    between = (layers - 1) * units * (itemsize + 1) if dropout else 0
    return layers * units * _RESERVED[mode] * itemsize + between


def _fake_rnn(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    input, weight, _, flat, hx, cx, mode, size, projection, layers, batch_first = args[:11]
    dropout, train, bidirectional, batch_sizes = args[11:15]
    directions = 2 if bidirectional else 1
    tokens, batch = _geometry(input, batch_first, batch_sizes)
    out_size = projection or size
    output = _steps_first((*input.shape[:-1], out_size * directions), input, batch_first and not batch_sizes)
    hy = torch.empty(layers * directions, batch, out_size, dtype=hx.dtype, device=hx.device)
    cell_shape = (layers * directions, batch, size) if cx is not None else (0,)
    cy = torch.empty(cell_shape, dtype=hx.dtype, device=hx.device)
    reserved = 0
    if train:
        reserved = _reserve_bytes(mode, tokens, size, layers, directions, input.itemsize, dropout > 0)
    reserve = torch.empty(reserved, dtype=torch.uint8, device=input.device)
    if flat is None:
        flat = torch.empty(sum(tensor.numel() for tensor in weight), dtype=input.dtype, device=input.device)
    return output, hy, cy, reserve, flat


def _fake_rnn_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    input, weight, hx, cx = args[0], args[1], args[4], args[5]
    batch_first, batch_sizes, mask = args[14], args[18], args[21]
    if all(grad is None for grad in args[7:10]):
        return None, None, None, [None] * len(weight)
    dx = _steps_first(tuple(input.shape), input, batch_first and not batch_sizes)
    dhx = torch.empty_like(hx)
    dcx = torch.empty_like(cx) if cx is not None else None
    if not mask[3]:
        return dx, dhx, dcx, []
    flat = torch.zeros(sum(tensor.numel() for tensor in weight), dtype=weight[0].dtype, device=input.device)
    return dx, dhx, dcx, _split(flat, weight)


def _fake_flatten(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The flat buffer. On CUDA the weights become views of it and their old memory is freed: the sum stays the same."""
    weight = args[0]
    return torch.zeros(sum(tensor.numel() for tensor in weight), dtype=weight[0].dtype, device=weight[0].device)


def _fake_dropout_state(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return torch.empty(_DROPOUT_STATE_BYTES, dtype=torch.uint8, device=kwargs.get("device"))


FAKE_KERNELS: dict[Any, Callable[..., Any]] = {
    _rnn_op: _fake_rnn,
    _aten._cudnn_rnn_backward.default: _fake_rnn_backward,
    _aten._cudnn_rnn_flatten_weight.default: _fake_flatten,
    _aten._cudnn_init_dropout_state.default: _fake_dropout_state,
}


def _workspace(mode: int, input: torch.Tensor, size: int, bidirectional: bool) -> int:
    tokens = math.prod(input.shape[:-1])
    return _GATES[mode] * tokens * size * (2 if bidirectional else 1) * input.itemsize


def _bytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.itemsize)


def _rnn_scratch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """The input with time steps first (a copy where the batch comes first), and the workspace."""
    input, mode, size, batch_first, bidirectional, batch_sizes = (*(args[i] for i in (0, 6, 7, 10, 13, 14)),)
    copied = batch_first and not batch_sizes
    return (*([_bytes(input)] if copied else []), _workspace(mode, input, size, bidirectional))


def _rnn_backward_scratch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """Copies of input and gradient with time steps first, zeros for gradients that did not come, the workspace."""
    input, hx, cx, output, grad_output, grad_hy, grad_cy = (*(args[i] for i in (0, 4, 5, 6, 7, 8, 9)),)
    mode, size, batch_first, bidirectional, batch_sizes = (*(args[i] for i in (10, 11, 14, 17, 18)),)
    sizes = [_workspace(mode, input, size, bidirectional)]
    if batch_first and not batch_sizes:
        sizes.append(_bytes(input))
        if grad_output is None or not grad_output.transpose(0, 1).is_contiguous():
            sizes.append(_bytes(output))
    elif grad_output is None or not grad_output.is_contiguous():
        sizes.append(_bytes(output))
    sizes += [_bytes(hx)] if grad_hy is None else []
    sizes += [_bytes(cx)] if cx is not None and grad_cy is None else []
    return tuple(sizes)


SCRATCH: dict[str, Callable[[tuple[Any, ...], dict[str, Any]], tuple[int, ...]]] = {
    "_cudnn_rnn": _rnn_scratch,
    "_cudnn_rnn_backward": _rnn_backward_scratch,
}
