"""TransformerEngine's layers as memory sees them: parameters, outputs, what is kept for backward, its own workspace.

Written from the interface that megatron-core uses, and from TransformerEngine's documentation and source
(NVIDIA/TransformerEngine, transformer_engine/pytorch: module/{linear,layernorm_linear,grouped_linear}.py,
attention/dot_product_attention). Products allocate their output here and compute nothing, so torch's own cuBLAS handle
is not used for them: the engine has a workspace of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function

from .kernels import FusedAdam, FusedSoftmax, apply_to_all, in_place, module, norm_of_all

__all__ = ["install_engine"]

VERSION = "2.6.0"
_MiB = 1 << 20
_GROUPED_STREAMS = 4
"""Grouped products run on so many streams, each with a workspace."""
_workspaces: list[Tensor] = []
_dummies: dict[tuple[Any, ...], Tensor] = {}


def _take_workspace(count: int = 1) -> None:
    """32 MiB from Hopper on, 4 MiB before (get_cublas_workspace_size_bytes); made at the first product, kept."""
    size = 32 * _MiB if torch.cuda.get_device_capability()[0] >= 9 else 4 * _MiB
    while len(_workspaces) < count:
        _workspaces.append(torch.empty(size, dtype=torch.uint8, device="cuda"))


def _dummy_gradient(weight: Tensor) -> Tensor:
    """What autograd is handed where the product was added to `main_grad`: one for each shape, kept."""
    key = (*weight.shape, weight.dtype)
    if key not in _dummies:
        _dummies[key] = torch.empty_like(weight, requires_grad=False)
    return _dummies[key]


def _size(group: Any) -> int:
    return 1 if group is None else dist.get_world_size(group)


def _gather(x: Tensor, group: Any) -> Tensor:
    whole = x.new_empty((x.shape[0] * _size(group), *x.shape[1:]))
    dist.all_gather_into_tensor(whole, x.contiguous(), group=group)
    return whole


def _scatter(x: Tensor, group: Any) -> Tensor:
    part = x.new_empty((x.shape[0] // _size(group), *x.shape[1:]))
    dist.reduce_scatter_tensor(part, x.contiguous(), group=group)
    return part


class _Product(Function):
    """A linear layer over a tensor-parallel group; the input is kept as it came, and gathered again in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: Any) -> Tensor:
        _take_workspace()
        gathers = layer.parallel_mode == "column" and layer.sequence_parallel
        whole = _gather(x, layer.tp_group) if gathers else x
        out = weight.new_empty((*whole.shape[:-1], weight.shape[0]))
        if layer.parallel_mode == "row" and _size(layer.tp_group) > 1:
            if layer.sequence_parallel:
                out = _scatter(out, layer.tp_group)
            else:
                dist.all_reduce(out, group=layer.tp_group)
        ctx.save_for_backward(x, weight, bias)
        ctx.layer = layer
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, bias = ctx.saved_tensors
        layer, group = ctx.layer, ctx.layer.tp_group
        of_x, of_weight = None, None
        column = layer.parallel_mode == "column"
        if layer.parallel_mode == "row" and layer.sequence_parallel and _size(group) > 1:
            gradient = _gather(gradient, group)
        whole = _gather(x, group) if column and layer.sequence_parallel else x
        if ctx.needs_input_grad[0]:
            of_x = gradient.new_empty((*gradient.shape[:-1], weight.shape[1]))
            if column and _size(group) > 1:
                if layer.sequence_parallel:
                    of_x = _scatter(of_x, group)
                else:
                    dist.all_reduce(of_x, group=group)
        if ctx.needs_input_grad[1]:
            of_weight = _weight_gradient(layer, weight)
        del whole
        of_bias = None if bias is None else torch.empty_like(bias)
        return of_x, of_weight, of_bias, None


def _weight_gradient(layer: Any, weight: Any) -> Tensor:
    if layer.fuse_wgrad_accumulation and hasattr(weight, "main_grad"):
        weight.grad_added_to_main_grad = True
        return _dummy_gradient(weight)
    return torch.empty_like(weight)


