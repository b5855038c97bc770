"""What the one capture process must know of a framework; everything else about it is the same for all."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import OomcastError
from ..spec import Spec
from ..trace import Trace
from .frameworks import load_packages

__all__ = ["ROOMS", "Hooks", "hooks_of"]

ROOMS: dict[str, str] = {
    name: f"oomcast.capture.{name}.hooks" for name in ("torch", "tensorflow", "jax", "mxnet", "onnx")
}
"""Framework → the module that has its `HOOKS`. The module itself loads nothing of the framework."""


def _nothing(*_: object) -> None:
    return None


@dataclass(frozen=True)
class Hooks:
    framework: str
    packages: tuple[str, ...]
    """Without them nothing can be captured."""
    least: Mapping[str, str]
    """Package → the oldest version that is promised, as the extra of the framework asks for it."""
    capture: Callable[[Spec], Trace]
    """In the job's own process."""
    set_up: Callable[[], None] = _nothing
    """Before the packages are loaded: settings of the process."""
    loads_early: tuple[str, ...] = ()
    """Modules that may be loaded before a fork. None for a framework whose threads would be missing in it."""
    warm_up: Callable[[], None] = _nothing
    """Once in a server, when the packages are loaded."""
    load_library: Callable[[Spec], None] = _nothing
    """In a server, before the fork of each request: what it loads is there for the next one too."""
    explain: Callable[[BaseException, Spec], OomcastError | None] = _nothing
    """The framework's own reading of an error; None where it has none."""

    def load(self) -> None:
        """Load the packages that are there; what is missing is said when a job needs it."""
        self.set_up()
        load_packages(self.packages)


def hooks_of(framework: str) -> Hooks:
    hooks: Hooks = importlib.import_module(ROOMS[framework]).HOOKS
    return hooks
