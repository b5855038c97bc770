"""TensorFlow's BFC allocator to the byte: regions, chunks, best fit, splitting, coalescing, growth.

The rules are those of `bfc_allocator.cc` (tsl/framework), which TensorFlow and XLA share:

- Sizes are rounded up to 256 bytes.
- A request takes the smallest free chunk that is large enough, at the lowest address among equals. TensorFlow keeps
  the free chunks in bins by power of two; as each bin is in order, the search finds what one ordered list would.
- A chunk is split if it is at least twice the request, or if the rest would be 128 MiB or more. Else all of it is used.
- Where no chunk is free, the pool grows by a region. With `allow_growth`, the first has 2 MiB; each later one is twice
  the one before, unless the request needs more: then the size is doubled until it is enough, and the next region has
  that size once more. No region exceeds what is left of the limit. Without growth, the first region is the limit.
- If the device refuses a region, one of nine tenths is tried, again and again, down to the request itself.
- A freed chunk merges with free neighbours of its region. Regions are kept, except that a full pool gives back those
  that are wholly free before it fails.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..errors import BadInput
from ..units import GiB, MiB
from .blocks import Block, BlockState, Pool, Segment, SegmentState
from .caching_allocator import DeviceFull
from .settings import read_named

__all__ = ["BfcAllocator", "BfcSettings", "pool_limit", "system_reserve"]


@dataclass(frozen=True, slots=True)
class BfcSettings:
    """The defaults are those of a GPU under TensorFlow with `allow_growth`: the pool grows with the job."""

    allow_growth: bool = True
    """Regions that double, from 2 MiB on; otherwise the first request takes all of the limit at once."""
    memory_fraction: float = 1.0
    """Share of the capacity that the pool may take (`per_process_gpu_memory_fraction`; JAX: 0.75)."""
    garbage_collection: bool = True
    """Whether a full pool gives back regions that are wholly free (`TF_ENABLE_GPU_GARBAGE_COLLECTION`)."""
    fragmentation_fraction: float = 0.0
    """Share of the limit that a chunk may be larger than its request; 0: 128 MiB."""
    first_region: int = 2 * MiB
    largest_doubling: int | None = None
    """The size from which on regions are no longer doubled; None: all are."""
    as_requested: bool = False
    """Whether a region has the size of the request that needed it."""
    most: int | None = None
    """Bytes that the pool may take at most."""

    def __post_init__(self) -> None:
        if not 0.0 < self.memory_fraction <= 1.0:
            raise BadInput(f"the memory fraction must be above 0 and at most 1, not {self.memory_fraction:g}.")
        if not 0.0 <= self.fragmentation_fraction <= 1.0:
            raise BadInput(f"the fragmentation fraction must lie between 0 and 1, not {self.fragmentation_fraction:g}.")

    @staticmethod
    def parse(text: str) -> BfcSettings:
        """`allow_growth:false,memory_fraction:0.5`: the fields by name, as `--alloc-conf` takes them."""
        return BfcSettings().changed(text)

    def changed(self, text: str) -> BfcSettings:
        """These settings with the fields that the text names."""
        changes: dict[str, bool | float] = {}
        for key, value in read_named(text, _KINDS, "allow_growth:false").items():
            changes[key] = value == "true" if key in _SWITCHES else float(value)
        return replace(self, **changes)  # type: ignore[arg-type]

    def endless(self) -> BfcSettings:
        """The same for a device without end: a pool that takes what is asked of it."""
        return replace(self, allow_growth=True, memory_fraction=1.0, most=None)

    def region_after(self, size: int) -> int:
        """The size of the next region, where this one was enough for what needed it."""
        if self.largest_doubling is None or 2 * size < self.largest_doubling:
            return 2 * size
        return self.largest_doubling


_SWITCHES = ("allow_growth", "garbage_collection")
_NUMBER = r"[0-9]*\.?[0-9]+"
_KINDS = {**dict.fromkeys(_SWITCHES, "true|false"), "memory_fraction": _NUMBER, "fragmentation_fraction": _NUMBER}


def system_reserve(available: int, compute_capability: tuple[int, int]) -> int:
    """Bytes of a card that TensorFlow's pool leaves to CUDA and its libraries (`MinSystemMemory` in gpu_device.cc)."""
    if available < 2 * GiB:
        return 225 * MiB
    by_generation = ((6, 500 * MiB), (7, 1050 * MiB), (8, 1536 * MiB))
    return next((size for newest, size in by_generation if compute_capability[0] <= newest), 1800 * MiB)


def pool_limit(usable: int, context: int, compute_capability: tuple[int, int]) -> int:
    """The most that the pool can take of a card, by TensorFlow's rule.

    TensorFlow asks how much is free when its device is made, and leaves the reserve. About half of the context is there
    by then; the kernels that make up the rest are loaded into the reserve.
    """
    free = usable - context // 2
    return max(min(free - system_reserve(free, compute_capability), usable - context), 0)


MIN_CHUNK = 256
_GAP = 2 * MiB
LARGEST_WASTE = 128 * MiB
_BACK_OFF = 0.9
_NO_LIMIT = 1 << 62
_FIRST_ADDRESS = 1 << 40

RegionSource = Callable[[int], int | None]
"""The address of a new region of that many bytes; None if the device has no room for it."""


