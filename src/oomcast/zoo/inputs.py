"""Which inputs a model takes: every question a batch asks before it makes a tensor. Errors are one sentence each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import BadInput
from .catalogue import ZooModel

__all__ = ["Grid", "features", "halved", "tokens"]

_AXES = {3: "channels x height x width", 4: "channels x depth x height x width"}


@dataclass(frozen=True)
class Grid:
    """The images or volumes a model takes.

    `smallest` is the shortest side that leaves something for the last layer. `norm_side` tells, from a side of the
    input, the side of the smallest map that goes through batch norm, which cannot train on one value per channel.
    `fixed` models take their default shape only.
    """

    smallest: int = 1
    norm_side: Callable[[int], int] | None = None
    fixed: bool = False

    def shape(
        self, entry: ZooModel, batch_size: int, input_shape: tuple[int, ...] | None, seq_len: int | None
    ) -> tuple[int, ...]:
        """The shape to use: the one asked for, or the default."""
        default = _default_shape(entry)
        axes = _AXES[len(default)]
        _positive(entry, "batch size", batch_size)
        if seq_len is not None:
            raise BadInput(f"{_the(entry)} takes an input shape, {axes}, and no sequence length.")
        shape = default if input_shape is None else tuple(input_shape)
        if len(shape) != len(default):
            raise BadInput(f"{_the(entry)} takes an input shape {axes} such as {_text(default)}, not {_text(shape)}.")
        for side in shape:
            _positive(entry, "input shape", side)
        if shape[0] != default[0]:
            raise BadInput(
                f"{_the(entry)} takes {default[0]} channel{'s' if default[0] > 1 else ''}, not {shape[0]}: "
                f"an input shape is {axes}."
            )
        if self.fixed and shape != default:
            raise BadInput(
                f"{_the(entry)} takes inputs of {_text(default)} only, because its position embeddings are made "
                f"for that size, not {_text(shape)}."
            )
        if min(shape[1:]) < self.smallest:
            raise BadInput(
                f"{_the(entry)} needs inputs of at least {self.smallest} on each side, "
                f"because its last maps would be empty, not {_text(shape)}."
            )
        if self.norm_side and batch_size == 1 and all(self.norm_side(side) == 1 for side in shape[1:]):
            raise BadInput(
                f"{_the(entry)} cannot train on a single input of {_text(shape)}, because a batch norm would see one "
                "value per channel; use a batch size of 2 or a larger input."
            )
        return shape


def halved(times: int) -> Callable[[int], int]:
    """The side left after halving `times` times, rounding up: a padded convolution with stride 2."""
    return lambda side: -(-side // 2**times)


def tokens(
    entry: ZooModel,
    batch_size: int,
    input_shape: tuple[int, ...] | None,
    seq_len: int | None,
    shortest: int,
    positions: int | None,
) -> int:
    """The number of tokens in each sequence: the one asked for, or the default."""
    if not isinstance(entry.default_input, int):
        raise TypeError(f"{entry.name} is registered with an input shape, not a sequence length")
    _positive(entry, "batch size", batch_size)
    if input_shape is not None:
        raise BadInput(f"{_the(entry)} takes a sequence length (a number of tokens) and no input shape.")
    length = entry.default_input if seq_len is None else seq_len
    _positive(entry, "sequence length", length)
    if length < shortest:
        raise BadInput(f"{_the(entry)} needs at least {shortest} tokens, to have one to predict, not {length}.")
    if positions is not None and length > positions:
        raise BadInput(f"{_the(entry)} has {positions} positions: a sequence length of {length} is too long.")
    return length


def features(
    entry: ZooModel, batch_size: int, input_shape: tuple[int, ...] | None, seq_len: int | None
) -> tuple[int, ...]:
    """The shape of one row: any shape with as many values as the default."""
    default = _default_shape(entry)
    _positive(entry, "batch size", batch_size)
    if seq_len is not None:
        raise BadInput(f"{_the(entry)} takes an input shape of {math.prod(default)} values and no sequence length.")
    shape = default if input_shape is None else tuple(input_shape)
    for side in shape:
        _positive(entry, "input shape", side)
    if not shape or math.prod(shape) != math.prod(default):
        raise BadInput(
            f"{_the(entry)} takes inputs of {math.prod(default)} values in any shape, "
            f"not {_text(shape)} ({math.prod(shape)} values)."
        )
    return shape


def _default_shape(entry: ZooModel) -> tuple[int, ...]:
    if isinstance(entry.default_input, int):
        raise TypeError(f"{entry.name} is registered with a sequence length, not an input shape")
    return entry.default_input


def _positive(entry: ZooModel, what: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadInput(f"{_the(entry)} needs whole numbers above zero for its {what}, not {value!r}.")


def _the(entry: ZooModel) -> str:
    return f"zoo model {entry.name}"


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(str(side) for side in shape) or "nothing"