class _Normalise(Function):
    """Keeps its input and fp32 statistics: the reciprocal deviation, and for layer norm the mean."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = x.numel() // x.shape[-1]
        statistics = [torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(1 + (bias is not None))]
        ctx.save_for_backward(x, weight, bias, *statistics)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, bias, *_ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight), None if bias is None else torch.empty_like(bias)


class _Layer(nn.Module):
    """What megatron-core asks of each of them."""

    def __init__(self, sequence_parallel: bool, tp_group: Any, parallel_mode: str | None, fuse: bool) -> None:
        super().__init__()
        self.sequence_parallel = sequence_parallel and _size(tp_group) > 1
        self.tp_group = tp_group
        self.parallel_mode = parallel_mode
        self.fuse_wgrad_accumulation = fuse
        self.save_original_input = False

    def _parameter(self, shape: tuple[int, ...], options: dict[str, Any], init: Any = None) -> Any:
        made = nn.Parameter(torch.empty(shape, device="cuda", dtype=options.get("params_dtype")))
        if init is not None:
            init(made)
        return made

    def set_tensor_parallel_group(self, group: Any) -> None:
        self.tp_group = group


class Linear(_Layer):
    def __init__(self, in_features: int, out_features: int, *, sequence_parallel: bool = False,
                 fuse_wgrad_accumulation: bool = False, tp_group: Any = None, tp_size: int = 1,
                 init_method: Any = None, bias: bool = True, return_bias: bool = False,
                 parallel_mode: str | None = None, **options: Any) -> None:  # fmt: skip
        super().__init__(sequence_parallel, tp_group, parallel_mode, fuse_wgrad_accumulation)
        rows = out_features // tp_size if parallel_mode == "column" else out_features
        columns = in_features // tp_size if parallel_mode == "row" else in_features
        self.use_bias, self.return_bias = bias, return_bias
        self.weight = self._parameter((rows, columns), options, init_method)
        self.bias = self._parameter((rows,), options) if bias else None
        if self.bias is not None and parallel_mode == "row":
            self.bias.sequence_parallel = sequence_parallel

    def forward(self, x: Tensor, is_first_microbatch: bool | None = None, **options: Any) -> Any:
        out = _Product.apply(x, self.weight, None if self.return_bias else self.bias, self)
        return (out, self.bias) if self.return_bias else out


class LayerNormLinear(Linear):
    def __init__(
        self, in_features: int, out_features: int, *, normalization: str = "LayerNorm", **options: Any
    ) -> None:
        sequence_parallel = options.get("sequence_parallel", False)
        super().__init__(in_features, out_features, **options)
        self.layer_norm_weight = self._parameter((in_features,), options)
        self.layer_norm_bias = self._parameter((in_features,), options) if normalization == "LayerNorm" else None
        for parameter in (self.layer_norm_weight, self.layer_norm_bias):
            if parameter is not None:
                parameter.sequence_parallel = sequence_parallel

    def forward(self, x: Tensor, is_first_microbatch: bool | None = None, **options: Any) -> Any:
        return super().forward(_Normalise.apply(x, self.layer_norm_weight, self.layer_norm_bias))


class _Norm(_Layer):
    has_bias = True

    def __init__(self, hidden_size: int, *, sequence_parallel: bool = False, **options: Any) -> None:
        super().__init__(sequence_parallel, None, None, False)
        self.weight = self._parameter((hidden_size,), options)
        self.bias = self._parameter((hidden_size,), options) if self.has_bias else None
        for parameter in (self.weight, self.bias):
            if parameter is not None:
                parameter.sequence_parallel = sequence_parallel

    def forward(self, x: Tensor) -> Any:
        return _Normalise.apply(x, self.weight, self.bias)


class LayerNorm(_Norm): ...


class RMSNorm(_Norm):
    has_bias = False


class _GroupedProduct(Function):
    """The layers of all local experts, each on its part of the tokens."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Any, *weights: Tensor) -> Tensor:
        _take_workspace(_GROUPED_STREAMS)
        ctx.save_for_backward(x, *weights)
        ctx.layer = layer
        return x.new_empty((*x.shape[:-1], weights[0].shape[0]))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, *weights = ctx.saved_tensors
        return torch.empty_like(x), None, *(_weight_gradient(ctx.layer, weight) for weight in weights)


