"""The allocators that a Trace can be run on, by their settings."""

from __future__ import annotations

from typing import Protocol

from .bfc import BfcAllocator, BfcSettings
from .blocks import Block
from .caching_allocator import CachingAllocator
from .mxnet import StoragePool, StoragePoolSettings
from .onnx_arena import ArenaSettings
from .settings import AllocatorSettings

__all__ = ["Allocator", "Settings", "let_go", "new_allocator", "settings_for"]

Settings = AllocatorSettings | BfcSettings | StoragePoolSettings
"""Whose they are says which allocator it is."""


_XLA = BfcSettings(allow_growth=False, memory_fraction=0.75)
"""JAX preallocates three quarters of a card (`XLA_PYTHON_CLIENT_MEM_FRACTION`)."""


def settings_for(framework: str, alloc_conf: str | None = None) -> Settings:
    """How a framework's allocator is set up, with what the user says of it."""
    if framework == "torch":
        return AllocatorSettings.parse(alloc_conf) if alloc_conf else AllocatorSettings()
    if framework == "mxnet":
        return StoragePoolSettings.parse(alloc_conf) if alloc_conf else StoragePoolSettings()
    settings = _XLA if framework == "jax" else ArenaSettings() if framework == "onnx" else BfcSettings()
    return settings.changed(alloc_conf) if alloc_conf else settings


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


def let_go(allocator: Allocator, block: Block) -> None:
    """Nothing needs a block any more but another stream: torch's counters leave it out from here on."""
    if isinstance(allocator, CachingAllocator):
        allocator.let_go(block)


def new_allocator(
    settings: Settings | None = None, *, capacity: int | None = None, device_total: int | None = None
) -> Allocator:
    """An empty allocator; without settings it is torch's."""
    if isinstance(settings, BfcSettings):
        return BfcAllocator(settings, capacity=capacity, device_total=device_total)
    if isinstance(settings, StoragePoolSettings):
        return StoragePool(settings, capacity=capacity, device_total=device_total)
    return CachingAllocator(settings, capacity=capacity, device_total=device_total)
