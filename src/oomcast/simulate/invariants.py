"""What must hold of an allocator at every moment; tests ask after each step."""

from __future__ import annotations

from .blocks import Block, Pool, Segment
from .caching_allocator import CachingAllocator

__all__ = ["broken_invariants"]


def broken_invariants(allocator: CachingAllocator) -> list[str]:
    """Sentences about what is wrong; empty when all is well."""
    broken: list[str] = []
    listed = {id(block): pool for pool in allocator.pools() for block in pool.free_blocks()}
    unmapped = {id(entry[1]): pool for pool in allocator.pools() for entry in pool.unmapped}
    allocated = requested = reserved = inactive = 0
    end_of_last = 0
    for address in sorted(allocator.segments):
        segment = allocator.segments[address]
        if segment.address < end_of_last:
            broken.append(f"segment {address} overlaps the one before")
        end_of_last = segment.address + segment.size
        blocks = _walk(segment, broken)
        for block in blocks:
            holder = (listed if block.mapped else unmapped).pop(id(block), None)
            if block.live and holder is not None:
                broken.append(f"live block {block.address} is in a pool")
            if not block.live and holder is not segment.pool:
                broken.append(f"free block {block.address} is not in the pool of its segment")
            if not segment.page and not block.mapped:
                broken.append(f"block {block.address} of an ordinary segment is not mapped")
        live = sum(block.size for block in blocks if block.live)
        free = sum(block.size for block in blocks if not block.live and block.mapped)
        allocated += live
        requested += sum(block.requested for block in blocks if block.live)
        reserved += live + free
        if not segment.page and len(blocks) > 1:
            inactive += free
    if listed or unmapped:
        broken.append(f"{len(listed) + len(unmapped)} blocks stand in a pool but in no segment")
    for name, counted, kept in (
        ("allocated", allocated, allocator.allocated),
        ("requested", requested, allocator.requested),
        ("reserved", reserved, allocator.reserved),
        ("inactive split", inactive, allocator.inactive_split),
    ):
        if counted != kept:
            broken.append(f"{name} bytes are {counted}, not {kept}")
    broken += [f"the pool of stream {pool.stream} is out of order" for pool in allocator.pools() if not _sorted(pool)]
    if not allocator.peak_reserved >= allocator.reserved >= allocator.allocated:
        broken.append("peak reserved, reserved and allocated bytes are not in this order")
    if not allocator.peak_allocated >= allocator.allocated >= allocator.requested:
        broken.append("peak allocated, allocated and requested bytes are not in this order")
    if allocator.capacity is not None and allocator.peak_reserved > allocator.capacity:
        broken.append("more was reserved than there is")
    return broken


def _walk(segment: Segment, broken: list[str]) -> list[Block]:
    blocks: list[Block] = []
    expected, before = segment.address, None
    block: Block | None = segment.head
    while block is not None:
        if block.address != expected or block.before is not before or block.segment is not segment:
            broken.append(f"block {block.address} is not linked to its neighbours")
        if before is not None and not before.live and not block.live and before.mapped == block.mapped:
            broken.append(f"free blocks {before.address} and {block.address} were not merged")
        if block.size <= 0:
            broken.append(f"block {block.address} is empty")
        expected, before = block.address + block.size, block
        blocks.append(block)
        block = block.next
    if expected != segment.address + segment.size:
        broken.append(f"the blocks of segment {segment.address} do not fill it")
    return blocks


def _sorted(pool: Pool) -> bool:
    sizes_and_addresses = [entry[:2] for entry in pool.free]
    return sizes_and_addresses == sorted(sizes_and_addresses) and all(
        (block.size, block.address) == entry[:2] for entry in pool.free for block in entry[2:]
    )
