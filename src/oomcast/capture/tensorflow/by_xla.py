"""A Keras step as XLA compiles it for a GPU: TensorFlow writes the program, XLA's compiler plans it."""

from __future__ import annotations

import functools
from typing import Any

from ...trace import Category
from ..explain import first_sentence
from ..xla.compiled_text import read_program
from ..xla.other_frameworks import ask_compiler
from ..xla.plan import Compiled, NotAsked, schedule_of
from ..xla.schedule import Schedule, Slot
from .graph import place_of_name
from .step import TracedStep

__all__ = ["ask_xla"]


def ask_xla(step: TracedStep, gpu: str) -> tuple[Schedule, Compiled] | NotAsked:
    """The plan of a step that was traced for XLA with real weights, and what the compiler told."""
    try:
        program = step.function.experimental_get_compiler_ir(*step.batch)(stage="hlo_serialized")  # type: ignore[attr-defined]
    except Exception as error:  # whatever of TensorFlow has no counterpart in XLA
        return NotAsked(f"TensorFlow cannot write the step for XLA ({first_sentence(error)})")
    told = ask_compiler(program, gpu)
    if isinstance(told, NotAsked):
        return told
    given, kept = _arguments(step)
    counted = sum(slot.nbytes for slot in given)
    if counted != told.arguments:
        return NotAsked(f"the arguments of XLA's program have {told.arguments} bytes, those of the step {counted}")
    compiled = read_program(told.program)
    results = [
        Slot(f"result {number}", Category.TEMPORARY, *_form(tensor.shape.as_list(), tensor.dtype))
        for number, tensor in enumerate(step.graph.outputs)
        if number not in compiled.aliased and tensor.shape.is_fully_defined()
    ]
    place_of = functools.partial(place_of_name, optimizer_scope=step.optimizer_scope)
    return schedule_of(told, compiled, [*given, *kept], results, place_of), told


def _arguments(step: TracedStep) -> tuple[list[Slot], list[Slot]]:
    """What the program is given, and variables that it does not use.

    A variable's new value takes the old one's memory: TensorFlow gives both to the program as one.
    """
    slots = {
        id(variable.handle): Slot(
            variable.name, variable.category, *_form(variable.shape, variable.dtype), donated=True
        )
        for variable in step.variables
        if variable.handle is not None
    }
    unused = [
        Slot(variable.name, variable.category, *_form(variable.shape, variable.dtype), donated=True)
        for variable in step.variables
        if variable.handle is None
    ]
    given = []
    for number, tensor in enumerate(step.graph.inputs):
        if id(tensor) in slots:
            given.append(slots[id(tensor)])
        else:
            category = Category.INPUT if number < len(step.batch) else Category.BUFFER
            form = _form(tensor.shape.as_list(), tensor.dtype)
            given.append(Slot(tensor.name, category, *form, donated=category is Category.BUFFER))
    return given, unused


def _form(shape: Any, dtype: Any) -> tuple[int, tuple[int, ...], str]:
    """Bytes, shape and dtype."""
    nbytes = dtype.size
    for extent in shape:
        nbytes *= extent
    return nbytes, tuple(shape), dtype.name
