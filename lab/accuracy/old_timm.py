"""timm as the measured runs had it: models that it builds otherwise today, and how its scripts load batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

__all__ = ["IMAGES_OF_2024", "OPTIONS_OF_2024", "as_in_2024", "prefetched"]

OPTIONS_OF_2024: dict[str, dict[str, Any]] = {"tnt": {"legacy": True}}
"""What brings back a family's layers of timm 1.0.9 and before, by the file that the family is in."""

IMAGES_OF_2024 = dict.fromkeys(("ese_vovnet57b", "mobilenetv3_large_150d", "sam2_hiera_tiny"), (3, 224, 224))
"""The images that a model is for by default, where timm 1.0.9 said otherwise than today."""


def as_in_2024(model: Any) -> Any:
    """The model with the layers of timm 1.0.9 that hold other tensors for the backward pass than today's."""
    for module in model.modules():
        kind = type(module).__name__
        if kind == "RmsNorm":  # today torch's own
            module.forward = partial(_divided_by_deviation, module)
        elif kind == "MaskUnitAttention" and not module.use_mask_unit_attn:  # Hiera; today in four dimensions
            module.forward = partial(_attention_in_one_window, module)
        elif kind == "ParallelScalingBlock" and module.mlp_bias is not None:  # today added to the projection's result
            module.in_proj.part_of_bias, module.mlp_bias = module.mlp_bias, None
            module.in_proj.forward = partial(_projected_with_part_of_bias, module.in_proj)
    return model


def _divided_by_deviation(norm: Any, x: Any) -> Any:
    import torch

    scaled = x * torch.rsqrt(torch.var(x, dim=-1, keepdim=True) + norm.eps)
    return scaled if norm.weight is None else scaled * norm.weight


def _projected_with_part_of_bias(projection: Any, x: Any) -> Any:
    """One kernel adds the bias; it is there for some of the results only, and 0 for the others."""
    import torch

    part = projection.part_of_bias
    none = part.new_zeros(projection.out_features - len(part))
    return torch.nn.functional.linear(x, projection.weight, torch.cat((none, part)))


def _attention_in_one_window(attention: Any, x: Any) -> Any:
    """The window's dimension of one makes five, which no fused kernel takes."""
    from torch.nn import functional

    batch, tokens, _ = x.shape
    heads, size, stride = attention.heads, attention.head_dim, attention.q_stride
    made = attention.qkv(x).reshape(batch, tokens, 1, 3, heads, size)
    query, key, value = made.permute(3, 0, 4, 2, 1, 5).unbind(0)
    if stride > 1:
        query = query.view(batch, heads, 1, stride, -1, size).amax(dim=3)
    if attention.fused_attn:
        mixed = functional.scaled_dot_product_attention(query, key, value)
    else:
        mixed = ((query * attention.scale) @ key.transpose(-1, -2)).softmax(dim=-1) @ value
    return attention.proj(mixed.transpose(1, 3).reshape(batch, -1, attention.dim_out))


def prefetched(batches: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Batches of bytes as timm's loader gives them: each is on the GPU, and a float, while the one before it trains.

    Both are made on a stream of their own, whose memory the rest of the step cannot use; when the next one is made,
    the loop still holds the last.
    """
    import torch

    stream: Any = torch.cuda.Stream()
    mean, deviation = (torch.zeros(1, 3, 1, 1, device="cuda") for _ in range(2))
    ready = None
    for images, classes in batches:
        with torch.cuda.stream(stream):
            coming = images.to("cuda", non_blocking=True).to(torch.float32).sub_(mean).div_(deviation)
            expected = classes.to("cuda", non_blocking=True)
        if ready is not None:
            yield ready
        torch.cuda.current_stream().wait_stream(stream)
        ready = coming, expected
        del coming, expected
    if ready is not None:
        yield ready
