"""How MXNet's storage manager is configured, by the names of its environment variables."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ...errors import BadInput, UnknownName
from ...units import KiB, MiB

__all__ = ["POOL_TYPES", "StoragePoolSettings"]

POOL_TYPES = ("naive", "round", "unpooled")
_LOWEST_CUTOFF, _HIGHEST_CUTOFF = 20, 34
_SMALLEST_PAGE = 32


@dataclass(frozen=True, slots=True)
class StoragePoolSettings:
    """The defaults are MXNet 1.9's."""

    pool_type: str = "naive"
    """`MXNET_GPU_MEM_POOL_TYPE`: blocks by exact size, sizes rounded to powers of two, or no pool."""
    page_size: int = 4 * KiB
    """`MXNET_GPU_MEM_POOL_PAGE_SIZE`: what every size is rounded to; of rounded pools, the smallest size."""
    large_round_size: int = 2 * MiB
    """`MXNET_GPU_MEM_LARGE_ALLOC_ROUND_SIZE`: what larger sizes than this are rounded to in the naive pool."""
    linear_cutoff: int = 24
    """`MXNET_GPU_MEM_POOL_ROUND_LINEAR_CUTOFF`: powers of two up to this one, then multiples of it."""
    reserve: int = 5
    """`MXNET_GPU_MEM_POOL_RESERVE`: per cent of the card; with less free, the pool gives back what it does not use."""

    def __post_init__(self) -> None:
        if self.pool_type not in POOL_TYPES:
            raise UnknownName("pool type", self.pool_type, POOL_TYPES, f"MXNet has {', '.join(POOL_TYPES)}.")
        if self.page_size < _SMALLEST_PAGE or self.large_round_size <= 0:
            raise BadInput(f"the page size must be at least {_SMALLEST_PAGE} and the large round size above 0.")
        if not 0 <= self.reserve <= 100:
            raise BadInput(f"the reserve is a percentage of the card, not {self.reserve}.")
        if self.pool_type == "round":
            if self.page_size & (self.page_size - 1):
                raise BadInput(f"the page size of a rounded pool must be a power of 2, not {self.page_size}.")
            if not _LOWEST_CUTOFF <= self.linear_cutoff <= _HIGHEST_CUTOFF or 1 << self.linear_cutoff < self.page_size:
                raise BadInput(
                    f"the linear cutoff must lie between {_LOWEST_CUTOFF} and {_HIGHEST_CUTOFF}, and not below the "
                    f"power of 2 that the page size is; it is {self.linear_cutoff}."
                )

    @staticmethod
    def parse(text: str) -> StoragePoolSettings:
        """`pool_type:round,linear_cutoff:26`: the fields by name, as `--alloc-conf` takes them."""
        return StoragePoolSettings().changed(text)

    def changed(self, text: str) -> StoragePoolSettings:
        """These settings with the fields that the text names."""
        given: dict[str, str | int] = {}
        for pair in text.replace(" ", "").split(","):
            key, colon, value = pair.partition(":")
            if key not in _KINDS:
                raise UnknownName("allocator setting", key, _KINDS)
            if not colon or not re.fullmatch(_KINDS[key], value.lower()):
                raise BadInput(f"cannot read {pair!r} in the allocator settings; write them like pool_type:round.")
            given[key] = value.lower() if key == "pool_type" else int(value)
        return replace(self, **given)  # type: ignore[arg-type]

    def rounded(self, nbytes: int) -> int:
        """What a request takes."""
        if self.pool_type == "unpooled":
            return nbytes
        if self.pool_type == "round":
            power = max((nbytes - 1).bit_length(), (self.page_size - 1).bit_length())
            return 1 << power if power <= self.linear_cutoff else _multiple(nbytes, 1 << self.linear_cutoff)
        size = _multiple(nbytes, self.page_size)
        return _multiple(size, self.large_round_size) if size > self.large_round_size else size


def _multiple(nbytes: int, unit: int) -> int:
    return -(-nbytes // unit) * unit


_KINDS = {
    "pool_type": r"[a-z]+",
    **dict.fromkeys(("page_size", "large_round_size", "linear_cutoff", "reserve"), "[0-9]+"),
}
