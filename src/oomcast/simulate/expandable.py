"""Expandable segments: address space that grows and shrinks by pages of memory instead of whole segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .blocks import Block, Pool
from .settings import SMALL_SEGMENT

if TYPE_CHECKING:
    from .caching_allocator import CachingAllocator

__all__ = ["grow", "page_size", "tightest", "unmap"]


def page_size(allocator: CachingAllocator, is_small: bool) -> int:
    return SMALL_SEGMENT if is_small else allocator.settings.large_segment_size


def tightest(pool: Pool, index: int) -> int:
    """Of the free blocks from `index` on, the best fit when a block counts as large as it could grow."""
    free = pool.free
    while (
        index + 1 < len(free)
        and free[index][2].segment.page
        and _growable_size(free[index + 1][2]) < _growable_size(free[index][2])
    ):
        index += 1
    return index


def grow(allocator: CachingAllocator, pool: Pool, size: int) -> Block | None:
    """Map memory at the lowest address where `size` bytes fit; the block is taken out of the pool. None: no memory."""
    block = _lowest_room(pool, size) or _new_room(allocator, pool, size)
    if block is None:
        return None
    if not block.mapped:
        block = _map(allocator, block, min(block.size, size))
    while block is not None and block.size < size:
        behind = block.next
        if behind is None:
            raise ValueError("an expandable segment ended before the room that was found in it")
        # What was mapped before a failure stays mapped and free, as torch leaves it.
        block = _map(allocator, behind, min(size - block.size, behind.size))
    if block is not None:
        pool.remove(block)
    return block


def unmap(allocator: CachingAllocator, block: Block) -> None:
    """Return the whole pages of a free block to the device; the segment too, when nothing of it is left mapped."""
    segment = block.segment
    pool, page = segment.pool, segment.page
    first = -(-(block.address - segment.address) // page) * page + segment.address
    last = (block.address + block.size - segment.address) // page * page + segment.address
    if first >= last:
        return
    pool.remove(block)
    if last < block.address + block.size:
        pool.add(block.cut(last - block.address))
    middle = block
    if first > block.address:
        middle = block.cut(first - block.address)
        pool.add(block)
    middle.mapped = False
    allocator.reserved -= middle.size
    middle = _merge_unmapped(pool, middle)
    if middle.size == segment.size:
        del allocator.segments[segment.address]
    else:
        pool.add_unmapped(middle)


def _merge_unmapped(pool: Pool, block: Block) -> Block:
    left, right = block.before, block.next
    if right is not None and not right.mapped:
        pool.remove_unmapped(right)
        block.absorb_next()
    if left is not None and not left.mapped:
        pool.remove_unmapped(left)
        left.absorb_next()
        block = left
    return block


def _growable_size(block: Block) -> int:
    behind = block.next
    return block.size + (behind.size if behind is not None and not behind.mapped else 0)


def _lowest_room(pool: Pool, size: int) -> Block | None:
    for _, unmapped in pool.unmapped:
        start: Block = unmapped
        if start.before is not None and not start.before.live:
            start = start.before
        room, block = 0, start
        while room < size and not block.live:
            room += block.size
            if block.next is None:
                break
            block = block.next
        if room >= size:
            return start
    return None


def _new_room(allocator: CachingAllocator, pool: Pool, size: int) -> Block | None:
    page = page_size(allocator, pool.is_small)
    space = -(-allocator.address_space // page) * page
    if space < size:
        return None
    head = allocator.new_segment(pool, space, page).head
    pool.add_unmapped(head)
    return head


def _map(allocator: CachingAllocator, block: Block, size: int) -> Block | None:
    """Put memory behind the first `size` bytes of an unmapped block and merge it with free neighbours."""
    pool, page = block.segment.pool, block.segment.page
    mapped = -(-size // page) * page
    if not allocator.has_room_for(mapped):
        return None
    pool.remove_unmapped(block)
    if mapped < block.size:
        pool.add_unmapped(block.cut(mapped))
    block.mapped = True
    allocator.count_reserved(mapped)
    right = block.next
    if right is not None and right.mapped and not right.live:
        pool.remove(right)
        block.absorb_next()
    left = block.before
    if left is not None and left.mapped and not left.live:
        pool.remove(left)
        left.absorb_next()
        block = left
    pool.add(block)
    return block
