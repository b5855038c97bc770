"""Pieces of source text in the form that a formatter would give them, and what both frameworks' files share."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...specification import Shape
from ..network import Layer, Network, count_parameters

__all__ = ["Step", "argument", "call", "docstring", "resolved", "times", "variables"]

_WIDTH = 88


def call(start: str, arguments: Iterable[str], end: str = "", indent: int = 0) -> list[str]:
    """`start(arguments)end` on one line if it fits, else one argument a line."""
    written = list(arguments)
    line = f"{' ' * indent}{start}({', '.join(written)}){end}"
    if len(line) <= _WIDTH and not any("\n" in item for item in written):
        return [line]
    inner = " " * (indent + 4)
    return [f"{' ' * indent}{start}(", *(f"{inner}{item}," for item in written), f"{' ' * indent}){end}"]


def argument(name: str, value: object, default: object) -> list[str]:
    """`name=value`, or nothing where that is the default."""
    return [] if value == default else [f"{name}={value!r}"]


def times(shape: Shape) -> str:
    return " x ".join(map(str, shape))


def resolved(network: Network, shapes: dict[str, Shape]) -> tuple[Layer, ...]:
    """The layers without those that change nothing: padding to a size that is there already."""
    same: dict[str, str] = {}
    layers = []
    for layer in network.layers:
        inputs = tuple(same.get(name, name) for name in layer.inputs)
        if layer.kind == "pad_like" and shapes[layer.name] == shapes[layer.inputs[0]]:
            same[layer.name] = inputs[0]
        else:
            layers.append(Layer(layer.name, layer.kind, inputs, layer.arguments, layer.block))
    return tuple(layers)


def docstring(network: Network, framework: str, shapes: dict[str, Shape], usage: str) -> str:
    """What the file's reader should know first."""
    losses = {
        "classes": f"one of {network.classes} classes, by cross entropy",
        "tokens": f"each next token among {network.classes}, by cross entropy",
        "pixels": f"one of {network.classes} classes for each point, by cross entropy",
        "dice": "a mask, by the Dice loss",
    }
    taken = times(network.input.shape)
    what = f"{taken} tokens" if network.input.vocabulary else f"{taken} numbers"
    count = count_parameters(network, framework)
    facts = (
        f"It takes {what} a sample, {network.batch_size} samples a batch, and learns {losses[network.loss]}. "
        f"It has {count:,} trained parameters; its output is {times(shapes[network.layers[-1].name])}."
    )
    settings = ", ".join(f"{name} = {value}" for name, value in network.parameters.items())
    made = f"Made from oomcast's template {network.name}, with {settings}." if settings else ""
    paragraphs = [textwrap.fill(paragraph, _WIDTH) for paragraph in (f"{network.title}.", facts, made) if paragraph]
    return '"""' + "\n\n".join([*paragraphs, usage]) + '\n"""'


# Which local variable holds which value is decided here, so that no value is held longer than its last use.


_SHORT = ("x", "y", "z", "u", "v", "w")


@dataclass(frozen=True)
class Step:
    """One line of a forward pass: the values it reads and the one that it makes, with a name that says what it is."""

    inputs: tuple[str, ...]
    output: str
    label: str = ""


def variables(start: str, steps: Sequence[Step], far: int) -> dict[str, str]:
    """A variable for each value; it is used again as soon as its value is needed no more.

    A value that is used more than `far` steps later goes by its label.
    """
    last_use = {start: 0}
    for number, step in enumerate(steps):
        last_use.update(dict.fromkeys((*step.inputs, step.output), number))
    names, live = {start: "x"}, {"x": start}
    for number, step in enumerate(steps):
        live = {variable: value for variable, value in live.items() if last_use[value] > number}
        wanted = (step.label,) if step.label and last_use[step.output] - number > far else ()
        numbered = (f"value{count}" for count in range(1, len(steps) + 1))
        name = next(name for name in (*wanted, *_SHORT, *numbered) if name not in live)
        names[step.output] = name
        live[name] = step.output
    return names
