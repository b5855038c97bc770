"""Where cases run: on this machine, on a Ray cluster, or as job arrays of Slurm."""

from __future__ import annotations

from .local import Engine, LocalEngine, Session
from .ray_cluster import RayEngine
from .slurm import SlurmEngine

__all__ = ["Engine", "LocalEngine", "RayEngine", "Session", "SlurmEngine"]
