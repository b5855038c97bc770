"""What XLA's compiler writes about a program that it has compiled, read: its instructions, its buffers, their lives.

Three texts: the compiled program (`compiled.as_text()`), the assignment of buffers and their live ranges (both of
`--xla_dump_to`). They are made for people and have no promised form, so that everything read here is held against the
sums that XLA states as numbers (`plan`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..explain import is_users_file

__all__ = ["Buffer", "Buffers", "HloInstruction", "HloProgram", "Life", "read_buffers", "read_lives", "read_program"]


@dataclass(frozen=True)
class HloInstruction:
    name: str
    form: str
    """Its result's type and shape, `f32[8,16]{1,0}`; a tuple's in parentheses."""
    opcode: str
    operands: tuple[str, ...]
    op_name: str
    """The path of names that the framework gave it: `jit(step)/jvp(Net)/Dense_0/dot_general`."""
    source: str
    """`file.py:12`, or nothing."""
    text: str
    """The line as it is written."""


@dataclass(frozen=True)
class HloProgram:
    instructions: Mapping[str, HloInstruction]
    aliased: Mapping[int, int]
    """Number of a result → number of the argument whose memory it takes."""


_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_METADATA = re.compile(r'metadata=\{[^}]*?op_name="((?:[^"\\]|\\.)*)"')
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_ALIAS = re.compile(r"\{(\d*)\}: \((\d+), \{\}")
_TABLE = re.compile(r"^(\d+) (.*)$")


def read_program(text: str) -> HloProgram:
    places = _places(text)
    instructions = {}
    for line in text.splitlines():
        found = _INSTRUCTION.match(line)
        if found is None:
            continue
        name, form, opcode, rest = found.groups()
        told, frame = _METADATA.search(rest), _FRAME.search(rest)
        operands = tuple(re.findall(r"%([\w.\-]+)", rest.partition(")")[0]))
        source = places.get(int(frame[1]), "") if frame else ""
        instructions[name] = HloInstruction(name, form, opcode, operands, told[1] if told else "", source, line)
    head = text.partition("\n")[0]
    aliases = re.search(r"input_output_alias=\{(.*?) \}", head)
    pairs = _ALIAS.findall(aliases[1]) if aliases else []
    return HloProgram(instructions, {int(result or 0): int(argument) for result, argument in pairs})


def _places(text: str) -> dict[int, str]:
    """Number of a stack frame → the innermost line of it that belongs to no installed package."""
    tables: dict[str, dict[int, str]] = {"FileNames": {}, "FileLocations": {}, "StackFrames": {}}
    table: dict[int, str] | None = None
    for line in text.splitlines():
        if not line.strip() or line in tables:
            table = tables.get(line)
        elif table is not None and (found := _TABLE.match(line)):
            table[int(found[1])] = found[2]
        elif line.startswith("ENTRY"):
            break
    files = {number: name.strip('"') for number, name in tables["FileNames"].items()}
    lines: dict[int, tuple[str, int]] = {}
    for number, location in tables["FileLocations"].items():
        file, row = _number(location, "file_name_id"), _number(location, "line")
        lines[number] = (files.get(file, ""), row)
    frames = {  # a parent is written with one added; the outermost frame has none
        number: (_number(frame, "file_location_id"), _number(frame, "parent_frame_id") - 1)
        for number, frame in tables["StackFrames"].items()
    }
    return {number: _users_line(number, frames, lines) for number in frames}


def _number(text: str, name: str) -> int:
    found = re.search(rf"{name}=(\d+)", text)
    return int(found[1]) if found else 0


def _users_line(number: int, frames: Mapping[int, tuple[int, int]], lines: Mapping[int, tuple[str, int]]) -> str:
    seen = set()
    while number in frames and number not in seen:
        seen.add(number)
        location, parent = frames[number]
        file, row = lines.get(location, ("", 0))
        if file and is_users_file(file):
            return f"{Path(file).name}:{row}"
        number = parent
    return ""


class Buffer(NamedTuple):
    """A value in an allocation."""

    instruction: str
    part: str
    """Which part of an instruction's result, `{}` for all."""
    nbytes: int
    offset: int
    form: str


@dataclass(frozen=True)
class Buffers:
    temporaries: Sequence[tuple[int, Sequence[Buffer]]]
    """Blocks for temporaries: bytes, and what lies in each."""
    constants: int


_ALLOCATION = re.compile(r"^allocation \d+: size (\d+)(?:, (.*))?:$")
_VALUE = re.compile(r"^ value: <\d+ ([\w.\-]+)(\{[\d,]*\})? @\d+> \(size=(\d+),offset=(\d+)\): (.*)$")


@dataclass
class _Reading:
    nbytes: int
    values: list[Buffer] = field(default_factory=list)


def read_buffers(text: str) -> Buffers:
    temporaries: list[_Reading] = []
    constants = 0
    reading: _Reading | None = None
    for line in text.splitlines():
        if found := _ALLOCATION.match(line):
            kind = found[2] or ""
            reading = None
            if "preallocated-temp" in kind:
                reading = _Reading(int(found[1]))
                temporaries.append(reading)
            elif kind.startswith("constant"):
                constants += int(found[1])
        elif reading is not None and (found := _VALUE.match(line)):
            reading.values.append(Buffer(found[1], found[2] or "{}", int(found[3]), int(found[4]), found[5]))
    return Buffers([(block.nbytes, block.values) for block in temporaries], constants)


class Life(NamedTuple):
    first: int
    last: int


_STEP = re.compile(r"^\s+(\d+):([\w.\-]+)$")
_RANGE = re.compile(r"^\s+([\w.\-]+)(\{[\d,]*\}):(\d+)-(\d+)$")


def read_lives(text: str) -> tuple[list[str], dict[tuple[str, str], Life]]:
    """The instructions in the order in which they run, and when each value is made and read last."""
    order: list[str] = []
    lives: dict[tuple[str, str], Life] = {}
    for line in _until(text, "  Live ranges at"):
        if found := _RANGE.match(line):
            lives[found[1], found[2]] = Life(int(found[3]), int(found[4]))
        elif found := _STEP.match(line):
            order.append(found[2])
    return order, lives


def _until(text: str, end: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith(end):
            return
        yield line
