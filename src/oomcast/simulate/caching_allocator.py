"""torch's CUDA caching allocator, to the byte: which block a request gets, and what the device is asked for.

Modelled after c10/cuda/CUDACachingAllocator.cpp. Left out on purpose: blocks used on several streams
(`record_stream` delays their reuse until the device is done, which depends on time), private pools of CUDA
graphs, and callbacks that free memory on demand.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from ..units import GiB
from . import expandable as _expandable
from .blocks import Block, BlockState, Pool, Segment, SegmentState
from .settings import MIN_BLOCK, SMALL_REQUEST, AllocatorSettings

__all__ = ["CachingAllocator", "DeviceFull", "FirstRefusal", "SegmentSource"]

SegmentSource = Callable[[int, int], int]
"""Given size and stream of a new segment, its address: where `cudaMalloc` would have put it."""

_NO_LIMIT = 1 << 63
_FIRST_ADDRESS = 1 << 32
_ASSUMED_DEVICE = 1024 * GiB
"""Where no device is named, expandable segments get as much address space as a device of this size would give them."""


class DeviceFull(Exception):
    """No memory for a request, after the cache was released and the device asked again."""

    def __init__(self, *, requested: int, segment_size: int, allocated: int, reserved: int) -> None:
        super().__init__(f"no room for {requested} bytes: {allocated} allocated, {reserved} reserved")
        self.requested = requested
        self.segment_size = segment_size
        """What the device was asked for in the request's behalf."""
        self.allocated = allocated
        self.reserved = reserved


class FirstRefusal(Exception):
    """The device has no room as it is, and the allocator was told to stop there. It has done nothing yet."""


