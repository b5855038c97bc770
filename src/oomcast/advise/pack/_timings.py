"""When the jobs of a list come, how long they run and what they truly hold: what a replay needs beside estimates."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ...errors import BadInput
from ._cards import Card
from ._jobs import JobEntry
from ._problem import Item
from ._replay import Timing

__all__ = ["estimators_of", "timings_of"]


def timings_of(
    entries: Sequence[JobEntry], items: Sequence[Item], cards: Sequence[Card], draw_truth: int | None = None
) -> tuple[Timing, ...]:
    """`draw_truth` is a seed: what the list does not say is then drawn from each job's own interval."""
    draw = random.Random(draw_truth)
    timings = []
    for entry, item in zip(entries, items, strict=True):
        if entry.duration is None:
            raise BadInput(f"job {entry.name!r} has no duration; a replay needs the seconds that it runs.")
        chance = draw.random()
        truth = entry.truth
        if truth is None and draw_truth is None:
            raise BadInput(
                f"job {entry.name!r} has no truth; a replay needs what it really holds. Add truth = '9.3GiB', "
                "or draw the truths from the intervals with --draw-truth SEED."
            )
        if truth is None:
            kind = next(card.kind for card in cards if card.kind in item.demands)
            truth = item.demands[kind].drawn(chance)
        timings.append(Timing(entry.arrival or 0.0, entry.duration, truth))
    return tuple(timings)


def estimators_of(entries: Sequence[JobEntry]) -> tuple[str, ...]:
    """Whose estimates all jobs bring; empty where some job is to be estimated, or has one without a name."""
    shared = list(entries[0].given) if entries else []
    for entry in entries:
        shared = [name for name in shared if name in entry.given]
    return tuple(shared)
