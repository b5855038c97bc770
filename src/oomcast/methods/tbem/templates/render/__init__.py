"""From a network to a Python file that trains it: readable, runnable on its own, the same network in each framework."""

from __future__ import annotations

from oomcast.errors import BadInput, UnknownName

from ..network import Network
from .keras_file import render_keras
from .torch_file import render_torch

__all__ = ["FRAMEWORKS", "render"]

FRAMEWORKS = ("torch", "keras")
_DEVICES = ("cpu", "cuda")


def render(network: Network, framework: str, *, steps: int = 3, device: str = "cpu") -> str:
    """The source of a file that trains the network for `steps` steps on `device` (cpu or cuda).

    A network that the specification rejects is not rendered: `check_network` says beforehand whether it is one.
    """
    if framework not in FRAMEWORKS:
        raise UnknownName("framework", framework, FRAMEWORKS, f"There are {' and '.join(FRAMEWORKS)}.")
    if device not in _DEVICES:
        raise UnknownName("device", device, _DEVICES, f"A file runs on {' or '.join(_DEVICES)}.")
    if steps < 1:
        raise BadInput(f"a file trains for at least one step, not {steps}.")
    return (render_torch if framework == "torch" else render_keras)(network, steps, device)
