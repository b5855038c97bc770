"""The record of a job on its device: events, tensors, categories, phases; verify; a versioned file format."""

from ._file import TRACE_VERSION, read_trace, trace_from_bytes, trace_to_bytes, write_trace
from ._trace import Allocation, Category, Event, EventKind, KernelCall, Mark, Operand, Phase, Trace
from ._verify import BrokenTrace, verify

__all__ = [
    "TRACE_VERSION",
    "Allocation",
    "BrokenTrace",
    "Category",
    "Event",
    "EventKind",
    "KernelCall",
    "Mark",
    "Operand",
    "Phase",
    "Trace",
    "read_trace",
    "trace_from_bytes",
    "trace_to_bytes",
    "verify",
    "write_trace",
]