class GroupedLinear(_Layer):
    def __init__(self, num_gemms: int, in_features: int, out_features: int, *, sequence_parallel: bool = False,
                 fuse_wgrad_accumulation: bool = False, tp_group: Any = None, tp_size: int = 1,
                 init_method: Any = None, bias: bool = True, return_bias: bool = False,
                 parallel_mode: str | None = None, **options: Any) -> None:  # fmt: skip
        super().__init__(False, tp_group, parallel_mode, fuse_wgrad_accumulation)
        rows = out_features // tp_size if parallel_mode == "column" else out_features
        columns = in_features // tp_size if parallel_mode == "row" else in_features
        self.num_gemms, self.use_bias, self.return_bias = num_gemms, bias, return_bias
        for number in range(num_gemms):
            setattr(self, f"weight{number}", self._parameter((rows, columns), options, init_method))
            if bias:
                setattr(self, f"bias{number}", self._parameter((rows,), options))

    def forward(self, x: Tensor, m_splits: Any, is_first_microbatch: bool | None = None) -> Any:
        weights = [getattr(self, f"weight{number}") for number in range(self.num_gemms)]
        out = _GroupedProduct.apply(x, self, *weights)
        if not self.return_bias:
            return out
        return out, [getattr(self, f"bias{number}") for number in range(self.num_gemms)]


