"""The allocators that a Trace can be run on, by their settings."""

from __future__ import annotations

from typing import Protocol

from ._blocks import Block
from ._caching_allocator import CachingAllocator
from ._settings import AllocatorSettings
from .bfc import BfcAllocator, BfcSettings

__all__ = ["Allocator", "Settings", "new_allocator"]

Settings = AllocatorSettings | BfcSettings
"""Whose they are says which allocator it is."""


class Allocator(Protocol):
    """What a simulation asks of an allocator; a failed request raises `DeviceFull`."""

    allocated: int
    requested: int
    reserved: int
    peak_allocated: int
    peak_requested: int
    peak_reserved: int
    retries: int

    @property
    def inactive_split(self) -> int: ...
    def allocate(self, nbytes: int, stream: int = 0) -> Block: ...
    def release(self, block: Block) -> None: ...
    def empty_cache(self) -> None: ...
    def reset_peaks(self) -> None: ...


def new_allocator(
    settings: Settings | None = None, *, capacity: int | None = None, device_total: int | None = None
) -> Allocator:
    """An empty allocator; without settings it is torch's."""
    if isinstance(settings, BfcSettings):
        return BfcAllocator(settings, capacity=capacity, device_total=device_total)
    return CachingAllocator(settings, capacity=capacity, device_total=device_total)
