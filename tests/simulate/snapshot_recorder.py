"""Records a simulated allocator the way torch records the real one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oomcast.simulate import CachingAllocator, DeviceFull
from oomcast.units import MiB

PAGE = 2 * MiB


@dataclass
class Recorder:
    """An allocator under `torch.cuda.memory._record_memory_history`: `trace` is what was seen since `begin`."""

    allocator: CachingAllocator
    live: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Address → requested bytes and stream."""
    trace: list[dict[str, Any]] = field(default_factory=list)

    def begin(self) -> None:
        self.trace.clear()

    def apply(self, operation: tuple[str, int, int]) -> None:
        kind, number, stream = operation
        before = self._memory()
        if kind == "malloc":
            try:
                address = self.allocator.malloc(number, stream)
            except DeviceFull:
                self._tell_memory(before)
                self._tell("oom", 0, number, stream)
                return
            self._tell_memory(before)
            self._tell("alloc", address, number, stream)
            self.live[address] = (number, stream)
        elif kind == "free" and self.live:
            address = sorted(self.live)[number % len(self.live)]
            requested, stream = self.live.pop(address)
            self._tell("free_requested", address, requested, stream)
            self.allocator.free(address)
            self._tell("free_completed", address, requested, stream)
        elif kind == "empty":
            self.allocator.empty_cache()
            self._tell_memory(before)

    def document(self) -> dict[str, Any]:
        """What `torch.cuda.memory._snapshot()` would return."""
        settings = self.allocator.settings
        return {
            "segments": [
                {
                    "device": 0,
                    "address": part.address,
                    "total_size": part.size,
                    "stream": part.stream,
                    "segment_type": "small" if part.is_small else "large",
                    "segment_pool_id": (0, 0),
                    "is_expandable": part.is_expandable,
                    "blocks": [
                        {
                            "address": block.address,
                            "size": block.size,
                            "requested_size": block.requested,
                            "state": "active_allocated" if block.live else "inactive",
                            "frames": [],
                        }
                        for block in part.blocks
                    ],
                }
                for segment in self.allocator.layout()
                for part in segment.mapped_parts()
            ],
            "device_traces": [list(self.trace)],
            "allocator_settings": {
                "max_split_size": -1 if settings.max_split_size is None else settings.max_split_size,
                "expandable_segments": settings.expandable_segments,
                "garbage_collection_threshold": settings.garbage_collection_threshold,
                "roundup_power2_divisions": {
                    str(1 << index): count for index, count in enumerate(settings.roundup_power2_divisions)
                },
            },
        }

    def _tell(self, action: str, address: int, size: int, stream: int) -> None:
        place = {"device_free": address} if action == "oom" else {"addr": address}
        self.trace.append({"action": action, **place, "size": size, "stream": stream, "frames": [], "time_us": 1})

    def _memory(self) -> dict[tuple[int, int, bool], int]:
        """(address, size, expandable) → stream, expandable segments page by page."""
        found = {}
        for segment in self.allocator.layout():
            for part in segment.mapped_parts():
                if segment.is_expandable:
                    page = PAGE if part.is_small else self.allocator.settings.large_segment_size
                    for address in range(part.address, part.address + part.size, page):
                        found[address, page, True] = part.stream
                else:
                    found[part.address, part.size, False] = part.stream
        return found

    def _tell_memory(self, before: dict[tuple[int, int, bool], int]) -> None:
        after = self._memory()
        for address, size, expandable in sorted(before.keys() - after.keys()):
            action = "segment_unmap" if expandable else "segment_free"
            self._tell(action, address, size, before[address, size, expandable])
        for address, size, expandable in sorted(after.keys() - before.keys()):
            action = "segment_map" if expandable else "segment_alloc"
            self._tell(action, address, size, after[address, size, expandable])
