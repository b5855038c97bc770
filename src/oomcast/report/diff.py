"""What changed between two estimates or memory snapshots, each at its peak.

A side is read from an estimate's JSON or from a snapshot, recorded or predicted (`read_side`). Two sides are compared
by category, module, size of block and line (`compare`); each of these lists adds up to the change of its total.
"""

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
from ..units import MiB, format_bytes
from .memory_viz import MODULE
from .words import label, short_source, signed_bytes

__all__ = ["Change", "Difference", "Held", "Side", "compare", "read_side"]

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
    """One of the two that are compared. What its file does not tell is None or empty."""

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
        workload = document["workload"]
        settings = {name: _words(value) for name, value in workload.items() if value is not None}
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


@dataclass(frozen=True)
class Change:
    name: str
    before: int
    after: int
    note: str = ""

    @property
    def bytes(self) -> int:
        return self.after - self.before


@dataclass(frozen=True)
class Difference:
    before: Side
    after: Side
    totals: tuple[Change, ...]
    categories: tuple[Change, ...]
    """Sum to the change of the device total; of two snapshots, to that of the reserved bytes."""
    modules: tuple[Change, ...]
    """Paths up to the depth that was asked for; they sum to the change of what tensors hold."""
    sizes: tuple[Change, ...]
    """Blocks of one size at the peak, all their bytes together; only of two snapshots."""
    lines: tuple[Change, ...]
    """By the line that made them; only of two snapshots that have stacks."""
    settings: tuple[tuple[str, str, str], ...]
    """What was asked differently: name, before, after."""

    @property
    def main(self) -> Change:
        """The widest figure that both sides have."""
        return self.totals[-1]

    def sentence(self) -> str:
        change = self.main
        if not change.bytes:
            same = f"{change.name} is the same: {format_bytes(change.after)}"
            return f"{same}, though its parts differ." if any(part.bytes for part in self.categories) else f"{same}."
        more = "more" if change.bytes > 0 else "less"
        share = f" ({change.bytes / change.before:+.1%})" if change.before else ""
        words = (
            f"{change.name}: {format_bytes(change.before)} before, {format_bytes(change.after)} after, "
            f"{format_bytes(abs(change.bytes))} {more}{share}"
        )
        parts = self.categories or self.sizes
        largest = [part for part in parts if part.bytes * change.bytes > 0][:2]
        if not largest:
            return words + "."
        listed = " and ".join(f"{label(part.name)} ({signed_bytes(part.bytes)})" for part in largest)
        return f"{words}; most by {listed}."


def compare(before: Side, after: Side, depth: int = 2) -> Difference:
    """`depth` is how many parts of a module's path are kept."""
    both_blocks = bool(before.blocks) and bool(after.blocks)
    both_lines = both_blocks and all(any(block.line for block in side.blocks) for side in (before, after))
    both_modules = bool(before.modules) and bool(after.modules)
    both_breakdowns = bool(before.breakdown) and bool(after.breakdown)
    return Difference(
        before=before,
        after=after,
        totals=tuple(_totals(before, after)),
        categories=_changes(*_breakdowns(before, after)) if both_breakdowns else (),
        modules=_changes(_rolled(before.modules, depth), _rolled(after.modules, depth)) if both_modules else (),
        sizes=tuple(_sizes(before.blocks, after.blocks)) if both_blocks else (),
        lines=_changes(_by_line(before.blocks), _by_line(after.blocks)) if both_lines else (),
        settings=tuple(_settings(before.settings, after.settings)),
    )


def _totals(before: Side, after: Side) -> Iterable[Change]:
    yield Change("Allocated", before.peak_allocated, after.peak_allocated)
    yield Change("Reserved", before.peak_reserved, after.peak_reserved)
    if before.device_total is not None and after.device_total is not None:
        yield Change("Device total", before.device_total, after.device_total)


def _breakdowns(before: Side, after: Side) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """A snapshot knows nothing beside its tensors, so then an estimate is asked for no more."""
    if before.kind == after.kind:
        return before.breakdown, after.breakdown
    beside = ("allocator_cache", "context", "communication")
    first, second = (
        {name: size for name, size in side.breakdown.items() if name not in beside} for side in (before, after)
    )
    return first, second


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[Change, ...]:
    """Largest change first; what is the same on both sides stands last, what is on none is left out."""
    changes = [Change(name, before.get(name, 0), after.get(name, 0)) for name in {**before, **after}]
    return tuple(sorted((c for c in changes if c.before or c.after), key=lambda c: (-abs(c.bytes), c.name)))


def _rolled(modules: Mapping[str, int], depth: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for path, size in modules.items():
        found[".".join(path.split(".")[:depth]) if path else "outside of any module"] += size
    return found


def _sizes(before: Iterable[Held], after: Iterable[Held]) -> Iterable[Change]:
    first, second = Counter(block.size for block in before), Counter(block.size for block in after)
    examples = {block.size: _example(block) for block in (*before, *after) if _example(block)}
    changes = [
        Change(
            f"{first[size]} → {second[size]} of {format_bytes(size)}",
            first[size] * size,
            second[size] * size,
            examples.get(size, ""),
        )
        for size in {**first, **second}
    ]
    return sorted((change for change in changes if change.bytes), key=lambda change: -abs(change.bytes))


def _example(block: Held) -> str:
    return block.module or short_source(block.line)


def _by_line(blocks: Iterable[Held]) -> Counter[str]:
    found: Counter[str] = Counter()
    for block in blocks:
        found[short_source(block.line) or "no line"] += block.size
    return found


def _settings(before: Mapping[str, str], after: Mapping[str, str]) -> Iterable[tuple[str, str, str]]:
    if not before or not after:
        return
    for name in {**before, **after}:
        first, second = before.get(name, "–"), after.get(name, "–")
        if first != second:
            yield name.replace("_", " "), first, second
