"""Linear layers whose weights stay packed in a few bits: GPTQ, AWQ and HQQ, whose kernels exist for GPUs only.

What each holds and what a product with it takes were compared line by line with the libraries: AutoGPTQ
(nn_modules/qlinear/qlinear_cuda_old.py, the layer that trains; groups of 128), AutoAWQ 0.2.9 (modules/linear/gemm.py,
`WQLinearMMFunction`) and HQQ 0.2.8 (core/quantize.py, `Quantizer.dequantize` and `HQQMatmulNoCacheMul`; groups of 64).
GPTQ unpacks by ordinary operators, and autograd keeps the unpacked weight; the others unpack again in backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["PACKED", "PackedLinear"]

PACKED = {"gptq-int4": ("gptq", 4, 128), "gptq-int8": ("gptq", 8, 128), "awq-int4": ("awq", 4, 128),
          "hqq-int4": ("hqq", 4, 64)}  # fmt: skip
"""The name of a quantisation → its library, its bits, the weights that share a scale."""
_WORD = 32


class PackedLinear(nn.Linear):
    """A linear layer whose `weight` is packed: `qweight` and its scales, under the names that the libraries have."""

    qweight: torch.Tensor
    qzeros: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    shifts: torch.Tensor

    def __init__(self, plain: nn.Linear, name: str) -> None:
        nn.Module.__init__(self)
        self.library, self.bits, group = PACKED[name]
        self.in_features, self.out_features, self.bias = plain.in_features, plain.out_features, plain.bias
        self.group = group if self.in_features % group == 0 else self.in_features
        groups, packed = self.in_features // self.group, _WORD // self.bits
        if self.library == "hqq":
            values = self.in_features * self.out_features
            self.register_buffer("qweight", torch.empty(values * self.bits // 8, dtype=torch.uint8))
            self.register_buffer("zeros", torch.empty(groups, 1, self.out_features, dtype=plain.weight.dtype))
            self.register_buffer("scales", torch.empty(groups, 1, self.out_features, dtype=plain.weight.dtype))
            return
        rows, columns = (-(-self.in_features // packed), self.out_features)
        if self.library == "awq":
            rows, columns = self.in_features, -(-self.out_features // packed)
        self.register_buffer("qweight", torch.empty(rows, columns, dtype=torch.int32))
        self.register_buffer("qzeros", torch.empty(groups, -(-self.out_features // packed), dtype=torch.int32))
        self.register_buffer("scales", torch.empty(groups, self.out_features, dtype=torch.float16))
        if self.library == "gptq":
            self.register_buffer("g_idx", torch.empty(self.in_features, dtype=torch.int32))
            self.register_buffer("shifts", torch.empty(packed, dtype=torch.int32))

    @property
    def weight(self) -> torch.Tensor:  # type: ignore[override]
        """What adapters look at for the device: the packed words."""
        return self.qweight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.library == "gptq":
            weight = self._unpacked_by_operators()
            out = torch.matmul(x.to(weight.dtype), weight).to(x.dtype)
        elif self.library == "awq":
            out = _AwqProduct.apply(x, self.qweight, self.scales, self.out_features)
        else:
            out = _HqqProduct.apply(x, self)
        return out if self.bias is None else out + self.bias

    def _unpacked_by_operators(self) -> torch.Tensor:
        narrow = torch.int16 if self.bits == 8 else torch.int8
        mask = 2**self.bits - 1
        zeros = torch.bitwise_right_shift(self.qzeros.unsqueeze(2), self.shifts.view(1, 1, -1)).to(narrow)
        zeros = torch.bitwise_and(zeros + 1, mask).reshape(-1, 1, self.out_features)
        spread = self.qweight.unsqueeze(1)
        weight = torch.bitwise_right_shift(spread, self.shifts.view(1, -1, 1)).to(narrow)
        weight = torch.bitwise_and(weight, mask)
        weight = weight.reshape(-1, self.group, self.out_features)
        scaled = self.scales.unsqueeze(1) * (weight - zeros)
        return scaled.reshape(-1, self.out_features)


class _AwqProduct(torch.autograd.Function):
    """From 1,024 tokens on the weight is unpacked in fp16 first; below, a kernel unpacks on the way. Backward unpacks
    again, and repeats the weight for each sample of the batch."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, outputs: int) -> torch.Tensor:
        ctx.save_for_backward(x, packed, scales)
        half = x.to(torch.float16)
        if half.shape[:-1].numel() < _AWQ_TOKENS:
            return half.new_empty(*x.shape[:-1], outputs).to(x.dtype)
        return torch.matmul(half, scales.new_empty(x.shape[-1], outputs)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, _, scales = ctx.saved_tensors
        weight = scales.new_empty(x.shape[-1], gradient.shape[-1]).to(gradient.dtype)
        rows = gradient.reshape(-1, *gradient.shape[-2:])
        repeated = weight.transpose(0, 1).unsqueeze(0).repeat(rows.shape[0], 1, 1)
        return rows.bmm(repeated).view(x.shape), None, None, None


_AWQ_TOKENS = 1024


class _HqqProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: PackedLinear) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.layer = layer
        return torch.matmul(x, _hqq_weight(layer).t())

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return torch.matmul(gradient, _hqq_weight(ctx.layer)), None


def _hqq_weight(layer: PackedLinear) -> torch.Tensor:
    """Unpacked, less the zeros, times the scales: three tensors of the weight's size for a moment."""
    groups = layer.in_features // layer.group
    unpacked = layer.scales.new_empty(groups, layer.group, layer.out_features)
    half = unpacked.view(2, -1)
    half[0] = (layer.qweight & 0xF0) >> 4
    half[1] = layer.qweight & 0x0F
    unpacked = (unpacked - layer.zeros) * layer.scales
    return unpacked.view(layer.out_features, layer.in_features)
