"""Segments of device memory, the blocks they are cut into, and the pools that keep the free ones in order."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Block", "BlockState", "Pool", "Segment", "SegmentState"]


@dataclass(frozen=True, slots=True)
class BlockState:
    """A block as a snapshot tells it."""

    address: int
    size: int
    live: bool
    requested: int = 0
    mapped: bool = True
    """False: address space of an expandable segment without memory behind it."""


@dataclass(frozen=True, slots=True)
class SegmentState:
    """A piece of device memory as a snapshot tells it: its blocks lie end to end, in order of address."""

    address: int
    size: int
    stream: int
    is_small: bool
    blocks: tuple[BlockState, ...]
    is_expandable: bool = False

    def mapped_parts(self) -> tuple[SegmentState, ...]:
        """Only what has memory behind it, as torch lists segments: each stretch between unmapped blocks."""
        parts: list[list[BlockState]] = [[]]
        for block in self.blocks:
            if block.mapped:
                parts[-1].append(block)
            elif parts[-1]:
                parts.append([])
        return tuple(
            replace(self, address=part[0].address, size=sum(block.size for block in part), blocks=tuple(part))
            for part in parts
            if part
        )


class Segment:
    """What the device gave in one piece; an expandable one is address space that memory is mapped into by pages."""

    __slots__ = ("address", "head", "page", "pool", "size")

    def __init__(self, address: int, size: int, pool: Pool, page: int = 0) -> None:
        self.address = address
        self.size = size
        self.pool = pool
        self.page = page
        """Bytes of a page; 0 for a segment that is all memory."""
        # Blocks merge to the left and split to the right, so the first block stays the first for good.
        self.head = Block(address, size, self)
        self.head.mapped = not page

    def copied(self, pool: Pool, blocks: dict[int, Block]) -> Segment:
        """The same segment of another allocator's pool; its blocks are added to `blocks`, by their addresses."""
        other = Segment(self.address, self.size, pool, self.page)
        told: Block | None = self.head
        made = other.head
        while told is not None:
            made.size, made.live, made.mapped = told.size, told.live, told.mapped
            made.requested, made.born = told.requested, told.born
            blocks[made.address] = made
            told = told.next
            if told is not None:
                behind = Block(told.address, told.size, other)
                made.next, behind.before = behind, made
                made = behind
        return other


class Block:
    """A stretch of a segment: in use, free, or (in expandable segments only) address space without memory."""

    __slots__ = ("address", "before", "born", "live", "mapped", "next", "requested", "segment", "size")

    def __init__(self, address: int, size: int, segment: Segment) -> None:
        self.address = address
        self.size = size
        self.segment = segment
        self.before: Block | None = None
        self.next: Block | None = None
        self.live = False
        self.mapped = True
        self.requested = 0
        self.born = 0
        """The pool's count of searches when the block became free: its age for garbage collection."""

    @property
    def is_split(self) -> bool:
        return self.before is not None or self.next is not None

    def cut(self, size: int) -> Block:
        """Keep the first `size` bytes and return the rest as a new block behind."""
        rest = Block(self.address + size, self.size - size, self.segment)
        rest.mapped = self.mapped
        self.size = size
        rest.before, rest.next = self, self.next
        if self.next is not None:
            self.next.before = rest
        self.next = rest
        return rest

    def absorb_next(self) -> None:
        """Take over the following block's bytes; that block is no more."""
        gone = self.next
        if gone is None:
            raise ValueError("the last block of a segment has no next one to absorb")
        self.size += gone.size
        self.next = gone.next
        if gone.next is not None:
            gone.next.before = self


class Pool:
    """The free blocks of one stream, small or large: by size, then address, so that best fit is one bisection."""

    __slots__ = ("clock", "free", "is_small", "stream", "unmapped")

    def __init__(self, is_small: bool, stream: int, clock: list[int]) -> None:
        self.is_small = is_small
        self.stream = stream
        self.clock = clock
        """One count of searches, shared by the pools of all streams, as torch counts it."""
        # (size, address, block) and (address, block): a comparison never reaches the block, as addresses are unique.
        self.free: list[tuple[Any, ...]] = []
        self.unmapped: list[tuple[Any, ...]] = []

    def add(self, block: Block) -> None:
        block.born = self.clock[0]
        insort(self.free, (block.size, block.address, block))

    def remove(self, block: Block) -> None:
        del self.free[bisect_left(self.free, (block.size, block.address))]

    def add_unmapped(self, block: Block) -> None:
        insort(self.unmapped, (block.address, block))

    def remove_unmapped(self, block: Block) -> None:
        del self.unmapped[bisect_left(self.unmapped, (block.address,))]

    def take_over(self, other: Pool, blocks: dict[int, Block]) -> None:
        """The free blocks of another pool, as the blocks of the same addresses."""
        self.free = [(size, address, blocks[address]) for size, address, _ in other.free]
        self.unmapped = [(address, blocks[address]) for address, _ in other.unmapped]

    def free_blocks(self) -> list[Block]:
        """A copy, smallest first, so that blocks can leave the pool while one goes through it."""
        return [entry[2] for entry in self.free]