class _FusedAttention(Function):
    """Flash attention, cuDNN's or Dao's: keeps its inputs, its output and a sum for each row."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        length, batch, heads, _ = query.shape
        out = query.new_empty((length, batch, heads, value.shape[-1]))
        sums = torch.empty((batch, heads, length), dtype=torch.float32, device=query.device)
        ctx.save_for_backward(query, key, value, out, sums)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        query, key, value, _, sums = ctx.saved_tensors
        torch.empty_like(sums)
        torch.empty(query.shape, dtype=torch.float32, device=query.device)  # queries' gradients are summed in fp32
        if query.untyped_storage()._cdata == key.untyped_storage()._cdata == value.untyped_storage()._cdata:
            # Written into one buffer of the layout that the three came in, so that nobody has to join them.
            elements = query.untyped_storage().nbytes() // query.element_size()
            joined = query.new_empty(elements)
            return tuple(joined.as_strided(t.shape, t.stride(), t.storage_offset()) for t in (query, key, value))
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


class _SoftmaxOfScores(Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        out = FusedSoftmax.forward(scores)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return FusedSoftmax.backward(gradient)


class DotProductAttention(nn.Module):
    """Of inputs [length, batch, heads, channels]."""

    def __init__(self, num_attention_heads: int, kv_channels: Any, attention_dropout: float = 0.0,
                 cp_group: Any = None, **options: Any) -> None:  # fmt: skip
        super().__init__()
        self.dropout = nn.Dropout(attention_dropout)
        self.context_group = cp_group[0] if isinstance(cp_group, (list, tuple)) else cp_group

    def forward(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None, **options: Any) -> Tensor:
        unfused = str(getattr(self.config, "attention_backend", "")).endswith("unfused")
        if unfused and _size(self.context_group) == 1:
            out = self._unfused(query, key, value)
        else:
            if _size(self.context_group) > 1:
                key, value = _pass_on(key, value)
            out = _FusedAttention.apply(query, key, value)
        return out.reshape(*out.shape[:2], -1)

    def _unfused(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        length, batch, heads, channels = query.shape
        if key.shape[2] != heads:
            key, value = (part.repeat_interleave(heads // key.shape[2], dim=2) for part in (key, value))
        scores = torch.empty(batch * heads, length, key.shape[0], dtype=query.dtype, device=query.device)
        scores = torch.baddbmm(
            scores,
            query.reshape(length, batch * heads, channels).transpose(0, 1),
            key.reshape(key.shape[0], batch * heads, channels).permute(1, 2, 0),
            beta=0.0,
        )
        weights = self.dropout(_SoftmaxOfScores.apply(scores))
        out = torch.bmm(weights, value.reshape(value.shape[0], batch * heads, -1).transpose(0, 1))
        return out.view(batch, heads, length, -1).permute(2, 0, 1, 3).contiguous()

    def set_context_parallel_group(self, group: Any, *rest: Any) -> None:
        self.context_group = group


def _pass_on(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """A ring: while one part of keys and values is worked on, the next arrives in a buffer of its own."""
    buffers = [torch.empty_like(part) for part in (key, value, key, value)]
    del buffers
    return key, value


class SplitAlongDim(Function):
    """Views; backward joins gradients only where they do not stand together already."""

    @staticmethod
    def forward(ctx: Any, joined: Tensor, dim: int, sizes: Any) -> Any:
        ctx.shape, ctx.dim = joined.shape, dim
        return torch.split(joined, sizes, dim=dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        storages = {gradient.untyped_storage()._cdata for gradient in gradients}
        whole = gradients[0].untyped_storage().nbytes() // gradients[0].element_size()
        if len(storages) == 1 and whole == ctx.shape.numel():
            return gradients[0].as_strided(ctx.shape, _contiguous(ctx.shape), 0), None, None
        return torch.cat(gradients, dim=ctx.dim), None, None


def _contiguous(shape: Any) -> list[int]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return strides[::-1]


class _Rotate(Function):
    """Rotary positions in one kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, angles: Tensor) -> Tensor:
        ctx.save_for_backward(angles)
        return torch.empty_like(x, memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return torch.empty_like(gradient, memory_format=torch.contiguous_format), None


def _rotate(x: Tensor, angles: Tensor, **options: Any) -> Any:
    return _Rotate.apply(x, angles)


class RandomStates:
    """Seeds by name; the states themselves live on the host."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.states_: dict[str, Any] = {}
        self.seeds_: set[int] = set()

    def get_states(self) -> dict[str, Any]:
        return dict(self.states_)

    def set_states(self, states: dict[str, Any]) -> None:
        self.states_ = states

    def add(self, name: str, seed: int) -> None:
        self.states_[name] = seed

    @contextlib.contextmanager
    def fork(self, name: str = "model-parallel-rng") -> Iterator[None]:
        yield


class _NotUsed:
    """A name that is imported for jobs that are not built here: those of 8-bit floats, graphs and fused operations."""


def install_engine() -> None:
    """So that `import transformer_engine` finds these."""
    names = dict.fromkeys(("Sequential", "FusibleOperation", "BasicLinear", "Bias", "SwiGLU", "GEGLU", "ReGLU", "GELU",
                           "ReLU", "SiLU", "LayerNorm", "RMSNorm"), _NotUsed)  # fmt: skip
    module("transformer_engine", __version__=VERSION)
    module("transformer_engine.common.recipe", DelayedScaling=_NotUsed, Format=_NotUsed)
    module(
        "transformer_engine.pytorch",
        Linear=Linear,
        LayerNormLinear=LayerNormLinear,
        LayerNorm=LayerNorm,
        RMSNorm=RMSNorm,
        GroupedLinear=GroupedLinear,
        DotProductAttention=DotProductAttention,
        Fp8Padding=_NotUsed,
        Fp8Unpadding=_NotUsed,
    )
    module("transformer_engine.pytorch.ops", **names)
    module("transformer_engine.pytorch.fp8", FP8GlobalStateManager=_NotUsed, fp8_autocast=contextlib.nullcontext)
    module(
        "transformer_engine.pytorch.distributed",
        CudaRNGStatesTracker=RandomStates,
        activation_recompute_forward=contextlib.nullcontext,
        is_fp8_activation_recompute_enabled=bool,
    )
    module("transformer_engine.pytorch.tensor", QuantizedTensor=_NotUsed)
    module("transformer_engine.pytorch.module.base", TransformerEngineBaseModule=_NotUsed)
    module("transformer_engine.pytorch.attention", _SplitAlongDim=SplitAlongDim)
    module("transformer_engine.pytorch.attention.rope", apply_rotary_pos_emb=_rotate)
    module(
        "transformer_engine.pytorch.optimizers",
        FusedAdam=FusedAdam,
        FusedSGD=torch.optim.SGD,
        multi_tensor_applier=apply_to_all,
        multi_tensor_l2norm=norm_of_all,
        multi_tensor_scale=in_place,
    )
