"""What a template is: a network held as data, with parameters that say what they take.

At the end are the parameters that several templates share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from ....errors import BadInput, UnknownName
from ..factors import Value
from .network import Network, TypedParameters

if TYPE_CHECKING:
    from . import Network

__all__ = [
    "ACTIVATIONS",
    "OPTIMIZERS",
    "Kind",
    "NetworkTemplate",
    "Parameter",
    "Parametric",
    "Template",
    "activation",
    "batch_size",
    "choice",
    "complete",
    "deformations",
    "dropout",
    "flag",
    "optimizer",
    "real",
    "whole",
]

Kind = Literal["int", "float", "str", "bool"]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a template: either it takes one of `choices`, or any value from `minimum` to `maximum`."""

    name: str
    kind: Kind
    default: Value
    choices: tuple[Value, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    meaning: str = ""

    def takes(self) -> str:
        """What the parameter takes, as words: `one of 11, 13, 16, 19`, `a whole number from 1 to 4096`."""
        if self.choices:
            return "one of " + ", ".join(str(choice) for choice in self.choices)
        noun = {"int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false"}[self.kind]
        if self.minimum is not None and self.maximum is not None:
            return f"{noun} from {self.minimum:g} to {self.maximum:g}"
        if self.minimum is not None:
            return f"{noun} of at least {self.minimum:g}"
        return noun if self.maximum is None else f"{noun} of at most {self.maximum:g}"

    def accepts(self, value: Value) -> bool:
        """Whether the value is of the parameter's kind and among what it takes."""
        if not _is_kind(self.kind, value):
            return False
        if self.choices and value not in self.choices:
            return False
        if isinstance(value, (str, bool)):
            return True
        return (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)


class Template(Protocol):
    """A classic network whose layers and hyperparameters can be varied."""

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> tuple[Parameter, ...]: ...

    def network(self, parameters: Mapping[str, Value]) -> Network:
        """The layer graph, with shapes, for a full set of parameters."""
        ...


class Parametric(Protocol):
    """Anything with a name and parameters: a template, or a seed of a campaign."""

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> tuple[Parameter, ...]: ...


def complete(template: Parametric, values: Mapping[str, Value]) -> dict[str, Value]:
    """All parameters of the template in its order: the values given, defaults for the rest; each value is checked."""
    known = {parameter.name: parameter for parameter in template.parameters}
    for name, value in values.items():
        if name not in known:
            raise UnknownName(f"parameter of template {template.name!r}", name, known, f"It has {', '.join(known)}.")
        if not known[name].accepts(value):
            takes = known[name].takes()
            raise BadInput(f"template {template.name!r} does not take {name} = {value!r}; it takes {takes}.")
    return {name: values.get(name, parameter.default) for name, parameter in known.items()}


def _is_kind(kind: Kind, value: Value) -> bool:
    if isinstance(value, bool):
        return kind == "bool"
    if kind == "float":
        return isinstance(value, (int, float))
    return isinstance(value, {"int": int, "str": str, "bool": bool}[kind])


ACTIVATIONS = ("relu", "leaky_relu", "elu", "gelu", "silu", "tanh")
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "rmsprop")


@dataclass(frozen=True)
class NetworkTemplate:
    """A template: its parameters and the function that makes a network of them."""

    name: str
    parameters: tuple[Parameter, ...]
    build: Callable[[TypedParameters], Network]

    def network(self, parameters: Mapping[str, Value]) -> Network:
        """The layer graph. Parameters that are not given have their defaults; the specification has yet to see it."""
        values = complete(self, parameters)
        defaults = {parameter.name: parameter.default for parameter in self.parameters}
        changed = {name: value for name, value in values.items() if value != defaults[name]}
        return replace(self.build(TypedParameters(values)), parameters=changed)


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
