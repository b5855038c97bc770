"""The specification language: what each kind of layer takes and gives, written in the form of SOFL.

A process is read from text, compiled to Python functions (nothing is executed as Python), and then takes a case: it
answers with the outputs that its defining conditions give, or with the condition that does not hold. See
docs/specification.md.
"""

from ._errors import Place, SpecificationError, UnknownInSpecification
from ._library import Library, layer_specifications, read_library
from ._network import Shape, check_network, layer_shape, network_shapes
from ._parse import Source
from ._process import Outputs, Process, Rejection

__all__ = [
    "Library",
    "Outputs",
    "Place",
    "Process",
    "Rejection",
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
