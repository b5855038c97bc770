"""TensorFlow's allocator: best fit with coalescing."""

from ._allocator import BfcAllocator
from ._settings import BfcSettings, pool_limit, system_reserve

__all__ = ["BfcAllocator", "BfcSettings", "pool_limit", "system_reserve"]
