"""Where cases run: on this machine, or on a Ray cluster."""

from ._engine import Engine, Session
from ._local import LocalEngine
from ._ray import RayEngine

__all__ = ["Engine", "LocalEngine", "RayEngine", "Session"]
