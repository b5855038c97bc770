"""Two sides against each other: what changed, by category, module, size and line, each adding up to its total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..units import format_bytes
from ._categories import label
from ._diff_sides import Held, Side
from ._words import short_source, signed_bytes

__all__ = ["Change", "Difference", "compare"]


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
    beside = ("allocator_cache", "context")
    first, second = (
        {name: size for name, size in side.breakdown.items() if name not in beside} for side in (before, after)
    )
    return first, second


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[Change, ...]:
    """Largest change first; what is the same on both sides stands last, what is on none is left out."""
    found = [Change(name, before.get(name, 0), after.get(name, 0)) for name in {**before, **after}]
    return tuple(sorted((c for c in found if c.before or c.after), key=lambda c: (-abs(c.bytes), c.name)))


def _rolled(modules: Mapping[str, int], depth: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for path, size in modules.items():
        found[".".join(path.split(".")[:depth]) if path else "outside of any module"] += size
    return found


def _sizes(before: Iterable[Held], after: Iterable[Held]) -> Iterable[Change]:
    first, second = Counter(block.size for block in before), Counter(block.size for block in after)
    examples = {block.size: _example(block) for block in (*before, *after) if _example(block)}
    found = [
        Change(
            f"{first[size]} → {second[size]} of {format_bytes(size)}",
            first[size] * size,
            second[size] * size,
            examples.get(size, ""),
        )
        for size in {**first, **second}
    ]
    return sorted((change for change in found if change.bytes), key=lambda change: -abs(change.bytes))


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
