"""A process: it takes a case and gives its outputs by the defining conditions, or says which condition rejects it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from oomcast.errors import BadInput, UnknownName

from .compile import UNSET, Frame, Run
from .types import Type, Undefined, accepts

__all__ = ["Condition", "Outputs", "Process", "Rejection", "Scenario"]

Outputs = dict[str, Any]


@dataclass(frozen=True)
class Rejection:
    """Why a case cannot be: the process, the condition that does not hold, and the values that it read."""

    process: str
    kind: Literal["type", "pre", "post"]
    condition: str
    file: str
    line: int
    values: tuple[tuple[str, Any], ...] = ()
    undefined: str = ""
    """Why the condition has no value at all, where that is so."""
    layer: str = ""
    """The layer of the network that was being checked, if it was a network."""

    def __str__(self) -> str:
        where = f"layer {self.layer!r}: " if self.layer else ""
        section = {"type": "the type", "pre": "the precondition", "post": "the postcondition"}[self.kind]
        values = ", ".join(f"{name} = {_shown(value)}" for name, value in self.values)
        reason = f", since {self.undefined}" if self.undefined else ""
        with_values = f" with {values}" if values else ""
        condition = f"{section} `{self.condition}` ({self.file}:{self.line})"
        return f"{where}{self.process} rejects it: {condition} does not hold{with_values}{reason}"

    def at_layer(self, name: str) -> Rejection:
        return replace(self, layer=name)


@dataclass(frozen=True)
class Condition:
    """One conjunct, with its text as written and the names whose values explain it."""

    text: str
    line: int
    run: Run
    reads: tuple[tuple[str, Run], ...]


@dataclass(frozen=True)
class Scenario:
    """One disjunct of the postcondition: guard conditions, and what they then define for each output."""

    guards: tuple[Condition, ...]
    defines: tuple[tuple[str, int, Condition], ...]
    """Output, its slot, and its defining condition (whose `run` is the right side)."""


@dataclass(frozen=True)
class Process:
    """A compiled process. `inputs` and `outputs` are its signature, in order."""

    name: str
    file: str
    line: int
    inputs: tuple[tuple[str, Type], ...]
    outputs: tuple[tuple[str, Type], ...]
    preconditions: tuple[Condition, ...]
    scenarios: tuple[Scenario, ...]
    slots: int

    def run(self, case: Mapping[str, Any]) -> Outputs | Rejection:
        """The outputs for a case that gives every input a value, or the first condition that does not hold.

        Of the scenarios of the postcondition, the first whose guards hold defines the outputs.
        """
        frame: Frame = [UNSET] * self.slots
        rejection = self._bind(case, frame)
        if rejection is not None:
            return rejection
        for condition in self.preconditions:
            rejection = self._unless(condition, frame, "pre")
            if rejection is not None:
                return rejection
        for scenario in self.scenarios:
            rejection = self._first_failing(scenario.guards, frame)
            if rejection is None:
                return self._define(scenario, frame)
        assert rejection is not None
        return rejection

    def check(self, case: Mapping[str, Any]) -> Rejection | None:
        """None if the case passes; a truth value that is false among the outputs rejects it as a condition does."""
        outputs = self.run(case)
        if isinstance(outputs, Rejection):
            return outputs
        for name, type_ in self.outputs:
            if type_.name == "bool" and outputs[name] is False:
                values = tuple((input_name, case[input_name]) for input_name, _ in self.inputs)
                return Rejection(self.name, "post", f"{name} = true", self.file, self.line, values)
        return None

    def _bind(self, case: Mapping[str, Any], frame: Frame) -> Rejection | None:
        if len(case) != len(self.inputs):
            self._check_names(case)
        outside: Rejection | None = None
        for slot, (name, type_) in enumerate(self.inputs):
            if name not in case:
                self._check_names(case)
            value = case[name]
            fits = accepts(type_, value)
            if fits is False:
                raise BadInput(f"{self.name} takes {name} as {type_}, not {value!r}.")
            if fits is None and outside is None:
                shown = ((name, value),)
                outside = Rejection(self.name, "type", f"{name}: {type_}", self.file, self.line, shown)
            frame[slot] = value
        return outside

    def _check_names(self, case: Mapping[str, Any]) -> None:
        known = [name for name, _ in self.inputs]
        for name in case:
            if name not in known:
                raise UnknownName(f"input of {self.name}", name, known, f"It takes {', '.join(known)}.")
        missing = [name for name in known if name not in case]
        if missing:
            raise BadInput(f"{self.name} needs a value for {', '.join(missing)}.")

    def _first_failing(self, conditions: tuple[Condition, ...], frame: Frame) -> Rejection | None:
        for condition in conditions:
            rejection = self._unless(condition, frame, "post")
            if rejection is not None:
                return rejection
        return None

    def _unless(self, condition: Condition, frame: Frame, kind: Literal["pre", "post"]) -> Rejection | None:
        try:
            return None if condition.run(frame) else self._rejection(condition, frame, kind)
        except Undefined as undefined:
            return self._rejection(condition, frame, kind, str(undefined))

    def _define(self, scenario: Scenario, frame: Frame) -> Outputs | Rejection:
        outputs = {}
        for name, slot, condition in scenario.defines:
            try:
                outputs[name] = frame[slot] = condition.run(frame)
            except Undefined as undefined:
                return self._rejection(condition, frame, "post", str(undefined))
        return outputs

    def _rejection(
        self, condition: Condition, frame: Frame, kind: Literal["pre", "post"], undefined: str = ""
    ) -> Rejection:
        values = []
        for name, run in condition.reads:
            try:
                values.append((name, run(frame)))
            except Undefined:
                continue
        return Rejection(self.name, kind, condition.text, self.file, condition.line, tuple(values), undefined)


def _shown(value: Any) -> str:
    if isinstance(value, (tuple, list, range)):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
