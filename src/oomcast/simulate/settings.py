"""The allocator's settings, as `PYTORCH_CUDA_ALLOC_CONF` spells them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..errors import BadInput, UnknownName
from ..units import MiB

__all__ = [
    "LARGE_SEGMENT",
    "MIN_BLOCK",
    "MIN_LARGE_REQUEST",
    "SMALL_REQUEST",
    "SMALL_SEGMENT",
    "AllocatorSettings",
    "read_named",
]

MIN_BLOCK = 512
"""Every size is a multiple of this."""
SMALL_REQUEST = MiB
"""The largest request that goes to the small pool."""
SMALL_SEGMENT = 2 * MiB
"""What the small pool asks the device for; large requests are rounded to it as well."""
LARGE_SEGMENT = 20 * MiB
"""What the large pool asks the device for when the request is below `MIN_LARGE_REQUEST`."""
MIN_LARGE_REQUEST = 10 * MiB

_INTERVALS = 16
"""`roundup_power2_divisions` has one entry per power of two from 1 MiB to 32 GiB; larger sizes share the last."""

_WITH_EFFECT = frozenset(
    {
        "backend",
        "expandable_segments",
        "garbage_collection_threshold",
        "large_segment_size_mb",
        "max_non_split_rounding_mb",
        "max_split_size_mb",
        "per_process_memory_fraction",
        "roundup_power2_divisions",
    }
)
# They concern host memory, locking, CUDA graphs or how a failure is told, never how many device bytes are held.
_WITHOUT_EFFECT = frozenset(
    {
        "graph_capture_record_stream_reuse",
        "pinned_free_catch_all",
        "pinned_max_cached_size_mb",
        "pinned_max_round_threshold_mb",
        "pinned_num_register_threads",
        "pinned_reserve_segment_size_mb",
        "pinned_use_background_threads",
        "pinned_use_cuda_host_register",
        "pinned_use_hip_host_register",
        "release_lock_on_cudamalloc",
        "release_lock_on_hipmalloc",
        "throw_on_cudamalloc_oom",
    }
)


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """How torch's caching allocator is configured; the defaults are torch's."""

    max_split_size: int | None = None
    """Blocks of at least this many bytes are never split; None: any block may be."""
    max_non_split_rounding: int | None = None
    """How much larger an unsplittable block may be than the request it serves; None: one large segment."""
    roundup_power2_divisions: tuple[int, ...] = (0,) * _INTERVALS
    """Steps between powers of two that sizes are rounded up to, for sizes from 1, 2, 4 … 32768 MiB; 0 or 1: none."""
    garbage_collection_threshold: float = 0.0
    """Share of the allowed memory above which idle segments are returned; without a memory fraction it does nothing."""
    expandable_segments: bool = False
    large_segment_size: int = LARGE_SEGMENT
    per_process_memory_fraction: float = 1.0

    def __post_init__(self) -> None:
        if self.large_segment_size <= MIN_LARGE_REQUEST:
            raise BadInput("large_segment_size_mb must be more than 10.")
        least = self.large_segment_size
        if self.max_split_size is not None and self.max_split_size < least:
            raise BadInput(f"max_split_size_mb must be at least {least // MiB}, the size of a large segment.")
        if self.max_non_split_rounding is not None and self.max_non_split_rounding < least:
            raise BadInput(f"max_non_split_rounding_mb must be at least {least // MiB}, the size of a large segment.")
        if not 0.0 <= self.garbage_collection_threshold < 1.0:
            raise BadInput("garbage_collection_threshold must lie between 0 and 1.")
        if not 0.0 < self.per_process_memory_fraction <= 1.0:
            raise BadInput("per_process_memory_fraction must be above 0 and at most 1.")
        if len(self.roundup_power2_divisions) != _INTERVALS:
            raise BadInput(f"roundup_power2_divisions needs {_INTERVALS} entries, one per power of two from 1 MiB on.")
        for divisions in self.roundup_power2_divisions:
            if divisions and not _is_power_of_two(divisions):
                raise BadInput(f"roundup_power2_divisions must be powers of two, not {divisions}.")

    def endless(self) -> AllocatorSettings:
        """The same without a limit of its own."""
        return replace(self, per_process_memory_fraction=1.0)

    @staticmethod
    def parse(text: str) -> AllocatorSettings:
        """Read `max_split_size_mb:128,expandable_segments:True`; what torch would refuse is a `BadInput`."""
        fields: dict[str, int | float | bool | tuple[int, ...]] = {}
        for key, value in _pairs(text):
            if key == "max_split_size_mb":
                fields["max_split_size"] = _whole(key, value) * MiB
            elif key == "max_non_split_rounding_mb":
                fields["max_non_split_rounding"] = _whole(key, value) * MiB
            elif key == "large_segment_size_mb":
                fields["large_segment_size"] = _whole(key, value) * MiB
            elif key == "garbage_collection_threshold":
                fields["garbage_collection_threshold"] = _share(key, value)
            elif key == "per_process_memory_fraction":
                fields["per_process_memory_fraction"] = _share(key, value)
            elif key == "expandable_segments":
                fields["expandable_segments"] = _boolean(key, value)
            elif key == "roundup_power2_divisions":
                fields["roundup_power2_divisions"] = _divisions(value)
            elif key == "backend" and value != "native":
                raise BadInput(f"only torch's native allocator is modelled, not backend:{value}.")
        return AllocatorSettings(**fields)  # type: ignore[arg-type]

    @staticmethod
    def from_recording(recorded: Mapping[str, object]) -> AllocatorSettings:
        """The settings a memory snapshot carries under `allocator_settings`; what it does not name is the default."""
        split = recorded.get("max_split_size")
        threshold = recorded.get("garbage_collection_threshold")
        by_size = recorded.get("roundup_power2_divisions")
        divisions = (0,) * _INTERVALS
        if isinstance(by_size, Mapping):
            # The keys are the interval's start in MiB, as text; torch's -1 stands for "no limit".
            divisions = tuple(int(by_size.get(str(1 << index), 0)) for index in range(_INTERVALS))
        named = AllocatorSettings()
        text = recorded.get("PYTORCH_CUDA_ALLOC_CONF")
        if isinstance(text, str):
            # Some settings are told only in the text they were given in, which another torch may spell otherwise.
            with contextlib.suppress(BadInput):
                named = AllocatorSettings.parse(text)
        return replace(
            named,
            max_split_size=split if isinstance(split, int) and split > 0 else None,
            roundup_power2_divisions=divisions,
            garbage_collection_threshold=float(threshold) if isinstance(threshold, (int, float)) else 0.0,
            expandable_segments=bool(recorded.get("expandable_segments")),
        )

    def round_size(self, nbytes: int) -> int:
        """The block size a request of `nbytes` asks the pools for."""
        if nbytes < MIN_BLOCK:
            return MIN_BLOCK
        interval = min(max(nbytes.bit_length() - 1 - 20, 0), _INTERVALS - 1)
        divisions = self.roundup_power2_divisions[interval]
        if divisions > 1 and nbytes > MIN_BLOCK * divisions:
            return _next_division(nbytes, divisions)
        return -(-nbytes // MIN_BLOCK) * MIN_BLOCK

    def segment_size(self, rounded: int) -> int:
        """What is asked of the device when no cached block serves a request rounded to `rounded` bytes."""
        if rounded <= SMALL_REQUEST:
            return SMALL_SEGMENT
        if rounded < MIN_LARGE_REQUEST:
            return self.large_segment_size
        return -(-rounded // SMALL_SEGMENT) * SMALL_SEGMENT

    @property
    def rounds_to_divisions(self) -> bool:
        return any(divisions > 1 for divisions in self.roundup_power2_divisions)


def _next_division(nbytes: int, divisions: int) -> int:
    if _is_power_of_two(nbytes):
        return nbytes
    division = (1 << (nbytes.bit_length() - 1)) // divisions
    return -(-nbytes // division) * division


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _pairs(text: str) -> list[tuple[str, str]]:
    """`a:1, b:[1:2,>:4]` to key and value; white space means nothing, as in torch."""
    rest = re.sub(r"\s", "", text)
    pairs = []
    while rest:
        match = re.match(r"([^:,\[\]]+):(\[[^\]]*\]|[^:,\[\]]+)(,|$)", rest)
        if match is None:
            raise BadInput(f"cannot read {rest!r} in the allocator settings; write them like key:value,key:value.")
        key, value, _ = match.groups()
        if key not in _WITH_EFFECT and key not in _WITHOUT_EFFECT:
            raise UnknownName("allocator setting", key, sorted(_WITH_EFFECT | _WITHOUT_EFFECT))
        pairs.append((key, value))
        rest = rest[match.end() :]
    return pairs


def read_named(text: str, kinds: Mapping[str, str], example: str) -> dict[str, str]:
    """`name:value,name:value` in lower case, for allocators whose settings are plain; `kinds` are regular expressions.

    Raises BadInput for a value that is not of its kind, with an `example` of a good one, and UnknownName.
    """
    named = {}
    for pair in text.replace(" ", "").split(","):
        key, colon, value = pair.partition(":")
        if key not in kinds:
            raise UnknownName("allocator setting", key, kinds)
        if not colon or not re.fullmatch(kinds[key], value.lower()):
            raise BadInput(f"cannot read {pair!r} in the allocator settings; write them like {example}.")
        named[key] = value.lower()
    return named


def _whole(key: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", value):
        raise BadInput(f"{key} must be a whole number, not {value!r}.")
    return int(value)


def _share(key: str, value: str) -> float:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", value) or not 0.0 < float(value) <= 1.0:
        raise BadInput(f"{key} must lie between 0 and 1, not {value!r}.")
    return float(value)


def _boolean(key: str, value: str) -> bool:
    if value not in ("True", "False"):
        raise BadInput(f"{key} must be True or False, not {value!r}.")
    return value == "True"


def _divisions(value: str) -> tuple[int, ...]:
    key = "roundup_power2_divisions"
    if not value.startswith("["):
        everywhere = _whole(key, value)
        if not _is_power_of_two(everywhere):
            raise BadInput(f"{key} must be a power of two, not {value!r}.")
        return (everywhere,) * _INTERVALS
    divisions = [0] * _INTERVALS
    last: int | None = None
    for entry in value[1:-1].split(","):
        start, _, count = entry.partition(":")
        wanted = _whole(key, count)
        if start == ">":
            # An open end covers all sizes above the last one named, or, alone, all but the first interval.
            first = 1 if last is None else last + 1
            divisions[first:] = [wanted] * (_INTERVALS - first)
            continue
        if not _is_power_of_two(_whole(key, start)):
            raise BadInput(f"{key} takes sizes that are powers of two, not {start}.")
        index = min(int(start).bit_length() - 1, _INTERVALS - 1)
        if last is None:
            divisions[:index] = [wanted] * index
        divisions[index] = wanted
        last = index
    return tuple(divisions)
