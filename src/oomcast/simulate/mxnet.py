"""MXNet's memory on a GPU, to the byte: its storage manager (`StoragePool`) and its kernels' scratch (`TempSpace`).

The storage manager's rules are those of `pooled_storage_manager.h` (MXNet 1.9):

- A request's size is rounded (see the settings) and asked of the blocks that are free and have exactly that size, the
  latest first. Blocks are never split nor joined.
- Where there is none, the device is asked for one. If that would leave less than the reserve free, all free blocks are
  given back first; the same if the device refuses.
- A freed block is kept. Without a pool it goes back to the device at once.

Kernels share one space for their scratch. One that needs more than the space has frees it and takes a larger one from
the device, and it is never given back. So in the end there is one block of the largest size; the simulation has it
from the first kernel on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import BadInput, UnknownName
from ..trace import KernelCall, Phase, Trace
from ..units import KiB, MiB
from .blocks import Block, BlockState, Pool, Segment, SegmentState
from .caching_allocator import DeviceFull
from .settings import read_named
from .workspace import NOTHING, Need, Persistent, Transient, Workspace

__all__ = ["POOL_TYPES", "StoragePool", "StoragePoolSettings", "TempSpace"]

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
        changes: dict[str, str | int] = {}
        for key, value in read_named(text, _KINDS, "pool_type:round").items():
            changes[key] = value if key == "pool_type" else int(value)
        return replace(self, **changes)  # type: ignore[arg-type]

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


_FIRST_ADDRESS = 1 << 40
_GAP = 1 << 21


class StoragePool:
    """A pool of one device. `capacity` is what it may take; None: no end of it."""

    def __init__(
        self,
        settings: StoragePoolSettings | None = None,
        *,
        capacity: int | None = None,
        device_total: int | None = None,
    ) -> None:
        self.settings = settings or StoragePoolSettings()
        self.allocated = self.peak_allocated = 0
        self.requested = self.peak_requested = 0
        self.reserved = self.peak_reserved = 0
        self.retries = 0
        """How often all free blocks were given back because the device was full, or nearly so."""
        self._capacity = capacity
        self._kept_free = (device_total or capacity or 0) * self.settings.reserve // 100
        self._free: dict[int, list[Block]] = {}
        self._segments: dict[int, Segment] = {}
        self._pool = Pool(False, 0, [0])
        self._next_address = _FIRST_ADDRESS

    @property
    def inactive_split(self) -> int:
        """Blocks are never split."""
        return 0

    def allocate(self, nbytes: int, stream: int = 0) -> Block:
        """A block for `nbytes`, which must not be 0; raises `DeviceFull`. All streams share one pool."""
        size = self.settings.rounded(nbytes)
        free = self._free.get(size)
        block = free.pop() if free else self._from_device(nbytes, size)
        block.live = True
        block.requested = nbytes
        self.allocated += size
        self.requested += nbytes
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        self.peak_requested = max(self.peak_requested, self.requested)
        return block

    def release(self, block: Block) -> None:
        if not block.live:
            raise ValueError(f"there is no live block at address {block.address}")
        block.live = False
        self.allocated -= block.size
        self.requested -= block.requested
        if self.settings.pool_type == "unpooled":
            self._to_device(block)
        else:
            self._free.setdefault(block.size, []).append(block)

    def empty_cache(self) -> None:
        """`mx.Context.empty_cache()`: free blocks go back to the device."""
        for blocks in self._free.values():
            for block in blocks:
                self._to_device(block)
        self._free.clear()

    def reset_peaks(self) -> None:
        self.peak_allocated, self.peak_requested, self.peak_reserved = self.allocated, self.requested, self.reserved

    def snapshot(self) -> tuple[SegmentState, ...]:
        """The blocks, in order of address."""
        segments = []
        for segment in sorted(self._segments.values(), key=lambda segment: segment.address):
            head = segment.head
            state = BlockState(head.address, head.size, head.live, head.requested)
            segments.append(SegmentState(segment.address, segment.size, 0, False, (state,)))
        return tuple(segments)

    def _from_device(self, nbytes: int, size: int) -> Block:
        if self._capacity is not None and size > self._capacity - self.reserved - self._kept_free:
            # MXNet asks the device for what is free, and keeps a part of it so, as long as it has blocks to give back.
            if any(self._free.values()):
                self.retries += 1
            self.empty_cache()
            if size > self._capacity - self.reserved:
                raise DeviceFull(requested=nbytes, segment_size=size, allocated=self.allocated, reserved=self.reserved)
        segment = Segment(self._next_address, size, self._pool)
        # A gap, so that blocks never touch.
        self._next_address += size + _GAP
        self._segments[segment.address] = segment
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return segment.head

    def _to_device(self, block: Block) -> None:
        del self._segments[block.segment.address]
        self.reserved -= block.size


_CONVOLUTION_LIMIT = 1024 * MiB
"""The parameter `workspace` of MXNet's convolutions: faster algorithms that need more are not taken."""


class TempSpace:
    """The rules of another table, for a trace whose kernels share one space."""

    def __init__(self, trace: Trace, rules: Workspace) -> None:
        self._rules = rules
        self._size = max((_chosen(rules(call, Phase.FORWARD)) for call in trace.kernels), default=0)

    def __call__(self, call: KernelCall, phase: Phase, /) -> Need | None:
        need = self._rules(call, phase)
        if not isinstance(need, Transient):
            return need
        return Persistent("temporary space", self._size) if _chosen(need) else NOTHING


def _chosen(need: Need | None) -> int:
    if not isinstance(need, Transient):
        return 0
    return next((size for size in need.alternatives if size <= _CONVOLUTION_LIMIT), 0)
