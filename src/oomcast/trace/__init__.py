"""The record of a job on its device: events, tensors, categories, phases; verify; a versioned file format."""

from __future__ import annotations

from .builder import Moment, TraceBuilder, peak_of
from .file import TRACE_VERSION, read_trace, trace_from_bytes, trace_to_bytes, write_trace
from .nameless import family_of, without_names
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

__all__ = [
    "TRACE_VERSION",
    "Allocation",
    "BrokenTrace",
    "Category",
    "Communicator",
    "Ending",
    "Event",
    "EventKind",
    "KernelCall",
    "Mark",
    "Moment",
    "Operand",
    "Phase",
    "ProcessSettings",
    "ScriptRun",
    "Trace",
    "TraceBuilder",
    "family_of",
    "peak_of",
    "read_trace",
    "trace_from_bytes",
    "trace_to_bytes",
    "verify",
    "without_names",
    "write_trace",
]
