"""Recorded allocator histories: `torch.cuda.memory._dump_snapshot()`'s pickle, or the same as JSON.

A pickle can refer to one list any number of times, so that a few hundred bytes stand for gigabytes. What is read is
counted against the size of the file, nothing is turned into text, and what is shared is read once: time and memory
stay in proportion to the file.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import BadInput, UnreadableFile
from ...files import unpack
from ...units import GiB, MiB
from ..blocks import BlockState, SegmentState
from ..settings import AllocatorSettings
from .plain_pickle import NotPlainData, read_plain_pickle

__all__ = ["Frame", "RecordedEvent", "Snapshot", "read_snapshot"]

_LARGEST = 4 * GiB
_LARGEST_SEGMENT = 1024 * GiB
_GZIP_RATIO = 200
"""Recordings pack to a twentieth; a file that unpacks to more than this many times its size is made to harm."""
_SMALLEST_ENTRY = 8
"""Bytes that an event, block or segment takes at least in a file that repeats nothing."""


class Frame(NamedTuple):
    """A line of a recorded stack."""

    filename: str
    line: int
    name: str


class RecordedEvent(NamedTuple):
    """A line of the allocator's history."""

    action: str
    """`alloc`, `free_requested`, `free_completed`, `segment_alloc`, `segment_free`, `segment_map`, …"""
    address: int
    size: int
    """For blocks the requested bytes, for segments their size."""
    stream: int
    frames: tuple[Frame, ...] = ()
    """Innermost first; recordings without stacks have none."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one device's allocator did while it was recorded, and what it looked like in the end."""

    source: str
    settings: AllocatorSettings
    """As recorded; recordings of old torch versions do not tell, and then it is the default."""
    segments: tuple[SegmentState, ...]
    """At the end, in order of address. Of expandable segments only what was mapped."""
    events: tuple[RecordedEvent, ...]
    device: int
    has_private_pools: bool
    """Some segments belong to CUDA graphs or to pools of the user."""

    @property
    def reserved(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def allocated(self) -> int:
        return sum(block.size for segment in self.segments for block in segment.blocks if block.live)


def read_snapshot(path: str | os.PathLike[str], *, device: int | None = None) -> Snapshot:
    """Read a recording, plain or gzipped, without executing any of it; several devices: the one with most events.

    Whatever is not a recording is an `UnreadableFile` with one sentence.
    """
    source = Path(path)
    data = _unpacked(source)
    try:
        if data[:1] == b"\x80":
            document = read_plain_pickle(data)
        else:
            document = json.loads(data)
    except NotPlainData as error:
        raise UnreadableFile(f"{source} is not a memory snapshot that can be read safely: {error}.") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(
            f"{source} is neither a pickle nor JSON; give what torch.cuda.memory._dump_snapshot wrote, or its JSON."
        ) from error
    except MemoryError as error:
        raise UnreadableFile(f"{source} holds more than this machine has memory for.") from error
    if not isinstance(document, dict) or not isinstance(document.get("segments"), list):
        raise UnreadableFile(f"{source} is not a memory snapshot: it lists no segments.")
    try:
        return _snapshot(document, str(source), device, _Entries(len(data)))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise UnreadableFile(f"{source} is damaged, or not a memory snapshot of a kind that is known.") from error


def _unpacked(source: Path) -> bytes:
    try:
        if source.stat().st_size > _LARGEST:
            raise UnreadableFile(f"{source} is larger than a memory snapshot can be.")
        data = source.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"cannot read {source}: {error.strerror or error}.") from error
    if data[:2] != b"\x1f\x8b":
        return data
    limit = min(_LARGEST, 16 * MiB + _GZIP_RATIO * len(data))
    return unpack(data, limit, str(source), "a memory snapshot")


class _Entries:
    """How many more events, blocks and segments a file of this size can hold."""

    def __init__(self, nbytes: int) -> None:
        self._left = 1000 + nbytes // _SMALLEST_ENTRY

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ValueError("the same entries again and again")


