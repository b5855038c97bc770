"""Accelerators of other makers than NVIDIA's cards, as data (`other_makers.json`), and cards told by their figures.

No run on them was ever held against a figure of ours. What is known is their memory; what a process takes beside its
tensors is from public messages; in the rest a card of NVIDIA's stands for each. The answer says all that, and its
interval is some times (`spread`) as wide as that of measured cards: a judgement, not a measurement.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast, get_args

from ..errors import BadInput
from ..units import GiB, MiB, parse_bytes
from .records import Record, read_records

if TYPE_CHECKING:
    from .gpus import Gpu

__all__ = ["Maker", "Other", "by_figures", "read_others"]

FILE = "other_makers.json"
_FIELDS = (
    "name",
    "maker",
    "driver_name",
    "aliases",
    "memory_gib",
    "total_memory_mib",
    "total_memory_source",
    "source",
    "note",
    "like",
)


@dataclass(frozen=True)
class Maker:
    """What holds for all accelerators of a maker."""

    name: str
    context: tuple[int, int, int]
    """Bytes that a process holds beside its tensors: at least, typically, at most."""
    context_source: str
    spread: float
    """How many times as wide the interval is."""
    unknown: str
    """A sentence: what is not known of it, and what stands for that."""


@dataclass(frozen=True)
class Other:
    """One line of the file: a card of NVIDIA's by name, and in what this one differs from it."""

    like: str
    maker: Maker
    changes: dict[str, object]

    def as_gpu(self, like: Gpu) -> Gpu:
        told = self.maker.unknown.format(like=like.driver_name)
        maker = dataclasses.replace(self.maker, unknown=told)
        return dataclasses.replace(like, maker=maker, architecture=self.maker.name, family="", **self.changes)  # type: ignore[arg-type]


@functools.cache
def read_others() -> tuple[Other, ...]:
    top = read_records(FILE, schema=1)
    top.only("schema", "makers", "devices")
    named = top.record("makers")
    makers = {name: _maker(name, named.record(name)) for name in named.fields}
    listed = top.fields.get("devices")
    if not isinstance(listed, list) or not listed:
        raise top.error("'devices' must be a list")
    return tuple(_other(top.file, entry, makers) for entry in listed)


def _maker(name: str, record: Record) -> Maker:
    record.only("context_mib", "context_source", "spread", "unknown")
    told = record.fields.get("context_mib")
    if not isinstance(told, list) or len(told) != 3 or sorted(told) != told:
        raise record.error("'context_mib' must be three rising numbers")
    low, typical, high = (int(figure) * MiB for figure in told)
    return Maker(
        name, (low, typical, high), record.text("context_source"), record.number("spread"), record.text("unknown")
    )


def _other(file: str, entry: object, makers: dict[str, Maker]) -> Other:
    from .gpus import MemorySource

    record = Record(file, "devices", entry)
    record = Record(file, f"device {record.text('name')!r}", entry)
    record.only(*_FIELDS)
    if record.text("maker") not in makers:
        raise record.error(f"there is no maker {record.text('maker')!r}")
    if record.text("total_memory_source") not in get_args(MemorySource):
        raise record.error("'total_memory_source' must be reported or derived")
    return Other(
        like=record.text("like"),
        maker=makers[record.text("maker")],
        changes={
            "name": record.text("name"),
            "driver_name": record.text("driver_name"),
            "aliases": record.texts("aliases"),
            "memory_gib": record.integer("memory_gib"),
            "total_memory": record.integer("total_memory_mib") * MiB,
            "total_memory_source": cast(MemorySource, record.text("total_memory_source")),
            "source": record.text("source"),
            "note": record.text("note", ""),
        },
    )


def by_figures(text: str, gpus: tuple[Gpu, ...]) -> Gpu:
    """`custom:capability=8.9,memory=24GiB`: a card of NVIDIA's that the catalogue does not have. Raises BadInput."""
    told = dict(part.partition("=")[::2] for part in text.removeprefix("custom:").split(",") if part.strip())
    told = {key.strip(): value.strip() for key, value in told.items()}
    how = "write it as custom:capability=8.9,memory=24GiB, with multiprocessors=128 if you know them"
    unknown = sorted(set(told) - {"capability", "memory", "multiprocessors"})
    if unknown or not {"capability", "memory"} <= set(told):
        what = f"{unknown[0]!r} is not a figure of a card" if unknown else "a card needs its capability and its memory"
        raise BadInput(f"{text}: {what}; {how}.")
    capability = re.fullmatch(r"([0-9]{1,2})\.([0-9])", told["capability"])
    known = sorted({gpu.compute_capability for gpu in gpus})
    if capability is None or (int(capability[1]), int(capability[2])) not in known:
        listed = ", ".join("{}.{}".format(*one) for one in known)
        raise BadInput(f"{text}: nothing is known of the capability {told['capability']!r}; there are {listed}.")
    if not told.get("multiprocessors", "1").isdecimal() or int(told.get("multiprocessors", "1")) < 1:
        raise BadInput(f"{text}: multiprocessors must be a whole number; {how}.")
    total = parse_bytes(told["memory"])
    kin = [gpu for gpu in gpus if gpu.compute_capability == (int(capability[1]), int(capability[2]))]
    like = min(kin, key=lambda gpu: (abs(gpu.total_memory - total), gpu.name))
    return dataclasses.replace(
        like,
        name=text,
        driver_name=text,
        aliases=(),
        family="",
        multiprocessors=int(told.get("multiprocessors", like.multiprocessors)),
        memory_gib=total / GiB,
        total_memory=total,
        total_memory_source="given",
        source="the figures that were asked for",
        note=f"A card by its figures; in all else taken to be like an {like.driver_name}.",
    )
