"""What a template is: a network held as data, with parameters that say what they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from ..errors import BadInput, UnknownName
from ._factors import Value

if TYPE_CHECKING:
    from .templates._network import Network

__all__ = ["Kind", "Parameter", "Template", "complete"]

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


def complete(template: Template, values: Mapping[str, Value]) -> dict[str, Value]:
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
