"""ONNX Runtime's arena: TensorFlow's BFC allocator with another way to grow, and settings with names of their own.

By `bfc_arena.cc` (onnxruntime/core/framework): the first region has 1 MiB, each later one twice the one before, but
from 1 GiB on no more than that, unless a request needs it; with `kSameAsRequested` each region is what was asked for.
A full arena gives nothing back by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..units import GiB, MiB
from .bfc import BfcSettings
from .settings import read_named

__all__ = ["ArenaSettings"]


@dataclass(frozen=True, slots=True)
class ArenaSettings(BfcSettings):
    """The defaults of its CUDA provider; `changed` takes the names of its options."""

    garbage_collection: bool = False
    first_region: int = MiB
    largest_doubling: int | None = GiB

    def changed(self, text: str) -> ArenaSettings:
        """`arena_extend_strategy:kSameAsRequested,gpu_mem_limit:2147483648`: the provider's options by name."""
        changes: dict[str, bool | int] = {}
        for name, value in read_named(text, _KINDS, "arena_extend_strategy:kSameAsRequested").items():
            field = _FIELDS[name]
            changes[field] = value == "ksameasrequested" if field == "as_requested" else int(value)
        return replace(self, **changes)  # type: ignore[arg-type]


_FIELDS = {
    "arena_extend_strategy": "as_requested",
    "gpu_mem_limit": "most",
    "initial_chunk_size_bytes": "first_region",
    "max_power_of_two_extend_bytes": "largest_doubling",
}
_KINDS = {
    "arena_extend_strategy": "knextpoweroftwo|ksameasrequested",
    **dict.fromkeys((name for name in _FIELDS if name != "arena_extend_strategy"), "[1-9][0-9]{0,17}"),
}