class CachingAllocator:
    """One device's allocator. `capacity` bounds the bytes of all segments together; without it nothing ever fails.

    `device_total` is the whole memory of the card, which torch takes for the limit of a memory fraction and for the
    address space of expandable segments.
    """

    def __init__(
        self,
        settings: AllocatorSettings | None = None,
        *,
        capacity: int | None = None,
        device_total: int | None = None,
        segment_source: SegmentSource | None = None,
    ) -> None:
        self.settings = settings = settings or AllocatorSettings()
        self.capacity = capacity
        self.allowed: int | None = None
        if device_total is not None and settings.per_process_memory_fraction < 1.0:
            self.allowed = int(settings.per_process_memory_fraction * device_total)
        total = device_total or capacity or _ASSUMED_DEVICE
        self.address_space = total + total // 8
        """Bytes of address space of an expandable segment."""
        self.segments: dict[int, Segment] = {}
        self.allocated = self.peak_allocated = 0
        self.requested = self.peak_requested = 0
        self.reserved = self.peak_reserved = 0
        self.inactive_split = 0
        """Free bytes in segments that are partly in use: cached, but not to be returned to the device."""
        self.least_refused = _NO_LIMIT
        """The least that would have been reserved by a request that found no room below `capacity`: up to there, a
        larger device would have answered every request as this one did."""
        self.retries = 0
        """How often all of the cache was released because the device was full (torch's `num_alloc_retries`)."""
        self.stops_at_refusal = False
        """Whether it raises `FirstRefusal` where it would release its cache; see `refuses_before_it_acts`."""
        self._segment_source = segment_source or self._next_address
        self._next_free_address = _FIRST_ADDRESS
        self._pools: dict[tuple[bool, int], Pool] = {}
        self._clocks = {True: [0], False: [0]}
        self._live: dict[int, Block] = {}
        self._let_go: set[int] = set()
        self._expandable = settings.expandable_segments
        self._max_split = settings.max_split_size or _NO_LIMIT
        self._non_split_rounding = settings.max_non_split_rounding or settings.large_segment_size
        self._collects_garbage = self.allowed is not None and settings.garbage_collection_threshold > 0.0
        self._rounds_to_divisions = settings.rounds_to_divisions

    # The public face works on addresses; the simulator, which makes these calls by the million, on blocks.

    def malloc(self, nbytes: int, stream: int = 0) -> int:
        """The address of a new block; raises `DeviceFull`."""
        return self.allocate(nbytes, stream).address

    def free(self, address: int) -> None:
        """Give back the live block at this address."""
        block = self._live.get(address)
        if block is None:
            raise ValueError(f"there is no live block at address {address}")
        self.release(block)

    def block_size(self, address: int) -> int:
        """Bytes of the live block at this address: the request, rounded, with any rest too small to split off."""
        return self._live[address].size

    def allocate(self, nbytes: int, stream: int = 0) -> Block:
        """`malloc`, returning the block itself."""
        if self._rounds_to_divisions:
            size = self.settings.round_size(nbytes)
        else:
            size = (nbytes + MIN_BLOCK - 1) // MIN_BLOCK * MIN_BLOCK or MIN_BLOCK
        is_small = size <= SMALL_REQUEST
        pool = self._pools.get((is_small, stream)) or self._new_pool(is_small, stream)
        block = self._take_cached(pool, size) or self._take_new(pool, size, nbytes)
        rest = block.size - size
        if rest >= MIN_BLOCK if is_small or self._expandable else rest > SMALL_REQUEST and size < self._max_split:
            tail = block.cut(size)
            pool.add(tail)
            if not block.segment.page:
                self.inactive_split += rest
        block.live = True
        block.requested = nbytes
        self._live[block.address] = block
        self.allocated += block.size
        self.requested += nbytes
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated
        if self.requested > self.peak_requested:
            self.peak_requested = self.requested
        return block

    def release(self, block: Block) -> None:
        """`free`, given the block itself."""
        del self._live[block.address]
        block.live = False
        if block.address in self._let_go:
            self._let_go.remove(block.address)
        else:
            self.allocated -= block.size
        self.requested -= block.requested
        segment = block.segment
        pool = segment.pool
        was_idle = 0
        free = pool.free
        left = block.before
        if left is not None and not left.live and left.mapped:
            was_idle += left.size
            del free[bisect_left(free, (left.size, left.address))]
            left.absorb_next()
            block = left
        right = block.next
        if right is not None and not right.live and right.mapped:
            was_idle += right.size
            del free[bisect_left(free, (right.size, right.address))]
            block.absorb_next()
        block.born = pool.clock[0]
        insort(free, (block.size, block.address, block))
        if not segment.page:
            if block.before is not None or block.next is not None:
                was_idle -= block.size
            self.inactive_split -= was_idle

    def let_go(self, block: Block) -> None:
        """`free` of a block that another stream may still use: it leaves the counter of allocated bytes at once, the
        pools have it when it is released (CUDACachingAllocator.cpp: `free` counts, `process_events` gives back)."""
        self._let_go.add(block.address)
        self.allocated -= block.size

    def empty_cache(self) -> None:
        """Return to the device every segment, and every page of an expandable one, that holds no live block."""
        for pool in self._pools_in_order():
            for block in pool.free_blocks():
                if block.segment.page:
                    _expandable.unmap(self, block)
                elif not block.is_split:
                    self._return_segment(block)

    def release_segment(self, address: int) -> bool:
        """Return one wholly free segment to the device; False where there is none at this address."""
        segment = self.segments.get(address)
        if segment is None or segment.page or segment.head.live or segment.head.is_split:
            return False
        self._return_segment(segment.head)
        return True

    @property
    def refuses_before_it_acts(self) -> bool:
        """Whether a request leaves everything as it was up to the device's refusal. Garbage is collected before the
        device is asked, and an expandable segment keeps the pages that it got."""
        return not (self._collects_garbage or self._expandable)

    def copied(self, capacity: int) -> tuple[CachingAllocator, dict[int, Block]]:
        """An allocator in the same state on a device of another size, and all its blocks by their addresses."""
        other: CachingAllocator = object.__new__(CachingAllocator)
        other.__dict__.update(self.__dict__)
        other.capacity, other.stops_at_refusal, other.least_refused = capacity, False, _NO_LIMIT
        if self._segment_source == self._next_address:
            other._segment_source = other._next_address
        other._clocks = {is_small: clock.copy() for is_small, clock in self._clocks.items()}
        other._pools = {
            key: Pool(pool.is_small, pool.stream, other._clocks[key[0]]) for key, pool in self._pools.items()
        }
        blocks: dict[int, Block] = {}
        other.segments = {
            address: segment.copied(other._pools[segment.pool.is_small, segment.pool.stream], blocks)
            for address, segment in self.segments.items()
        }
        other._live = {address: blocks[address] for address in self._live}
        other._let_go = self._let_go.copy()
        for key, pool in self._pools.items():
            other._pools[key].take_over(pool, blocks)
        return other, blocks

    def reset_peaks(self) -> None:
        self.peak_allocated, self.peak_requested, self.peak_reserved = self.allocated, self.requested, self.reserved

    def adopt(self, state: SegmentState) -> list[Block]:
        """Take over a segment as it stood in another allocator; returns its live blocks, in order of address."""
        page = 0
        if state.is_expandable:
            page = _expandable.page_size(self, state.is_small)
        pool = self._pool(state.is_small, state.stream)
        segment = self.segments[state.address] = Segment(state.address, state.size, pool, page)
        live = []
        block = segment.head
        for told in state.blocks:
            if told.address != block.address or told.size > block.size:
                raise ValueError(f"the blocks of segment {state.address} do not lie end to end")
            rest = block.cut(told.size) if told.size < block.size else None
            block.mapped = told.mapped
            if told.mapped:
                self.count_reserved(told.size)
            if told.live:
                block.live, block.requested = True, told.requested
                self._live[block.address] = block
                self.allocated += block.size
                self.requested += block.requested
                live.append(block)
            elif told.mapped:
                pool.add(block)
                self.inactive_split += block.size if not page and len(state.blocks) > 1 else 0
            else:
                pool.add_unmapped(block)
            block = rest if rest is not None else block
        self.reset_peaks()
        self._next_free_address = max(self._next_free_address, state.address + state.size)
        return live

    def layout(self) -> tuple[SegmentState, ...]:
        """All segments with their blocks, in order of address."""
        return tuple(_told(self.segments[address]) for address in sorted(self.segments))

    def pools(self) -> tuple[Pool, ...]:
        return tuple(self._pools_in_order())

    # What follows is shared with `_expandable`.

    def has_room_for(self, nbytes: int) -> bool:
        wanted = self.reserved + nbytes
        if self.capacity is None or wanted <= self.capacity:
            return True
        self.least_refused = min(self.least_refused, wanted)
        return False

    def count_reserved(self, nbytes: int) -> None:
        self.reserved += nbytes
        if self.reserved > self.peak_reserved:
            self.peak_reserved = self.reserved

    def new_segment(self, pool: Pool, size: int, page: int = 0) -> Segment:
        address = self._segment_source(size, pool.stream)
        segment = self.segments[address] = Segment(address, size, pool, page)
        return segment

    # What follows is the way of a request that no live block can serve.

    def _take_cached(self, pool: Pool, size: int) -> Block | None:
        if self._collects_garbage:
            pool.clock[0] += 1
        free = pool.free
        index = bisect_left(free, (size,))
        if index == len(free):
            return None
        block: Block = free[index][2]
        if block.segment.page:
            if self._expandable:
                index = _expandable.tightest(pool, index)
            else:
                # Expandable segments were switched off since: their free blocks serve nothing any more.
                while index < len(free) and free[index][2].segment.page:
                    index += 1
                if index == len(free):
                    return None
            block = free[index][2]
        if size < self._max_split:
            if block.size >= self._max_split:
                return None
        elif block.size >= size + self._non_split_rounding:
            return None
        del free[index]
        if not block.segment.page and (block.before is not None or block.next is not None):
            self.inactive_split -= block.size
        return block

    def _take_new(self, pool: Pool, size: int, nbytes: int) -> Block:
        if self._collects_garbage:
            self._collect_garbage()
        segment_size = self.settings.segment_size(size)
        block = self._ask_device(pool, size, segment_size)
        if block is None and self.stops_at_refusal:
            raise FirstRefusal
        if block is None and self._release_oversize(pool, size):
            block = self._ask_device(pool, size, segment_size)
        if block is None:
            self.empty_cache()
            self.retries += 1
            block = self._ask_device(pool, size, segment_size)
        if block is None:
            raise DeviceFull(
                requested=nbytes, segment_size=segment_size, allocated=self.allocated, reserved=self.reserved
            )
        return block

    def _ask_device(self, pool: Pool, size: int, segment_size: int) -> Block | None:
        if self.allowed is not None and self.reserved + segment_size > self.allowed:
            return None
        if self._expandable:
            return _expandable.grow(self, pool, size)
        if not self.has_room_for(segment_size):
            return None
        segment = self.new_segment(pool, segment_size)
        self.count_reserved(segment_size)
        return segment.head

    def _release_oversize(self, pool: Pool, size: int) -> bool:
        """Return just enough unsplittable cached blocks of this pool to the device to make room for `size` bytes."""
        if self._max_split == _NO_LIMIT:
            return False
        wanted = max(size, self._max_split)
        index = bisect_left(pool.free, (wanted,))
        if index < len(pool.free) and self._returnable(pool.free[index][2]):
            self._return_segment(pool.free[index][2])
            return True
        released = 0
        for block in reversed(pool.free_blocks()[:index]):
            if released >= wanted or block.size < self._max_split:
                break
            if self._returnable(block):
                released += block.size
                self._return_segment(block)
        return released >= wanted

    def _collect_garbage(self) -> None:
        """Return segments that were idle for longer than the average, as long as too much is reserved."""
        if self.allowed is None:
            return
        threshold = int(self.settings.garbage_collection_threshold * self.allowed)
        excess = self.reserved - threshold
        if excess <= 0:
            return
        clock = self._clocks[False][0]
        idle = [block for pool in self._pools_in_order() if not pool.is_small for block in pool.free_blocks()]
        idle = [block for block in idle if not block.is_split]
        age = sum(clock - block.born for block in idle)
        released = 0
        while released < excess and idle:
            oldest = [b for b in idle if self._returnable(b) and (clock - b.born) * len(idle) >= age]
            if not oldest:
                return
            for block in oldest:
                released += block.size
                age -= clock - block.born
                idle.remove(block)
                self._return_segment(block)

    def _returnable(self, block: Block) -> bool:
        return not block.segment.page and not block.is_split

    def _return_segment(self, block: Block) -> None:
        block.segment.pool.remove(block)
        del self.segments[block.address]
        self.reserved -= block.size

    def _pool(self, is_small: bool, stream: int) -> Pool:
        return self._pools.get((is_small, stream)) or self._new_pool(is_small, stream)

    def _new_pool(self, is_small: bool, stream: int) -> Pool:
        pool = self._pools[is_small, stream] = Pool(is_small, stream, self._clocks[is_small])
        return pool

    def _pools_in_order(self) -> list[Pool]:
        """Large before small, then by stream: the order in which torch releases."""
        return [self._pools[key] for key in sorted(self._pools)]

    def _next_address(self, size: int, stream: int) -> int:
        address = self._next_free_address
        self._next_free_address += size
        return address


def _told(segment: Segment) -> SegmentState:
    blocks = []
    block: Block | None = segment.head
    while block is not None:
        requested = block.requested if block.live else 0
        blocks.append(BlockState(block.address, block.size, block.live, requested, block.mapped))
        block = block.next
    return SegmentState(
        address=segment.address,
        size=segment.size,
        stream=segment.pool.stream,
        is_small=segment.pool.is_small,
        blocks=tuple(blocks),
        is_expandable=segment.page > 0,
    )
