"""The record of a job on its device: events, tensors, categories, phases; verify; a versioned file format."""

from ._trace import Allocation, Category, Event, EventKind, KernelCall, Mark, Operand, Phase, Trace

__all__ = ["Allocation", "Category", "Event", "EventKind", "KernelCall", "Mark", "Operand", "Phase", "Trace"]
