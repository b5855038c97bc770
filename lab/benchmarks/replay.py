"""Recorded allocator histories, replayed: reserved bytes to the byte, and the address of every block."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from oomcast.simulate import ReplayResult, read_snapshot, replay

from .report import Bar, Outcome, as_mib

__all__ = ["rows", "run"]


def rows(groundtruth: Path, progress: Callable[[str], None]) -> list[tuple[str, ReplayResult]]:
    """One result for each recording."""
    found = []
    for path in sorted((groundtruth / "snapshots").glob("*.json.gz")):
        progress(path.name)
        found.append((path.name.removesuffix(".json.gz"), replay(read_snapshot(path))))
    return found


def run(groundtruth: Path, progress: Callable[[str], None]) -> Outcome:
    results = rows(groundtruth, progress)
    known = [result for _, result in results if result.starts_from_known_state]
    exact = sum(result.exact and result.recorded_peak_reserved == result.simulated_peak_reserved for result in known)
    return Outcome(
        "Replay of recorded CUDA allocator histories (MiB)",
        ("recording", "events", "recorded", "simulated", "exact", "known start", "addresses equal", "layout equal"),
        [
            (
                name,
                f"{result.events:,}",
                as_mib(result.recorded_reserved),
                as_mib(result.simulated_reserved),
                "yes" if result.exact else "NO",
                "yes" if result.starts_from_known_state else "no",
                f"{result.addresses_equal:,}/{result.allocations:,}",
                "yes" if result.layout_equal else "no",
            )
            for name, result in results
        ],
        [Bar("reserved bytes exact where the start is known", f"{exact} of {len(known)}", exact == len(known))],
        [f"{name}: {result.reason}" for name, result in results if result.reason]
        + [
            f"{name}, event {result.divergence.event}: {result.divergence.what}"
            for name, result in results
            if result.divergence
        ],
    )
