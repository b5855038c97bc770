"""What can be compared: an estimate's JSON, or a memory snapshot, recorded or predicted; each at its peak."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UnreadableFile
from ..simulate import Frame, RecordedEvent, Snapshot, read_snapshot, replay
from ..trace import Category
from ..units import MiB
from ._memory_viz import MODULE

__all__ = ["Held", "Side", "read_side"]

_LARGEST = 256 * MiB
_MIN_BLOCK = 512
_CATEGORIES = {category.value for category in Category}


@dataclass(frozen=True)
class Held:
    """A block in use at the peak of a snapshot."""

    size: int
    """Bytes that were asked for, rounded up to the allocator's 512."""
    category: str
    """This, the module and the line are "" where the snapshot does not say."""
    module: str
    line: str


@dataclass(frozen=True)
class Side:
    """One of the two. What a file does not tell is None or empty."""

    name: str
    kind: str
    """`estimate` or `snapshot`."""
    peak_allocated: int
    peak_reserved: int
    device_total: int | None = None
    verdict: str | None = None
    breakdown: Mapping[str, int] = field(default_factory=dict)
    modules: Mapping[str, int] = field(default_factory=dict)
    blocks: tuple[Held, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """What was asked about, and where it stands."""


def read_side(path: str) -> Side:
    """Read either form, by what is in the file; anything else is an `UnreadableFile`."""
    document = _json(Path(path))
    if isinstance(document, dict) and "segments" not in document:
        return _estimate_side(document, path)
    return _snapshot_side(read_snapshot(path), path)


def _json(path: Path) -> Any:
    """The document, if the file is JSON in plain text: snapshots may be pickles, or packed."""
    try:
        if path.is_dir():
            raise UnreadableFile(f"{path} is a folder; name an estimate's JSON or a memory snapshot.")
        with path.open("rb") as file:
            start = file.read(64).lstrip()
        if start[:1] != b"{" or path.stat().st_size > _LARGEST:
            return None
        return json.loads(path.read_bytes())
    except OSError as error:
        raise UnreadableFile(f"cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} is damaged: it begins like JSON, but is not.") from error


def _estimate_side(document: dict[str, Any], path: str) -> Side:
    try:
        told = document["workload"]
        settings = {name: _words(value) for name, value in told.items() if value is not None}
        provenance = {name: _words(value) for name, value in document["provenance"].items() if name != "versions"}
        return Side(
            name=path,
            kind="estimate",
            peak_allocated=_whole(document["peak_allocated"]),
            peak_reserved=_whole(document["peak_reserved"]),
            device_total=_whole(document["device_total"]),
            verdict=str(document["verdict"]),
            breakdown={str(name): _number(size) for name, size in document["breakdown"].items()},
            modules={str(name): _whole(size) for name, size in document.get("peak_by_module", {}).items()},
            settings={
                **settings,
                "device": str(document["device"]),
                **provenance,
                **{str(name): str(version) for name, version in document["provenance"].get("versions", {}).items()},
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableFile(
            f"{path} is neither what oomcast estimate --json prints nor a memory snapshot; compare those."
        ) from error


def _snapshot_side(snapshot: Snapshot, path: str) -> Side:
    # The allocator rounds and splits; replaying the recording tells what that comes to.
    result = replay(snapshot)
    blocks = tuple(_at_peak(snapshot))
    modules: Counter[str] = Counter()
    breakdown: Counter[str] = Counter()
    if blocks and all(block.category for block in blocks):
        for block in blocks:
            breakdown[block.category] += block.size
            modules[block.module] += block.size
        breakdown["rounding"] = result.simulated_peak_allocated - breakdown.total()
        breakdown["allocator_cache"] = result.recorded_peak_reserved - result.simulated_peak_allocated
    return Side(
        name=path,
        kind="snapshot",
        peak_allocated=result.simulated_peak_allocated,
        peak_reserved=result.recorded_peak_reserved,
        breakdown=dict(breakdown),
        modules=dict(modules),
        blocks=blocks,
    )


def _at_peak(snapshot: Snapshot) -> Iterable[Held]:
    """The blocks in use when the most bytes are: those from before the recording have no stack."""
    before = _from_before(snapshot)
    live = dict(before)
    level = highest = sum(size for size, _ in live.values())
    end = 0
    for number, event in enumerate(snapshot.events):
        level += _change(event, live)
        if level > highest:
            highest, end = level, number + 1
    live = dict(before)
    for event in snapshot.events[:end]:
        _change(event, live)
    return [_held(size, frames) for size, frames in live.values()]


_Live = dict[int, tuple[int, tuple[Frame, ...]]]


def _change(event: RecordedEvent, live: _Live) -> int:
    if event.action == "alloc":
        size = _rounded(event.size)
        live[event.address] = (size, event.frames)
        return size
    if event.action == "free_completed":
        return -live.pop(event.address, (0, ()))[0]
    return 0


def _from_before(snapshot: Snapshot) -> _Live:
    """What was in use when the recording began: freed in it, or there at its end, without being taken in it."""
    found: _Live = {}
    taken: set[int] = set()
    for event in snapshot.events:
        if event.action == "alloc":
            taken.add(event.address)
        elif event.action == "free_completed" and event.address not in taken:
            found[event.address] = (_rounded(event.size), ())
            taken.add(event.address)
    for segment in snapshot.segments:
        for block in segment.blocks:
            if block.live and block.address not in taken:
                found[block.address] = (_rounded(block.requested or block.size), ())
    return found


def _rounded(size: int) -> int:
    return max(-(-size // _MIN_BLOCK) * _MIN_BLOCK, _MIN_BLOCK)


def _held(size: int, frames: tuple[Frame, ...]) -> Held:
    """Of a prediction, stacks tell module and category; of a recording, the user's line is worth telling."""
    if frames and frames[0].filename == Category.WORKSPACE.value and frames[0].line == 0:
        return Held(size, Category.WORKSPACE.value, "", frames[0].name)
    module = next((frame.name for frame in frames if frame.filename == MODULE and frame.line == 0), "")
    category = frames[-1].name if frames and frames[-1].line == 0 and frames[-1].name in _CATEGORIES else ""
    lines = [frame for frame in frames if frame.filename.endswith(".py")]
    own = next((frame for frame in lines if "/torch/" not in frame.filename), lines[0] if lines else None)
    return Held(size, category, module, f"{own.filename}:{own.line}" if own is not None else "")


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("a whole number expected")
    return value


def _whole(value: Any) -> int:
    if _number(value) < 0:
        raise ValueError("a number from 0 on expected")
    return _number(value)
