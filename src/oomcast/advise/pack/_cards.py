"""The cards that jobs are placed on, as people write them: `4xa100-40gb,2xrtx-3090`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...devices import Gpu, find_gpu
from ...errors import BadInput

__all__ = ["Card", "parse_cards"]

_MOST_CARDS = 4096


@dataclass(frozen=True)
class Card:
    """One GPU of a machine or cluster."""

    name: str
    """`a100-40gb/0`: its kind, and its number among those."""
    gpu: Gpu

    @property
    def kind(self) -> str:
        return self.gpu.name

    @property
    def usable(self) -> int:
        return self.gpu.usable_memory


def parse_cards(text: str) -> tuple[Card, ...]:
    """All cards, kinds in the order they are written; a kind that is written twice adds up."""
    counts: dict[str, int] = {}
    gpus: dict[str, Gpu] = {}
    for part in (piece.strip() for piece in text.split(",")):
        if not part:
            raise BadInput(f"cannot read {text!r} as GPUs; write them like 4xa100-40gb,2xrtx-3090.")
        count, name = _counted(part)
        gpu = find_gpu(name)
        gpus[gpu.name] = gpu
        counts[gpu.name] = counts.get(gpu.name, 0) + count
    if sum(counts.values()) > _MOST_CARDS:
        raise BadInput(f"{sum(counts.values())} GPUs are more than the {_MOST_CARDS} that can be packed at once.")
    return tuple(Card(f"{name}/{number}", gpus[name]) for name in counts for number in range(counts[name]))


def _counted(part: str) -> tuple[int, str]:
    match = re.fullmatch(r"([+-]?[0-9]+)\s*[x×*]\s*(.+)", part)
    if match is None:
        return 1, part
    count = int(match.group(1)[:9])
    if count < 1:
        raise BadInput(f"{part!r} asks for {count} GPUs; give at least one.")
    return count, match.group(2)
