"""Recurrent layers on CUDA without cuDNN (switched off, or absent): a loop over time with fused cells.

The loop is that of aten/src/ATen/native/RNN.cpp. Only what decides memory is followed: the product of the input, the
product of the state, and the fused cell of each step, whose workspace lives until the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .overrides import Overrides, composite
from .platforms import on_virtual_gpu

__all__ = ["FAKE_KERNELS", "install", "layers_without_cudnn"]

_aten = torch.ops.aten
_lstm_cell_composite = composite(_aten.lstm_cell.default)
_gru_cell_composite = composite(_aten.gru_cell.default)
_fused_lstm = _aten._thnn_fused_lstm_cell.default
_fused_gru = _aten._thnn_fused_gru_cell.default

Bias = torch.Tensor | None


def install(overrides: Overrides) -> None:
    """Put CUDA's fused cells in place: `nn.LSTMCell` and `nn.GRUCell`."""
    overrides.add("lstm_cell", _lstm_cell, "AutogradCPU")
    overrides.add("gru_cell", _gru_cell, "AutogradCPU")


def _lstm_cell(
    input: torch.Tensor,
    hx: list[torch.Tensor],
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: Bias = None,
    b_hh: Bias = None,
) -> Any:
    if not on_virtual_gpu(input):
        return _lstm_cell_composite(input, hx, w_ih, w_hh, b_ih, b_hh)
    gates, recurrent = torch.matmul(input, w_ih.t()), torch.matmul(hx[0], w_hh.t())
    return _fused_lstm(gates, recurrent, hx[1], b_ih, b_hh)[:2]


def _gru_cell(
    input: torch.Tensor, hx: torch.Tensor, w_ih: torch.Tensor, w_hh: torch.Tensor, b_ih: Bias = None, b_hh: Bias = None
) -> Any:
    if not on_virtual_gpu(input):
        return _gru_cell_composite(input, hx, w_ih, w_hh, b_ih, b_hh)
    gates, recurrent = torch.matmul(input, w_ih.t()), torch.matmul(hx, w_hh.t())
    return _fused_gru(gates, recurrent, hx, b_ih, b_hh)[0]


def layers_without_cudnn(
    usual: Callable[..., Any], is_lstm: bool, input: torch.Tensor, hx: Any, params: list[torch.Tensor], *options: Any
) -> Any:
    """All layers of an LSTM by fused cells; the others by torch's composite, with oneDNN kept out of it."""
    biases, num_layers, dropout, train, bidirectional, batch_first = options
    if not is_lstm or hx[0].shape[2] != hx[1].shape[2]:
        enabled = torch.backends.mkldnn.set_flags(False)
        try:
            return usual(input, hx, params, *options)
        finally:
            torch.backends.mkldnn.set_flags(*enabled)
    per_layer = 4 if biases else 2
    directions = 2 if bidirectional else 1
    steps = input.transpose(0, 1) if batch_first else input
    last_h, last_c = [], []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            weights = params[index * per_layer : (index + 1) * per_layer]
            output, h, c = _lstm_layer(steps, hx[0][index], hx[1][index], weights, reverse=direction == 1)
            outputs.append(output)
            last_h.append(h)
            last_c.append(c)
        steps = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if dropout > 0 and train and layer < num_layers - 1:
            steps = torch.dropout(steps, dropout, True)
    output = steps.transpose(0, 1) if batch_first else steps
    return output, torch.stack(last_h), torch.stack(last_c)


def _lstm_layer(
    steps: torch.Tensor, h: torch.Tensor, c: torch.Tensor, weights: list[torch.Tensor], reverse: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    w_ih, w_hh = weights[:2]
    b_ih, b_hh = weights[2:] if len(weights) == 4 else (None, None)
    inputs = steps.unbind(0)
    outputs = []
    for step in reversed(inputs) if reverse else inputs:
        h, c = _lstm_cell(step, [h, c], w_ih, w_hh, b_ih, b_hh)
        outputs.append(h)
    if reverse:
        outputs.reverse()
    return torch.stack(outputs), h, c


def _fake_lstm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """State, cell, and a workspace with the gates."""
    gates, cx = args[0], args[2]
    contiguous = torch.contiguous_format
    h, c = (torch.empty_like(cx, memory_format=contiguous) for _ in range(2))
    return h, c, torch.empty_like(gates, memory_format=contiguous)


def _fake_gru(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The state, and a workspace of five values a unit."""
    hx = args[2]
    return torch.empty_like(hx), torch.empty(hx.shape[0], 5 * hx.shape[1], dtype=hx.dtype, device=hx.device)


def _fake_gru_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    grad, has_bias = args[0], args[2]
    batch, size = grad.shape
    new = {"dtype": grad.dtype, "device": grad.device}
    gates = [torch.empty(batch, 3 * size, **new) for _ in range(2)]
    biases = [torch.empty(3 * size, **new) if has_bias else None for _ in range(2)]
    return (*gates, torch.empty_like(grad), *biases)


FAKE_KERNELS: dict[Any, Callable[..., Any]] = {
    _fused_lstm: _fake_lstm,
    _fused_gru: _fake_gru,
    _aten._thnn_fused_gru_cell_backward.default: _fake_gru_backward,
}
"""torch has a fake kernel for the LSTM cell only, which fails without biases."""
