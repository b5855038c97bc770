"""Parameters that several templates share, and the template class that checks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from .._factors import Value
from .._template import Parameter, complete
from ._builder import Given
from ._network import Network

__all__ = [
    "ACTIVATIONS",
    "OPTIMIZERS",
    "NetworkTemplate",
    "activation",
    "batch_size",
    "choice",
    "deformations",
    "dropout",
    "flag",
    "optimizer",
    "real",
    "whole",
]

ACTIVATIONS = ("relu", "leaky_relu", "elu", "gelu", "silu", "tanh")
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "rmsprop")


@dataclass(frozen=True)
class NetworkTemplate:
    """A template: its parameters and the function that makes a network of them."""

    name: str
    parameters: tuple[Parameter, ...]
    build: Callable[[Given], Network]

    def network(self, parameters: Mapping[str, Value]) -> Network:
        """The layer graph. Parameters that are not given have their defaults; the specification has yet to see it."""
        values = complete(self, parameters)
        defaults = {parameter.name: parameter.default for parameter in self.parameters}
        changed = {name: value for name, value in values.items() if value != defaults[name]}
        return replace(self.build(Given(values)), parameters=changed)


def whole(name: str, default: int, minimum: int, maximum: int, meaning: str) -> Parameter:
    return Parameter(name, "int", default, minimum=minimum, maximum=maximum, meaning=meaning)


def real(name: str, default: float, minimum: float, maximum: float, meaning: str) -> Parameter:
    return Parameter(name, "float", default, minimum=minimum, maximum=maximum, meaning=meaning)


def choice(name: str, default: Value, choices: tuple[Value, ...], meaning: str) -> Parameter:
    return Parameter(name, "str" if isinstance(default, str) else "int", default, choices, meaning=meaning)


def flag(name: str, default: bool, meaning: str) -> Parameter:
    return Parameter(name, "bool", default, meaning=meaning)


def batch_size(default: int) -> Parameter:
    return whole("batch_size", default, 1, 65_536, "samples in a batch")


def optimizer(default: str) -> Parameter:
    return choice("optimizer", default, OPTIMIZERS, "what trains it")


def activation(default: str) -> Parameter:
    return choice("activation", default, ACTIVATIONS, "the activation function, everywhere")


def dropout(default: float, where: str) -> Parameter:
    return real("dropout", default, 0.0, 0.95, f"the dropout rate {where}; 0 for none")


def deformations(part: str, count: int, extra: str) -> tuple[Parameter, ...]:
    """What can be changed in each of a network's parts on its own: these are the factors that deform its layers."""
    return tuple(
        parameter
        for number in range(1, count + 1)
        for parameter in (
            choice(f"{part}{number}_kernel", 0, (0, 1, 3, 5, 7), f"kernel of {part} {number}; 0 for the common one"),
            real(f"{part}{number}_width", 1.0, 0.125, 8.0, f"what the filters of {part} {number} are multiplied by"),
            whole(f"{part}{number}_extra", 0, 0, 8, f"{extra} added to {part} {number}"),
        )
    )
