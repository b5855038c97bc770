"""What fitted networks answer, in numpy: a few matrix products, no framework.

A network has one head for each division into classes that it was fitted to. Its arrays are plain and named, so
that they can be kept in a file; `from_arrays` checks that they fit together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Arrays",
    "Floats",
    "MlpEnsemble",
    "SequenceEnsemble",
    "arrays_from_bytes",
    "arrays_to_bytes",
    "pad_sequences",
    "probabilities_of_one",
    "softmax",
]

# Arrays are kept as bytes: float32, little endian, one behind the other.


def arrays_to_bytes(arrays: Arrays) -> bytes:
    return b"".join(np.ascontiguousarray(array, dtype="<f4").tobytes() for array in arrays.values())


def arrays_from_bytes(body: bytes, shapes: Sequence[tuple[str, tuple[int, ...]]]) -> dict[str, NDArray[np.float32]]:
    """Raises ValueError where the shapes do not take up all of it."""
    sizes = [math.prod(shape) for _, shape in shapes]
    if any(size < 0 for _, shape in shapes for size in shape) or 4 * sum(sizes) != len(body):
        raise ValueError("its numbers do not fit its arrays")
    numbers = np.frombuffer(body, dtype="<f4").astype(np.float32)
    arrays: dict[str, NDArray[np.float32]] = {}
    start = 0
    for (name, shape), size in zip(shapes, sizes, strict=True):
        arrays[name] = numbers[start : start + size].reshape(shape)
        start += size
    return arrays


Floats = NDArray[np.floating[Any]]
Arrays = Mapping[str, NDArray[np.float32]]

_EPSILON = 1e-5


def softmax(logits: Floats) -> Floats:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    total: Floats = raised / raised.sum(axis=-1, keepdims=True)
    return total


def pad_sequences(sequences: Sequence[Floats]) -> tuple[Floats, NDArray[np.bool_]]:
    """One block with zeros behind the shorter ones, and where there is something."""
    length = max((len(sequence) for sequence in sequences), default=0)
    width = sequences[0].shape[1] if sequences else 0
    block = np.zeros((len(sequences), max(length, 1), width), dtype=np.float32)
    mask = np.zeros(block.shape[:2], dtype=np.bool_)
    for number, sequence in enumerate(sequences):
        block[number, : len(sequence)] = sequence
        mask[number, : len(sequence)] = True
    return block, mask


@dataclass(frozen=True)
class MlpEnsemble:
    """Small networks side by side; their probabilities are averaged."""

    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    layers: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]
    """Weights [member, in, out] and biases [member, 1, out]; ReLU in between."""
    heads: tuple[int, ...]
    """Classes of each head, which share the last layer's outputs in this order."""

    def probabilities(self, x: Floats) -> tuple[Floats, ...]:
        """Probabilities for each head of the network: one row for each input, one column for each class."""
        values = ((np.asarray(x, dtype=np.float32) - self.mean) / self.scale)[None]
        for number, (weight, bias) in enumerate(self.layers):
            values = values @ weight + bias
            if number < len(self.layers) - 1:
                values = np.maximum(values, 0)
        return _split(values, self.heads)

    def to_arrays(self) -> Arrays:
        arrays = {"mean": self.mean, "scale": self.scale}
        for number, (weight, bias) in enumerate(self.layers):
            arrays |= {f"weight{number}": weight, f"bias{number}": bias}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays, heads: Sequence[int]) -> MlpEnsemble:
        """Raises ValueError or KeyError for arrays that are no such network."""
        count = sum(name.startswith("weight") for name in arrays)
        layers = tuple((arrays[f"weight{n}"], arrays[f"bias{n}"]) for n in range(count))
        width = len(arrays["mean"])
        if not layers or arrays["scale"].shape != (width,) or layers[0][0].shape[1] != width:
            raise ValueError("the first layer does not fit the features")
        for (weight, bias), (after, _) in itertools.pairwise((*layers, (layers[-1][0].swapaxes(1, 2), layers[-1][1]))):
            if (
                weight.ndim != 3
                or bias.shape != (weight.shape[0], 1, weight.shape[2])
                or after.shape[1] != weight.shape[2]
            ):
                raise ValueError("two layers do not fit together")
        if layers[-1][0].shape[2] != sum(heads):
            raise ValueError("the last layer does not fit the classes")
        _check_finite(arrays)
        return cls(arrays["mean"], arrays["scale"], layers, tuple(heads))


