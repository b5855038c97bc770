"""MXNet's memory on a GPU: a pool of blocks that are used again whole, and one scratch space for all kernels."""

from ._pool import StoragePool
from ._settings import StoragePoolSettings
from ._temp_space import TempSpace

__all__ = ["StoragePool", "StoragePoolSettings", "TempSpace"]
