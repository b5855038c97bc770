"""A predicted run in the form of torch's memory snapshots, for memory_viz and all that reads those."""

from __future__ import annotations

import pickle
from typing import Any

from ..errors import BadInput
from ..simulate import Action, ActionKind, AllocatorSettings, History
from ..trace import Allocation
from ..units import MiB

__all__ = ["MODULE", "snapshot_as_pickle", "snapshot_of"]

MODULE = "module"
"""Stands for the file in the frame that tells a block's module."""

_Frame = dict[str, str | int]


def snapshot_as_pickle(history: History) -> bytes:
    """The content of a file as `torch.cuda.memory._dump_snapshot()` writes it."""
    return pickle.dumps(snapshot_of(history), protocol=4)


def snapshot_of(history: History) -> dict[str, Any]:
    """What `torch.cuda.memory._snapshot()` would return at the end of the run, had it been recorded from the start.

    Every block's stack is the user's line, its module, and what it is for.
    """
    if not isinstance(history.settings, AllocatorSettings):
        raise BadInput("memory snapshots are of torch's allocator, and this job does not use it.")
    frames = _Frames(history)
    return {
        "segments": _segments(history, frames),
        "device_traces": [_device_trace(history, frames)],
        "allocator_settings": _settings(history.settings),
        "external_annotations": [],
    }


def _segments(history: History, frames: _Frames) -> list[dict[str, Any]]:
    made = _made_by_address(history)
    segments = []
    for segment in history.segments:
        blocks = [
            {
                "address": block.address,
                "size": block.size,
                "requested_size": block.requested if block.live else 0,
                "state": "active_allocated" if block.live else "inactive",
                "frames": frames.of(made[block.address]) if block.live else [],
            }
            for block in segment.blocks
        ]
        live = [block for block in segment.blocks if block.live]
        segments.append(
            {
                "device": 0,
                "address": segment.address,
                "total_size": segment.size,
                "allocated_size": sum(block.size for block in live),
                "active_size": sum(block.size for block in live),
                "requested_size": sum(block.requested for block in live),
                "stream": segment.stream,
                "segment_type": "small" if segment.is_small else "large",
                "segment_pool_id": (0, 0),
                "is_expandable": segment.is_expandable,
                "frames": [],
                "blocks": blocks,
            }
        )
    return segments


def _made_by_address(history: History) -> dict[int, Action]:
    return {action.address: action for action in history.actions if action.kind is ActionKind.ALLOCATE}


def _device_trace(history: History, frames: _Frames) -> list[dict[str, Any]]:
    entries = []
    for action in history.actions:
        names = [action.kind.value]
        if action.kind is ActionKind.FREE:
            names.insert(0, "free_requested")
        for name in names:
            entries.append(
                {
                    "action": name,
                    "addr": action.address,
                    # torch tells what was asked for, not what it was rounded to.
                    "size": action.requested,
                    "stream": action.stream,
                    # The order is all that is known of time: an event is told as a microsecond.
                    "time_us": action.position,
                    "frames": frames.of(action),
                }
            )
    return entries


def _settings(settings: AllocatorSettings) -> dict[str, Any]:
    """As torch tells them, and those that it tells only in the text they were given in."""
    texts = {
        "max_split_size_mb": settings.max_split_size and settings.max_split_size // MiB,
        "max_non_split_rounding_mb": settings.max_non_split_rounding and settings.max_non_split_rounding // MiB,
        "large_segment_size_mb": settings.large_segment_size // MiB,
        "expandable_segments": settings.expandable_segments,
        "per_process_memory_fraction": settings.per_process_memory_fraction,
    }
    divisions = settings.roundup_power2_divisions
    return {
        "PYTORCH_CUDA_ALLOC_CONF": ",".join(f"{name}:{value}" for name, value in texts.items() if value is not None),
        "max_split_size": -1 if settings.max_split_size is None else settings.max_split_size,
        "garbage_collection_threshold": settings.garbage_collection_threshold,
        "expandable_segments": settings.expandable_segments,
        "roundup_power2_divisions": {str(1 << power): value for power, value in enumerate(divisions)},
    }


class _Frames:
    """The stacks, each made once: pickled, they are then written once."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._stacks: dict[tuple[Any, ...], list[_Frame]] = {}
        self._frames: dict[tuple[str, int, str], _Frame] = {}

    def of(self, action: Action) -> list[_Frame]:
        if action.allocation is None:
            frames = [("workspace", 0, action.name)] if action.name else []
        else:
            frames = _frames_of(self._history.trace.allocations[action.allocation])
        key = tuple(frames)
        if key not in self._stacks:
            self._stacks[key] = [self._frame(*frame) for frame in frames]
        return self._stacks[key]

    def _frame(self, filename: str, line: int, name: str) -> _Frame:
        key = (filename, line, name)
        return self._frames.setdefault(key, {"filename": filename, "line": line, "name": name})


def _frames_of(made: Allocation) -> list[tuple[str, int, str]]:
    """Innermost first, as in torch's stacks."""
    path, colon, line = made.source.rpartition(":")
    is_line = bool(colon) and line.isascii() and line.isdigit()
    place = (path, int(line)) if is_line else (made.source or "no line", 0)
    when = f"{made.phase.value} of step {made.step + 1}" if made.step >= 0 else made.phase.value
    frames = [(*place, made.operator)]
    if made.module:
        frames.append((MODULE, 0, made.module))
    return [*frames, (when, 0, made.category.value)]