@dataclass(frozen=True)
class SequenceEnsemble:
    """Transformer encoders (pre-norm) over a sequence of tokens, averaged over it; features of the whole beside."""

    arrays: Arrays
    attention_heads: int
    heads: tuple[int, ...]

    def probabilities(self, sequences: Sequence[Floats], x: Floats) -> tuple[Floats, ...]:
        """Probabilities for each head of the network: one row for each input, one column for each class."""
        tokens, mask = pad_sequences(sequences)
        members = self.arrays["embed_weight"].shape[0]
        logits = np.stack([self._logits(member, tokens, mask, x) for member in range(members)])
        return _split(logits, self.heads)

    def _logits(self, member: int, tokens: Floats, mask: NDArray[np.bool_], x: Floats) -> Floats:
        own = {name: array[member] for name, array in self.arrays.items()}
        scaled = (tokens - own["token_mean"]) / own["token_scale"] * mask[..., None]
        values = scaled @ own["embed_weight"] + own["embed_bias"] + own["position"][: tokens.shape[1]]
        layers = sum(name.startswith("query_weight") for name in own)
        for layer in range(layers):
            values = values + self._attention(own, layer, _normed(values, own, f"norm1_{layer}"), mask)
            inner = _normed(values, own, f"norm2_{layer}") @ own[f"up_weight{layer}"] + own[f"up_bias{layer}"]
            values = values + np.maximum(inner, 0) @ own[f"down_weight{layer}"] + own[f"down_bias{layer}"]
        count = np.maximum(mask.sum(axis=1, keepdims=True), 1)
        pooled = (values * mask[..., None]).sum(axis=1) / count
        side = (np.asarray(x, dtype=np.float32) - own["mean"]) / own["scale"]
        joined = np.concatenate([pooled, side], axis=1)
        hidden = np.maximum(joined @ own["hidden_weight"] + own["hidden_bias"], 0)
        answer: Floats = hidden @ own["head_weight"] + own["head_bias"]
        return answer

    def _attention(self, own: Arrays, layer: int, values: Floats, mask: NDArray[np.bool_]) -> Floats:
        rows, length, width = values.shape
        size = width // self.attention_heads

        def part(name: str) -> Floats:
            made = values @ own[f"{name}_weight{layer}"] + own[f"{name}_bias{layer}"]
            cut: Floats = made.reshape(rows, length, self.attention_heads, size).swapaxes(1, 2)
            return cut

        scores = part("query") @ part("key").swapaxes(2, 3) / math.sqrt(size)
        scores = np.where(mask[:, None, None, :], scores, np.float32(-1e9))
        mixed = (softmax(scores) @ part("value")).swapaxes(1, 2).reshape(rows, length, width)
        answer: Floats = mixed @ own[f"out_weight{layer}"] + own[f"out_bias{layer}"]
        return answer

    @property
    def longest(self) -> int:
        return int(self.arrays["position"].shape[1])

    def to_arrays(self) -> Arrays:
        return self.arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays, attention_heads: int, heads: Sequence[int]) -> SequenceEnsemble:
        """Raises ValueError or KeyError for arrays that are no such network."""
        made = cls(arrays, attention_heads, tuple(heads))
        if len({array.shape[0] for array in arrays.values()}) != 1:
            raise ValueError("the arrays are not of equally many networks")
        if attention_heads < 1 or arrays["embed_weight"].shape[2] % attention_heads:
            raise ValueError("the width is no multiple of the attention heads")
        _check_finite(arrays)
        # One row through all of it: arrays that do not fit together say so here, not at the first estimate.
        made.probabilities(
            [np.zeros((1, arrays["embed_weight"].shape[1]), dtype=np.float32)],
            np.zeros((1, arrays["mean"].shape[1]), dtype=np.float32),
        )
        return made


def probabilities_of_one(
    network: MlpEnsemble | SequenceEnsemble, row: Sequence[float], tokens: Sequence[Sequence[float]]
) -> tuple[tuple[float, ...], ...]:
    """Plain numbers in and out: for each head, the classes' probabilities. Tokens beyond the longest are cut."""
    x = np.array([row], dtype=np.float64)
    if isinstance(network, MlpEnsemble):
        heads = network.probabilities(x)
    else:
        width = network.arrays["embed_weight"].shape[1]
        heads = network.probabilities([np.array(tokens[: network.longest], dtype=np.float64).reshape(-1, width)], x)
    return tuple(tuple(float(value) for value in head[0]) for head in heads)


def _normed(values: Floats, own: Arrays, name: str) -> Floats:
    centred = values - values.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + _EPSILON)
    answer: Floats = centred / spread * own[f"{name}_weight"] + own[f"{name}_bias"]
    return answer


def _split(logits: Floats, heads: Sequence[int]) -> tuple[Floats, ...]:
    """Members first; averaged over them, head by head."""
    if logits.shape[-1] != sum(heads):
        raise ValueError("the last layer does not fit the classes")
    ends = list(itertools.accumulate(heads))
    return tuple(softmax(logits[..., end - size : end]).mean(axis=0) for size, end in zip(heads, ends, strict=True))


def _check_finite(arrays: Arrays) -> None:
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds what is not a finite number")
