"""How TensorFlow's (or XLA's) allocator is configured."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ...errors import BadInput, UnknownName
from ...units import GiB, MiB

__all__ = ["BfcSettings", "pool_limit", "system_reserve"]


@dataclass(frozen=True, slots=True)
class BfcSettings:
    """The defaults are those of a GPU under TensorFlow with `allow_growth`: the pool grows with the job."""

    allow_growth: bool = True
    """Regions that double, from 2 MiB on; otherwise the first request takes all of the limit at once."""
    memory_fraction: float = 1.0
    """Share of the capacity that the pool may take (`per_process_gpu_memory_fraction`; JAX: 0.75)."""
    garbage_collection: bool = True
    """Whether a full pool gives back regions that are wholly free (`TF_ENABLE_GPU_GARBAGE_COLLECTION`)."""
    fragmentation_fraction: float = 0.0
    """Share of the limit that a chunk may be larger than its request; 0: 128 MiB."""

    def __post_init__(self) -> None:
        if not 0.0 < self.memory_fraction <= 1.0:
            raise BadInput(f"the memory fraction must be above 0 and at most 1, not {self.memory_fraction:g}.")
        if not 0.0 <= self.fragmentation_fraction <= 1.0:
            raise BadInput(f"the fragmentation fraction must lie between 0 and 1, not {self.fragmentation_fraction:g}.")

    @staticmethod
    def parse(text: str) -> BfcSettings:
        """`allow_growth:false,memory_fraction:0.5`: the fields by name, as `--alloc-conf` takes them."""
        return BfcSettings().changed(text)

    def changed(self, text: str) -> BfcSettings:
        """These settings with the fields that the text names."""
        given: dict[str, bool | float] = {}
        for pair in text.replace(" ", "").split(","):
            key, colon, value = pair.partition(":")
            if key not in _KINDS:
                raise UnknownName("allocator setting", key, _KINDS)
            if not colon or not re.fullmatch(_KINDS[key], value.lower()):
                raise BadInput(f"cannot read {pair!r} in the allocator settings; write them like allow_growth:false.")
            given[key] = value.lower() == "true" if key in _SWITCHES else float(value)
        return replace(self, **given)  # type: ignore[arg-type]

    def endless(self) -> BfcSettings:
        """The same for a device without end: a pool that takes what is asked of it."""
        return replace(self, allow_growth=True, memory_fraction=1.0)


_SWITCHES = ("allow_growth", "garbage_collection")
_NUMBER = r"[0-9]*\.?[0-9]+"
_KINDS = {**dict.fromkeys(_SWITCHES, "true|false"), "memory_fraction": _NUMBER, "fragmentation_fraction": _NUMBER}


def system_reserve(available: int, compute_capability: tuple[int, int]) -> int:
    """Bytes of a card that TensorFlow's pool leaves to CUDA and its libraries (`MinSystemMemory` in gpu_device.cc)."""
    if available < 2 * GiB:
        return 225 * MiB
    by_generation = ((6, 500 * MiB), (7, 1050 * MiB), (8, 1536 * MiB))
    return next((size for newest, size in by_generation if compute_capability[0] <= newest), 1800 * MiB)


def pool_limit(usable: int, context: int, compute_capability: tuple[int, int]) -> int:
    """The most that the pool can take of a card, by TensorFlow's rule.

    TensorFlow asks how much is free when its device is made, and leaves the reserve. About half of the context is there
    by then; the kernels that make up the rest are loaded into the reserve.
    """
    free = usable - context // 2
    return max(min(free - system_reserve(free, compute_capability), usable - context), 0)