class BfcAllocator:
    """A pool of one device. `capacity` is what it may take; None: no end of it."""

    def __init__(
        self,
        settings: BfcSettings | None = None,
        *,
        capacity: int | None = None,
        device_total: int | None = None,
        region_source: RegionSource | None = None,
    ) -> None:
        self.settings = settings = settings or BfcSettings()
        room = capacity if capacity is not None else device_total if not settings.allow_growth else None
        self.limit = _NO_LIMIT if room is None else int(room * settings.memory_fraction)
        self.allocated = self.peak_allocated = 0
        self.requested = self.peak_requested = 0
        self.reserved = self.peak_reserved = 0
        self.retries = 0
        """How often wholly free regions were given back because the pool was full."""
        self.regions: dict[int, Segment] = {}
        if settings.most is not None:
            self.limit = min(self.limit, settings.most)
        self._free = Pool(False, 0, [0])
        self._live: dict[int, Block] = {}
        self._next_region = _round_up(min(self.limit, settings.first_region) if settings.allow_growth else self.limit)
        self._waste = int(settings.fragmentation_fraction * self.limit) or LARGEST_WASTE
        self._region_source = region_source or self._next_address
        self._next_free_address = _FIRST_ADDRESS

    @property
    def inactive_split(self) -> int:
        """Free bytes; a region is given back only in need, so none of them is a cache to count on."""
        return self.reserved - self.allocated

    def malloc(self, nbytes: int, stream: int = 0) -> int:
        """The address of a new chunk; raises `DeviceFull`."""
        return self.allocate(nbytes, stream).address

    def free(self, address: int) -> None:
        block = self._live.get(address)
        if block is None:
            raise ValueError(f"there is no live chunk at address {address}")
        self.release(block)

    def allocate(self, nbytes: int, stream: int = 0) -> Block:
        """A chunk for `nbytes`, which must not be 0. All compute streams share one pool."""
        size = _round_up(nbytes)
        block = self._find(size)
        if block is None and self._extend(size):
            block = self._find(size)
        if block is None and self._give_back(size) and self._extend(size):
            block = self._find(size)
        if block is None:
            raise DeviceFull(requested=nbytes, segment_size=size, allocated=self.allocated, reserved=self.reserved)
        self._free.remove(block)
        if block.size >= 2 * size or block.size - size >= self._waste:
            self._free.add(block.cut(size))
        block.live = True
        block.requested = nbytes
        self._live[block.address] = block
        self.allocated += block.size
        self.requested += nbytes
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        self.peak_requested = max(self.peak_requested, self.requested)
        return block

    def release(self, block: Block) -> None:
        del self._live[block.address]
        block.live = False
        self.allocated -= block.size
        self.requested -= block.requested
        if block.next is not None and not block.next.live:
            self._free.remove(block.next)
            block.absorb_next()
        before = block.before
        if before is not None and not before.live:
            self._free.remove(before)
            before.absorb_next()
            block = before
        self._free.add(block)

    def empty_cache(self) -> None:
        """TensorFlow has no such call; its pool keeps what it has."""

    def reset_peaks(self) -> None:
        self.peak_allocated, self.peak_requested, self.peak_reserved = self.allocated, self.requested, self.reserved

    def snapshot(self) -> tuple[SegmentState, ...]:
        """The regions with their chunks, in order of address."""
        segments = []
        for region in sorted(self.regions.values(), key=lambda region: region.address):
            chunks = tuple(
                BlockState(block.address, block.size, block.live, block.requested) for block in _chunks(region)
            )
            segments.append(SegmentState(region.address, region.size, 0, False, chunks))
        return tuple(segments)

    def _find(self, size: int) -> Block | None:
        place = bisect_left(self._free.free, (size,))
        if place == len(self._free.free):
            return None
        block: Block = self._free.free[place][2]
        return block

    def _extend(self, size: int) -> bool:
        available = (self.limit - self.reserved) // MIN_CHUNK * MIN_CHUNK
        if size > available:
            return False
        grown = False
        while size > self._next_region:
            self._next_region *= 2
            grown = True
        wanted = size if self.settings.as_requested else min(self._next_region, available)
        address = self._region_source(wanted)
        while address is None:
            wanted = _round_up(int(wanted * _BACK_OFF))
            if wanted < size:
                return False
            address = self._region_source(wanted)
        if not grown:
            self._next_region = self.settings.region_after(self._next_region)
        region = Segment(address, wanted, self._free)
        self.regions[address] = region
        self._free.add(region.head)
        self.reserved += wanted
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return True

    def _give_back(self, size: int) -> bool:
        if not self.settings.garbage_collection:
            return False
        idle = [region for region in self.regions.values() if not any(block.live for block in _chunks(region))]
        total = sum(region.size for region in idle)
        if not idle or size > self.limit - self.reserved + total:
            return False
        for region in idle:
            self._free.remove(region.head)  # chunks of a free region have all merged into one
            del self.regions[region.address]
        self.reserved -= total
        self.retries += 1
        return True

    def _next_address(self, size: int) -> int:
        address = self._next_free_address
        # A gap, so that regions never touch: those of cudaMalloc are not joined either.
        self._next_free_address += size + _GAP
        return address


def _chunks(region: Segment) -> list[Block]:
    chunks = []
    block: Block | None = region.head
    while block is not None:
        chunks.append(block)
        block = block.next
    return chunks


def _round_up(nbytes: int) -> int:
    return -(-nbytes // MIN_CHUNK) * MIN_CHUNK
