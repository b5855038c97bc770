"""Errors that a GPU, or torch on it, would raise itself: they are the job's, though our code raises them."""

from __future__ import annotations

__all__ = ["GpuIndexError", "GpuRuntimeError", "GpuTypeError", "NoSuchGpu", "RaisedAsOnGpu"]


class RaisedAsOnGpu(Exception):
    """Marks them; the second base is what the job would catch."""


class GpuIndexError(RaisedAsOnGpu, IndexError):
    pass


class GpuRuntimeError(RaisedAsOnGpu, RuntimeError):
    pass


class GpuTypeError(RaisedAsOnGpu, TypeError):
    pass


class NoSuchGpu(RaisedAsOnGpu, RuntimeError):
    """A device was named by an index beyond the last one."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index
