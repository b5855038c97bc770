"""Puts a network together, layer after layer; names come from the part of the network that is being built."""

from __future__ import annotations

from collections.abc import Mapping

from .._factors import Value
from ._network import Layer

__all__ = ["Builder", "Given"]


class Given:
    """A template's parameters, read with the type that each has."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = values

    def whole(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def real(self, name: str) -> float:
        value = self.values[name]
        assert not isinstance(value, str)
        return float(value)

    def text(self, name: str) -> str:
        value = self.values[name]
        assert isinstance(value, str)
        return value

    def flag(self, name: str) -> bool:
        value = self.values[name]
        assert isinstance(value, bool)
        return value


class Builder:
    """`at` says where the next layers belong; each method adds one and gives its name."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self._block = ""
        self._counts: dict[str, int] = {}

    def at(self, block: str) -> None:
        self._block = block

    def add(self, kind: str, *inputs: str, **arguments: Value) -> str:
        stem = f"{self._block}_{kind}"
        self._counts[stem] = self._counts.get(stem, 0) + 1
        name = f"{stem}{self._counts[stem]}"
        self.layers.append(Layer(name, kind, inputs, arguments, self._block))
        return name

    def conv(
        self, x: str, filters: int, kernel: int, stride: int = 1, padding: int | None = None, bias: bool = True
    ) -> str:
        """Padded by half the kernel, so that an odd kernel keeps the size, unless told otherwise."""
        around = kernel // 2 if padding is None else padding
        return self.add("conv", x, filters=filters, kernel=kernel, stride=stride, padding=around, bias=bias)

    def pool(self, x: str, how: str, kernel: int, stride: int, padding: int = 0) -> str:
        return self.add(f"{how}_pool", x, kernel=kernel, stride=stride, padding=padding)

    def linear(self, x: str, features: int, bias: bool = True) -> str:
        return self.add("linear", x, features=features, bias=bias)

    def normalize(self, x: str, how: str, groups: int = 8) -> str:
        """`how` is batch, group, layer, or none."""
        if how == "none":
            return x
        return self.add("group_norm", x, groups=groups) if how == "group" else self.add(f"{how}_norm", x)

    def activate(self, x: str, function: str) -> str:
        return self.add("activation", x, function=function)

    def drop(self, x: str, rate: float) -> str:
        return self.add("dropout", x, rate=rate) if rate > 0 else x
