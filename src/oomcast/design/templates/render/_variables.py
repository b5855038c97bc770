"""Which local variable holds which value, so that no value is held longer than its last use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Step", "variables"]

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