def _snapshot(document: dict[str, Any], source: str, device: int | None, entries: _Entries) -> Snapshot:
    device, history = _history(document, source, device)
    entries.take(len(history) + len(document["segments"]))
    recorded = [segment for segment in document["segments"] if segment.get("device", device) == device]
    for segment in recorded:
        entries.take(len(segment["blocks"]))
    settings = document.get("allocator_settings")
    segments = sorted((_segment(segment) for segment in recorded), key=lambda segment: segment.address)
    if any(left.address + left.size > right.address for left, right in itertools.pairwise(segments)):
        raise ValueError("segments that overlap")
    return Snapshot(
        source=_text(document.get("source", source)),
        settings=AllocatorSettings.from_recording(settings) if isinstance(settings, dict) else AllocatorSettings(),
        segments=tuple(segments),
        events=tuple(_events(history)),
        device=device,
        has_private_pools=any(_is_private(segment.get("segment_pool_id", (0, 0))) for segment in recorded),
    )


def _history(document: dict[str, Any], source: str, device: int | None) -> tuple[int, list[Any]]:
    """The device to look at, and what was recorded of it."""
    if "device_traces" not in document:
        # The re-encoded form has one history, of the device whose segments it lists.
        devices = [segment.get("device", 0) for segment in document["segments"]]
        return (_whole(devices[0]) if devices else 0) if device is None else device, _listed(document["trace"])
    histories = _listed(document["device_traces"])
    if device is None:
        device = max(range(len(histories)), key=lambda number: len(histories[number]), default=0)
    elif not 0 <= device < len(histories):
        raise BadInput(f"{source} records {len(histories)} devices, so there is no device {device}.")
    return device, _listed(histories[device]) if histories else []


def _is_private(pool: Any) -> bool:
    """The pool that every allocation shares is (0, 0)."""
    return len(_listed(pool)) != 2 or pool[0] != 0 or pool[1] != 0


def _segment(recorded: dict[str, Any]) -> SegmentState:
    start = address = _whole(recorded["address"])
    blocks = []
    for block in recorded["blocks"]:
        # torch before 2.1 gave no address to blocks; they lie end to end.
        if _whole(block.get("address", address)) != address:
            raise ValueError("blocks with gaps")
        size = _size(block["size"])
        if size == 0:
            raise ValueError("an empty block")
        live = _text(block["state"]) != "inactive"
        # Freed blocks still carry what was last asked of them.
        requested = min(_whole(block.get("requested_size", size)), size) if live else 0
        blocks.append(BlockState(address, size, live, requested))
        address += size
    if address != start + _whole(recorded["total_size"]):
        raise ValueError("blocks that do not fill their segment")
    return SegmentState(
        address=start,
        size=address - start,
        stream=_whole(recorded.get("stream", 0)),
        is_small=recorded["segment_type"] == "small",
        blocks=tuple(blocks),
        is_expandable=bool(recorded.get("is_expandable", False)),
    )


def _events(history: list[Any]) -> Iterator[RecordedEvent]:
    # A pickle writes a stack, and a line of it, once however many events have it: they are read once, by identity.
    stacks: dict[int, tuple[Frame, ...]] = {}
    frames: dict[int, Frame] = {}

    def frame(recorded: dict[str, Any]) -> Frame:
        if id(recorded) not in frames:
            frames[id(recorded)] = _frame(recorded)
        return frames[id(recorded)]

    for entry in history:
        if not isinstance(entry, dict):
            action, address, size, stream = entry[:4]
            yield RecordedEvent(_text(action), _whole(address), _size(size), _whole(stream))
            continue
        address = entry.get("addr", entry.get("address", entry.get("device_free", 0)))
        recorded = entry.get("frames") or ()
        if id(recorded) not in stacks:
            stacks[id(recorded)] = tuple(map(frame, _listed(recorded)))
        size, stream = _size(entry.get("size", 0)), _whole(entry.get("stream", 0))
        yield RecordedEvent(_text(entry["action"]), _whole(address), size, stream, stacks[id(recorded)])


def _frame(recorded: dict[str, Any]) -> Frame:
    line = recorded.get("line")
    return Frame(_text(recorded.get("filename", "")), line if type(line) is int else 0, _text(recorded.get("name", "")))


def _text(value: Any) -> str:
    """A text; nothing else is made into one, since lists within lists can be endless as text."""
    if type(value) is not str:
        raise TypeError("a text expected")
    return value


def _listed(value: Any) -> list[Any]:
    if type(value) not in (list, tuple):
        raise TypeError("a list expected")
    listed: list[Any] = value
    return listed


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise TypeError("a number from 0 on expected")
    return value


def _size(value: Any) -> int:
    """Bytes of a request or segment: no device has more than this, and what follows counts pages."""
    if _whole(value) > _LARGEST_SEGMENT:
        raise ValueError("more than any device has")
    return _whole(value)
