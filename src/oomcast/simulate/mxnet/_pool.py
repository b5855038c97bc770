"""MXNet's storage manager for a GPU, to the byte.

The rules are those of `pooled_storage_manager.h` (MXNet 1.9):

- A request's size is rounded (see the settings) and asked of the blocks that are free and have exactly that size, the
  latest first. Blocks are never split nor joined.
- Where there is none, the device is asked for one. If that would leave less than the reserve free, all free blocks are
  given back first; the same if the device refuses.
- A freed block is kept. Without a pool it goes back to the device at once.
"""

from __future__ import annotations

from .._blocks import Block, BlockState, Pool, Segment, SegmentState
from .._caching_allocator import DeviceFull
from ._settings import StoragePoolSettings

__all__ = ["StoragePool"]

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
        found = []
        for segment in sorted(self._segments.values(), key=lambda segment: segment.address):
            head = segment.head
            state = BlockState(head.address, head.size, head.live, head.requested)
            found.append(SegmentState(segment.address, segment.size, 0, False, (state,)))
        return tuple(found)

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
