"""What a user has from a real run: nvidia-smi's figure, a memory snapshot, or torch's memory statistics."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..devices import Gpu, find_gpu, other_variants
from ..errors import BadInput, UnknownName, UnreadableFile
from ..simulate import AllocatorSettings, Snapshot, read_snapshot
from ..units import MiB, format_bytes, parse_bytes

__all__ = ["Reading", "check_gpu", "from_memory_stats", "from_nvidia_smi", "from_snapshot"]

_LARGEST = 16 << 20
_GAINS = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


@dataclass(frozen=True)
class Reading:
    """Bytes at the peak of a real run; None where they were not measured."""

    source: str
    device_total: int | None = None
    reserved: int | None = None
    allocated: int | None = None
    settings: AllocatorSettings | None = None
    """The allocator's, where the recording tells them."""


def from_nvidia_smi(size: str | int) -> Reading:
    """`21345MiB`, `20.8GiB`, or a plain number: MiB, as nvidia-smi prints."""
    text = str(size).strip()
    found = int(text) * MiB if re.fullmatch(r"[0-9]{1,9}", text) else parse_bytes(text)
    if found <= 0:
        raise BadInput(f"{text!r} is no figure of nvidia-smi; give what it shows for the process, like 21345MiB.")
    return Reading("nvidia-smi", device_total=found)


def from_snapshot(path: str | os.PathLike[str]) -> Reading:
    """The most that was reserved while the snapshot was recorded: its end, and what its history gave back before."""
    snapshot = read_snapshot(path)
    if not snapshot.segments:
        raise BadInput(f"{path} holds no memory: take the snapshot while the job runs, before its process ends.")
    return Reading("snapshot", reserved=_peak_reserved(snapshot), settings=snapshot.settings)


def _peak_reserved(snapshot: Snapshot) -> int:
    reserved = peak = snapshot.reserved
    for event in reversed(snapshot.events):
        reserved -= _GAINS.get(event.action, 0) * event.size
        peak = max(peak, reserved)
    return peak


def from_memory_stats(path: str | os.PathLike[str], gpu: Gpu) -> Reading:
    """The JSON of `torch.cuda.memory_stats()` or `memory_stats_as_nested_dict()`.

    It may be the value of `memory_stats` beside `device_name` and `total_memory`, which are then checked.
    """
    source = Path(path)
    try:
        if source.stat().st_size > _LARGEST:
            raise UnreadableFile(f"{source} is larger than torch's memory statistics can be.")
        content = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(f"cannot read {source}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(
            f"{source} is not JSON; write it by json.dump(torch.cuda.memory_stats(), file)."
        ) from error
    if not isinstance(content, dict):
        raise UnreadableFile(f"{source} does not hold torch's memory statistics: an object is expected.")
    name, total = content.get("device_name"), content.get("total_memory")
    if isinstance(name, str):
        check_gpu(gpu, name, total if type(total) is int else None, str(source))
    inner = content.get("memory_stats", content)
    stats = inner if isinstance(inner, dict) else {}
    allocated, reserved = (_peak(source, stats, counter) for counter in ("allocated_bytes", "reserved_bytes"))
    if allocated > reserved:
        raise UnreadableFile(f"{source} is damaged: it has more bytes allocated than reserved.")
    return Reading("memory-stats", reserved=reserved, allocated=allocated)


def _peak(source: Path, stats: Mapping[str, Any], counter: str) -> int:
    value: Any = stats.get(f"{counter}.all.peak")
    if value is None:
        value = stats
        for key in (counter, "all", "peak"):
            value = value.get(key) if isinstance(value, dict) else None
    if type(value) is not int or value <= 0:
        raise UnreadableFile(f"{source} does not tell {counter}.all.peak; write all of torch.cuda.memory_stats().")
    return value


def check_gpu(gpu: Gpu, driver_name: str, total_memory: int | None, where: str) -> None:
    """Raises BadInput where a run was on another GPU than the one to calibrate."""
    try:
        meant = (find_gpu(driver_name), *other_variants(driver_name))
    except UnknownName:
        meant = ()
    if meant and gpu.name not in {variant.name for variant in meant}:
        raise BadInput(f"{where} is from a {driver_name}, not from a {gpu.name}; give --device {meant[0].name}.")
    if total_memory is not None and abs(total_memory - gpu.total_memory) > 0.1 * gpu.total_memory:
        raise BadInput(
            f"{where} is from a GPU of {format_bytes(total_memory)}, but a {gpu.name} has "
            f"{format_bytes(gpu.total_memory)}; give the --device that the run was on."
        )
