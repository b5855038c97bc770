"""Caches of keys and values in few bits, by transformers' own classes: fp8 is theirs altogether; for int4 and int2 they
call optimum-quanto, whose arithmetic is written out here, since it packs plain tensors alone.

What is quantised stays so, and is widened whole for each token; the last 128 tokens wait unquantised.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from ...errors import BadInput

__all__ = ["quantised_cache", "shapes_of_states"]

_BITS = {"int4": 4, "int2": 2}


def quantised_cache(config: Any, kind: str) -> Any:
    """`config`: the decoder's. transformers has such caches for models whose layers all attend to everything."""
    library = importlib.import_module("transformers.cache_utils")
    try:
        if kind not in _BITS:
            return library.QuantizedCache(kind, config)
        # Its checks are those of every backend; HQQ's and quanto's classes then ask for their packages.
        kinds = set(library.get_layer_types_and_kwargs(config)[0]) - {"full_attention"}
        if kinds:
            raise ValueError(f"only full attention can be kept so, and the model has {', '.join(sorted(kinds))}")
        layer_class = _packed_layer(library)
        return library.Cache(layers=[layer_class(nbits=_BITS[kind]) for _ in range(config.num_hidden_layers)])
    except ValueError as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise BadInput(f"--kv-cache {kind}: {reason}.") from None


def shapes_of_states(layer: Any) -> tuple[torch.Size, torch.Size] | None:
    """Rows, heads, tokens, width of the keys and of the values that a layer of a cache keeps, as whatever. None for
    a layer that keeps something else."""
    if getattr(layer, "_quantized_keys", None) is not None:
        return _shape(layer._quantized_keys), _shape(layer._quantized_values)
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    if isinstance(keys, torch.Tensor) and isinstance(values, torch.Tensor) and keys.dim() == 4:
        return keys.shape, values.shape
    return None


def _shape(quantised: Any) -> torch.Size:
    """Packed states end with their shape; fp8 ones begin with a tensor of it."""
    shape: torch.Size = quantised[-1] if isinstance(quantised[-1], torch.Size) else quantised[0].shape
    return shape


def _packed_layer(library: Any) -> Any:
    class PackedLayer(library.QuantizedLayer):
        """As optimum-quanto quantises (MaxOptimizer, quantize_affine, pack_weights of 0.2.7): the least and the span of
        each group in the states' own type, and several values to a byte."""

        def _quantize(self, tensor: torch.Tensor, axis: int) -> Any:
            groups = tensor.reshape(-1, self.q_group_size)
            least, most = groups.amin(1, keepdim=True), groups.amax(1, keepdim=True)
            scale, shift = (most - least) / (2**self.nbits - 1), -least
            whole = torch.clamp(torch.round((groups + shift) / scale), 0, 2**self.nbits - 1).to(torch.uint8)
            parts = whole.chunk(8 // self.nbits)
            packed = torch.zeros_like(parts[0])
            for number, part in enumerate(parts):
                packed |= part << (self.nbits * number)
            return packed, scale, shift, tensor.shape

        def _dequantize(self, states: Any) -> torch.Tensor:
            packed, scale, shift, shape = states
            mask = 2**self.nbits - 1
            whole = torch.cat([(packed >> (self.nbits * number)) & mask for number in range(8 // self.nbits)])
            wide = scale * whole
            wide -= shift
            widened: torch.Tensor = wide.reshape(shape)
            return widened

    return PackedLayer
