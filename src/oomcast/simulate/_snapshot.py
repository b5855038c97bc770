"""Recorded allocator histories: `torch.cuda.memory._dump_snapshot()`'s pickle, or the same as JSON."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import BadInput, UnreadableFile
from ..units import GiB, MiB
from ._blocks import BlockState, SegmentState
from ._plain_pickle import NotPlainData, read_plain_pickle
from ._settings import AllocatorSettings

__all__ = ["Frame", "RecordedEvent", "Snapshot", "read_snapshot"]

_LARGEST = 4 * GiB
_LARGEST_SEGMENT = 1024 * GiB
_GZIP_RATIO = 200
"""Recordings pack to a twentieth; a file that unpacks to more than this many times its size is made to harm."""


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
    if not isinstance(document, dict) or not isinstance(document.get("segments"), list):
        raise UnreadableFile(f"{source} is not a memory snapshot: it lists no segments.")
    try:
        return _snapshot(document, str(source), device)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
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
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            data = packed.read(limit + 1)
    except EOFError as error:
        raise UnreadableFile(f"{source} is truncated.") from error
    except (OSError, zlib.error) as error:
        raise UnreadableFile(f"{source} is damaged.") from error
    if len(data) > limit:
        raise UnreadableFile(f"{source} unpacks to more than a memory snapshot can be.")
    return data


def _snapshot(document: dict[str, Any], source: str, device: int | None) -> Snapshot:
    device, history = _history(document, source, device)
    told = [segment for segment in document["segments"] if segment.get("device", device) == device]
    settings = document.get("allocator_settings")
    segments = sorted((_segment(segment) for segment in told), key=lambda segment: segment.address)
    if any(left.address + left.size > right.address for left, right in itertools.pairwise(segments)):
        raise ValueError("segments that overlap")
    return Snapshot(
        source=str(document.get("source", source)),
        settings=AllocatorSettings.from_recording(settings) if isinstance(settings, dict) else AllocatorSettings(),
        segments=tuple(segments),
        events=tuple(_events(history)),
        device=device,
        has_private_pools=any(tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0) for segment in told),
    )


def _history(document: dict[str, Any], source: str, device: int | None) -> tuple[int, list[Any]]:
    """The device to look at, and what was recorded of it."""
    if "device_traces" not in document:
        # The re-encoded form has one history, of the device whose segments it lists.
        devices = [segment.get("device", 0) for segment in document["segments"]]
        return (devices[0] if devices else 0) if device is None else device, list(document["trace"])
    histories = [list(history) for history in document["device_traces"]]
    if device is None:
        device = max(range(len(histories)), key=lambda number: len(histories[number]), default=0)
    elif not 0 <= device < len(histories):
        raise BadInput(f"{source} records {len(histories)} devices, so there is no device {device}.")
    return device, histories[device] if histories else []


def _segment(told: dict[str, Any]) -> SegmentState:
    start = address = _whole(told["address"])
    blocks = []
    for block in told["blocks"]:
        # torch before 2.1 gave no address to blocks; they lie end to end.
        if _whole(block.get("address", address)) != address:
            raise ValueError("blocks with gaps")
        size = _size(block["size"])
        if size == 0:
            raise ValueError("an empty block")
        live = str(block["state"]) != "inactive"
        # Freed blocks still carry what was last asked of them.
        requested = min(_whole(block.get("requested_size", size)), size) if live else 0
        blocks.append(BlockState(address, size, live, requested))
        address += size
    if address != start + _whole(told["total_size"]):
        raise ValueError("blocks that do not fill their segment")
    return SegmentState(
        address=start,
        size=address - start,
        stream=_whole(told.get("stream", 0)),
        is_small=told["segment_type"] == "small",
        blocks=tuple(blocks),
        is_expandable=bool(told.get("is_expandable", False)),
    )


def _events(history: list[Any]) -> Iterator[RecordedEvent]:
    # A pickle writes a stack once however many events have it, so it is read once, by its identity.
    stacks: dict[int, tuple[Frame, ...]] = {}
    for entry in history:
        if not isinstance(entry, dict):
            action, address, size, stream = entry[:4]
            yield RecordedEvent(str(action), _whole(address), _size(size), _whole(stream))
            continue
        address = entry.get("addr", entry.get("address", entry.get("device_free", 0)))
        told = entry.get("frames") or ()
        if id(told) not in stacks:
            stacks[id(told)] = tuple(_frame(frame) for frame in told)
        size, stream = _size(entry.get("size", 0)), _whole(entry.get("stream", 0))
        yield RecordedEvent(str(entry["action"]), _whole(address), size, stream, stacks[id(told)])


def _frame(told: dict[str, Any]) -> Frame:
    line = told.get("line")
    return Frame(str(told.get("filename", "")), line if type(line) is int else 0, str(told.get("name", "")))


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise TypeError("a number from 0 on expected")
    return value


def _size(value: Any) -> int:
    """Bytes of a request or segment: no device has more than this, and what follows counts pages."""
    if _whole(value) > _LARGEST_SEGMENT:
        raise ValueError("more than any device has")
    return _whole(value)
