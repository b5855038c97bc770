"""The specification language: what each kind of layer takes and gives, written in the form of SOFL.

A process is read from text, compiled to Python functions (nothing is executed as Python), and then takes a case: it
answers with the outputs that its defining conditions give, or with the condition that does not hold. See
docs/reference/specification.md.
"""

from __future__ import annotations

from .library import Library, layer_specifications, read_library
from .networks import Rules, Shape, check_network, layer_shape, network_shapes
from .parse import Source
from .process import Outputs, Process, Rejection
from .types import Place, SpecificationError, UnknownInSpecification

__all__ = [
    "Library",
    "Outputs",
    "Place",
    "Process",
    "Rejection",
    "Rules",
    "Shape",
    "Source",
    "SpecificationError",
    "UnknownInSpecification",
    "check_network",
    "layer_shape",
    "layer_specifications",
    "network_shapes",
    "read_library",
]
