"""A Trace as a versioned file: gzipped JSON, in columns, with every string written once.

`{"format": "oomcast-trace", "version": 2, "strings": [...], "allocations": {column: [...]}, ...}`. Shapes and
operands are interned like strings, since a training step repeats itself.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..errors import BadInput, UnreadableFile
from ..files import unpack
from .promises import BrokenTrace, verify
from .record import (
    Allocation,
    Category,
    Communicator,
    Ending,
    Event,
    EventKind,
    KernelCall,
    Mark,
    Operand,
    Phase,
    ProcessSettings,
    ScriptRun,
    Trace,
)

__all__ = ["TRACE_VERSION", "read_trace", "trace_from_bytes", "trace_to_bytes", "write_trace"]

TRACE_VERSION = 2
"""Version 1 knew neither scripts nor the phases that only they have; its files are read as before."""
_FORMAT = "oomcast-trace"
_LARGEST = 1 << 30
"""Bytes of JSON beyond which a file is refused: a small gzip file can claim to unpack to anything."""


_T = TypeVar("_T", bound=Hashable)


class _Interned(dict[_T, int]):
    """Values numbered in the order they are first met."""

    def __missing__(self, value: _T) -> int:
        number = self[value] = len(self)
        return number


def write_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write `trace` so that `read_trace` gives it back exactly."""
    target = Path(path)
    data = trace_to_bytes(trace)
    try:
        target.write_bytes(data)
    except OSError as error:
        raise BadInput(f"cannot write the trace to {target}: {error.strerror or error}.") from error


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a trace file; anything else is an `UnreadableFile` with one sentence."""
    source = Path(path)
    try:
        data = source.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"cannot read {source}: {error.strerror or error}.") from error
    return trace_from_bytes(data, name=str(source))


def trace_to_bytes(trace: Trace) -> bytes:
    """The content of a trace file."""
    strings: _Interned[str] = _Interned()
    shapes: _Interned[tuple[int, ...]] = _Interned()
    operands: _Interned[Operand] = _Interned()
    allocations = trace.allocations
    document = {
        "format": _FORMAT,
        "version": TRACE_VERSION,
        "allocations": {
            "nbytes": [a.nbytes for a in allocations],
            "category": [strings[a.category.value] for a in allocations],
            "phase": [strings[a.phase.value] for a in allocations],
            "step": [a.step for a in allocations],
            "operator": [strings[a.operator] for a in allocations],
            "module": [strings[a.module] for a in allocations],
            "source": [strings[a.source] for a in allocations],
            "shape": [shapes[a.shape] for a in allocations],
            "dtype": [strings[a.dtype] for a in allocations],
            "stream": [a.stream for a in allocations],
        },
        "events": {
            "kind": "".join([str(int(kind)) for kind, _ in trace.events]),
            "index": [index for _, index in trace.events],
        },
        "kernels": [
            [strings[k.operator], [operands[o] for o in k.operands], [[strings[n], v] for n, v in k.attributes]]
            for k in trace.kernels
        ],
        "marks": [[mark.position, strings[mark.phase.value], mark.step] for mark in trace.marks],
        "unsupported": dict(trace.unsupported),
        "assumptions": list(trace.assumptions),
        "versions": dict(trace.versions),
        "workload": dict(trace.workload),
        "script": None if trace.script is None else dataclasses.asdict(trace.script),
        "settings": dataclasses.asdict(trace.settings),
        "communicators": [list(communicator) for communicator in trace.communicators],
        "on_host": trace.on_host,
        "plan_is_modelled": trace.plan_is_modelled,
        "operands": [[shapes[o.shape], shapes[o.stride], strings[o.dtype]] for o in operands],
        "shapes": list(shapes),
        "strings": list(strings),
    }
    # The interned tables fill while the columns are built; dict literals evaluate in order, so they stand last.
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # No time stamp in the header: the same trace is the same bytes.
    return gzip.compress(text.encode(), compresslevel=3, mtime=0)


def trace_from_bytes(data: bytes, *, name: str = "the trace") -> Trace:
    """Read what `trace_to_bytes` wrote; `name` is how an error calls it."""
    document = _load(data, name)
    version = document.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise UnreadableFile(f"{name} does not say which version of the trace format it has.")
    if version > TRACE_VERSION:
        raise UnreadableFile(
            f"{name} was written by a newer oomcast (trace format {version}, this one reads up to {TRACE_VERSION}); "
            "update oomcast, or capture the job again."
        )
    try:
        trace = _build(document)
        verify(trace)
    except BrokenTrace as error:
        raise UnreadableFile(f"{name} holds a trace that cannot have happened: {error}") from error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise UnreadableFile(f"{name} is damaged: its columns do not fit together.") from error
    return trace


def _load(data: bytes, name: str) -> dict[str, Any]:
    raw = unpack(data, _LARGEST, name, "a trace file")
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{name} is not a trace file, or damaged.") from error
    except MemoryError as error:
        raise UnreadableFile(f"{name} holds more than this machine has memory for.") from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise UnreadableFile(f"{name} is not a trace file.")
    return document


def _build(document: Mapping[str, Any]) -> Trace:
    strings = [_checked(value, str) for value in document["strings"]]
    shapes = [tuple(_checked(size, int) for size in shape) for shape in document["shapes"]]
    # Enum look-ups by value are slow; one per distinct string is not.
    categories = {number: Category(text) for number, text in enumerate(strings) if text in _CATEGORIES}
    phases = {number: Phase(text) for number, text in enumerate(strings) if text in _PHASES}
    table = document["allocations"]
    for column in ("nbytes", "step", "stream"):
        _all_ints(table[column])
    for column in ("category", "phase", "operator", "module", "source", "shape", "dtype"):
        _all_indices(table[column])
    columns: list[list[Any]] = [
        table["nbytes"],
        [categories[number] for number in table["category"]],
        [phases[number] for number in table["phase"]],
        table["step"],
        [strings[number] for number in table["operator"]],
        [strings[number] for number in table["module"]],
        [strings[number] for number in table["source"]],
        [shapes[number] for number in table["shape"]],
        [strings[number] for number in table["dtype"]],
        table["stream"],
    ]
    if len({len(column) for column in columns}) > 1:
        raise ValueError("columns of different lengths")
    allocations = tuple(map(Allocation, *columns))
    kinds = {str(int(kind)): kind for kind in EventKind}
    indices = document["events"]["index"]
    _all_ints(indices)
    if len(document["events"]["kind"]) != len(indices):
        raise ValueError("columns of different lengths")
    events = tuple(map(Event, map(kinds.__getitem__, document["events"]["kind"]), indices))
    for row in document["operands"]:
        _all_indices(row)
    operands = [Operand(shapes[shape], shapes[stride], strings[dtype]) for shape, stride, dtype in document["operands"]]
    kernels = tuple(
        KernelCall(
            strings[operator],
            tuple(operands[number] for number in numbers),
            tuple((strings[key], _frozen(value)) for key, value in attributes),
        )
        for operator, numbers, attributes in document["kernels"]
    )
    return Trace(
        allocations=allocations,
        events=events,
        kernels=kernels,
        marks=tuple(
            Mark(_checked(at, int), phases[phase], _checked(step, int)) for at, phase, step in document["marks"]
        ),
        unsupported={_checked(what, str): _checked(count, int) for what, count in document["unsupported"].items()},
        assumptions=tuple(_checked(sentence, str) for sentence in document["assumptions"]),
        versions={_checked(what, str): _checked(version, str) for what, version in document["versions"].items()},
        workload=dict(document["workload"]),
        script=_script(document.get("script")),
        settings=_settings(document.get("settings", {})),
        communicators=tuple(
            Communicator(
                _checked(size, int),
                _checked(nodes, int),
                tuple(_checked(word, str) for word in done),
                _checked(near, int),
            )
            for size, nodes, done, near in document.get("communicators", ())
        ),
        on_host=_checked(document.get("on_host", 0), int),
        plan_is_modelled=_checked(document.get("plan_is_modelled", False), bool),
    )


def _settings(plain: Mapping[str, Any]) -> ProcessSettings:
    allocator, cublas = plain.get("alloc_conf"), plain.get("cublas_workspace")
    return ProcessSettings(
        cudnn_benchmark=_checked(plain.get("cudnn_benchmark", False), bool),
        cudnn_deterministic=_checked(plain.get("cudnn_deterministic", False), bool),
        cudnn_tf32=_checked(plain.get("cudnn_tf32", True), bool),
        alloc_conf=None if allocator is None else _checked(allocator, str),
        cublas_workspace=None if cublas is None else _checked(cublas, str),
        nccl=tuple((_checked(name, str), _checked(value, str)) for name, value in plain.get("nccl", ())),
    )


def _script(plain: Mapping[str, Any] | None) -> ScriptRun | None:
    if plain is None:
        return None
    return ScriptRun(
        ending=Ending(plain["ending"]),
        reason=_checked(plain["reason"], str),
        optimizer_steps=_checked(plain["optimizer_steps"], int),
        not_seen=tuple(_checked(phase, str) for phase in plain["not_seen"]),
        batches=tuple(_checked(sentence, str) for sentence in plain["batches"]),
        gpus=tuple(_checked(number, int) for number in plain.get("gpus", ())),
    )


_CATEGORIES = {category.value for category in Category}
_PHASES = {phase.value for phase in Phase}


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{kind.__name__} expected")
    return value


def _all_ints(column: Any) -> None:
    if not set(map(type, column)) <= {int}:
        raise TypeError("int expected")


def _all_indices(column: Any) -> None:
    _all_ints(column)
    # A negative index would silently read from the end.
    if column and min(column) < 0:
        raise IndexError("negative index")


def _frozen(value: Any) -> Any:
    """JSON has lists where a kernel's attributes have tuples."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
