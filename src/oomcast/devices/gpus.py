"""The GPUs oomcast knows, as data (`gpus.json`), and how the names people write for them resolve.

Which figure is which, for one card, from the largest to the smallest:

- the box: 24 GB for an RTX 3090, as sold (`memory_gib`);
- what nvidia-smi prints as the total: 24576 MiB;
- what CUDA gives to programs, `torch.cuda.get_device_properties().total_memory` and the "total capacity" of torch's
  out-of-memory message: 23.56 GiB (`total_memory`). The driver keeps the difference for itself: page tables, firmware,
  on cards with GDDR memory also the check bits of ECC. Newer drivers keep more, so the smaller typical figure is taken;
- what one process can hold on an idle card, its CUDA context included: `usable_memory`, that is `total_memory` less
  `IDLE_RESERVE`. Torch's own messages show a full card with 2 to 20 MiB left that no segment fits into.

The rule holds for Linux without a display. A desktop takes 300 MiB to 1.5 GiB more from the card it draws on, and so
does Windows; there the driver reports nearly the whole box as total capacity and moves what does not fit to the
system's memory.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from ..errors import BadInput, UnknownName
from ..units import GiB, MiB, parse_bytes
from .other_makers import Maker, by_figures, read_others
from .records import Record, broken, read_records

__all__ = ["IDLE_RESERVE", "Gpu", "MemorySource", "all_gpus", "find_gpu", "other_gpus", "other_variants"]

FILE = "gpus.json"

IDLE_RESERVE = 16 * MiB
"""What stays free on a full card: too little for the segments of 20 MiB that torch's allocator takes it in."""

SMALLEST_CUSTOM = 256 * MiB

FIELDS = (
    "name",
    "driver_name",
    "aliases",
    "family",
    "compute_capability",
    "multiprocessors",
    "memory_gib",
    "total_memory",
    "total_memory_source",
    "source",
    "note",
    "ecc",
    "l2_cache",
    "sm_clock_khz",
    "memory_clock_khz",
    "memory_bus_bits",
)

MemorySource = Literal["reported", "derived", "given"]
"""`reported`: the figure was seen on a real card; `derived`: computed from like cards; `given`: the user said it."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as programs see it. Cards with several GPUs (K80, A16) are described by one of them."""

    name: str
    """The canonical name, `rtx-3090`."""
    driver_name: str
    """What the driver calls it, `NVIDIA GeForce RTX 3090`; variants by memory size may share it."""
    aliases: tuple[str, ...]
    family: str
    """The name that several memory sizes share, `a100`; "" if there is only one."""
    compute_capability: tuple[int, int]
    architecture: str
    multiprocessors: int
    memory_gib: float
    """As sold."""
    total_memory: int
    """Bytes that CUDA reports; see the module's text."""
    total_memory_source: MemorySource
    source: str
    """Where `total_memory` is from, or how it was derived."""
    note: str
    """What a user should know: other figures in use, several GPUs to a card, …; may be empty."""
    ecc: bool
    """Whether ECC is on by default and is paid for from the memory, as GDDR cards do; HBM brings its own bits."""
    shared_memory_per_block_optin: int
    reserved_shared_memory_per_block: int
    registers_per_multiprocessor: int
    max_threads_per_multiprocessor: int
    max_blocks_per_multiprocessor: int
    l2_cache: int
    sm_clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    """As in the makers' and sellers' data sheets."""
    maker: Maker | None = None
    """None: one of NVIDIA's cards. Else much is not known, and the fields above of the chip are those of another."""

    @property
    def memory_bandwidth(self) -> int:
        """Bytes a second: two transfers in each period of the clock that CUDA reports."""
        return 2 * self.memory_clock_khz * 1000 * self.memory_bus_bits // 8

    @property
    def sm(self) -> str:
        """The architecture as compilers write it: `sm_80`."""
        return "sm_{}{}".format(*self.compute_capability)

    @property
    def usable_memory(self) -> int:
        """Bytes that one process can hold on the idle card, its CUDA context included (Linux, no display)."""
        return self.total_memory - IDLE_RESERVE

    def cudnn_properties(self, driver_version: int = 12080) -> dict[str, int | str | list[int]]:
        """The keys of cuDNN's device-property descriptor, to be given as JSON; one that is missing is an error there.

        `driver_version` is the CUDA version of the driver that is pretended (12080 is CUDA 12.8).
        """
        major, minor = self.compute_capability
        return {
            "deviceVer": major * 100 + minor * 10,
            "multiProcessorCount": self.multiprocessors,
            "warpSize": 32,
            "maxSharedMemoryPerBlock": 49152,
            "maxSharedMemoryPerBlockOptin": self.shared_memory_per_block_optin,
            "reservedSharedMemoryPerBlock": self.reserved_shared_memory_per_block,
            "maxRegistersPerSM": self.registers_per_multiprocessor,
            "maxCtasPerSM": self.max_blocks_per_multiprocessor,
            "maxThreadsPerBlock": 1024,
            "maxThreadsPerSM": self.max_threads_per_multiprocessor,
            "regsPerBlock": 65536,
            "totalGlobalMem": self.total_memory,
            "smClockRateKHz": self.sm_clock_khz,
            "l2CacheSize": self.l2_cache,
            "maxBlockSize": [1024, 1024, 64],
            "memClockRateKHz": self.memory_clock_khz,
            "maxGridSize": [2147483647, 65535, 65535],
            "supportCoopLaunch": int(self.compute_capability >= (6, 0)),
            "pciDeviceId": 0,
            "isTccDriver": 0,
            "cudaDeviceId": 0,
            "driverVer": driver_version,
            "deviceName": self.driver_name,
        }


def find_gpu(name: str) -> Gpu:
    """The GPU of that name: canonical (`a100-40gb`), the driver's, or a usual short form (`A100`, `4090`, `rtx3090`).

    Case, spaces, dashes and underscores do not matter. A short form that stands for several memory sizes means the
    smallest; `other_variants` tells which others there are. A size with its unit (`24GiB`) makes an unnamed GPU of that
    total memory which is otherwise like an RTX 3090; `custom:capability=8.9,memory=24GiB` one of that architecture.
    Accelerators of other makers are found by name, too. Raises UnknownName, or BadInput for wrong figures.
    """
    catalogue = _catalogue()
    if name.strip().startswith("custom:"):
        return by_figures(name.strip(), catalogue.gpus)
    meant = _lookup(name, catalogue)
    if meant:
        return meant[0]
    other = _others().get(_key(name))
    if other is not None:
        return other
    custom = _custom(name, catalogue)
    if custom is not None:
        return custom
    hint = "`oomcast devices` lists them all."
    unknown = UnknownName("device", name, (*catalogue.names, *(gpu.name for gpu in other_gpus())), hint)
    raise unknown if unknown.near else UnknownName("device", name, catalogue.spellings, hint)


def other_variants(name: str) -> tuple[Gpu, ...]:
    """The GPUs that the same name may have meant too, apart from the one that `find_gpu` chose; mostly none."""
    return _lookup(name, _catalogue())[1:]


def all_gpus() -> tuple[Gpu, ...]:
    """All of the catalogue, by generation (compute capability), then by memory."""
    return _catalogue().gpus


def other_gpus() -> tuple[Gpu, ...]:
    """Accelerators of other makers, by maker, then as in the file."""
    return tuple(dict.fromkeys(_others().values()))


@functools.cache
def _others() -> Mapping[str, Gpu]:
    """By spelling. None may be that of a card of NVIDIA's."""
    catalogue = _catalogue()
    found: dict[str, Gpu] = {}
    for line in read_others():
        like = _lookup(line.like, catalogue)
        if not like:
            raise broken("other_makers.json", f"device {line.changes['name']!r}", f"there is no card {line.like!r}")
        gpu = line.as_gpu(like[0])
        for spelling in (gpu.name, gpu.driver_name, *gpu.aliases):
            key = _key(spelling)
            if key in catalogue.by_key or found.setdefault(key, gpu) is not gpu:
                raise broken("other_makers.json", f"device {gpu.name!r}", f"{spelling!r} is taken")
    return found


@dataclass(frozen=True)
class _Catalogue:
    gpus: tuple[Gpu, ...]
    by_key: Mapping[str, tuple[Gpu, ...]]
    """What each spelling may mean, smallest memory first."""
    names: tuple[str, ...]
    """Canonical and family names."""
    spellings: tuple[str, ...]
    """All names, as written in the file."""


@functools.cache
def _catalogue() -> _Catalogue:
    return _parse(read_records(FILE, schema=1))


def _parse(top: Record) -> _Catalogue:
    top.only("schema", "compute_capabilities", "families", "gpus")
    capabilities = top.record("compute_capabilities")
    families = top.record("families")
    listed = top.fields.get("gpus")
    if not isinstance(listed, list) or not listed:
        raise top.error("'gpus' must be a list")
    gpus = [_gpu(top.file, entry, capabilities) for entry in listed]
    _check(top.file, gpus, families)
    by_key: dict[str, tuple[Gpu, ...]] = {}
    by_memory = sorted(gpus, key=lambda gpu: gpu.memory_gib)  # stable: the file's order decides between equal sizes
    # Weakest claim first: a driver's name may be shared, a family's never is a canonical name, and names are unique.
    for gpu in by_memory:
        for spelling in _driver_spellings(gpu.driver_name):
            by_key[spelling] = (*by_key.get(spelling, ()), gpu)
    for family in families.fields:
        members = tuple(gpu for gpu in by_memory if gpu.family == family)
        for spelling in (family, *families.texts(family)):
            by_key[_key(spelling)] = members
    for gpu in gpus:
        for spelling in (gpu.name, *gpu.aliases):
            by_key[_key(spelling)] = (gpu,)
    ordered = sorted(gpus, key=lambda gpu: (gpu.compute_capability, gpu.memory_gib, gpu.total_memory, gpu.name))
    names = (*(gpu.name for gpu in ordered), *families.fields)
    others = [spelling for gpu in ordered for spelling in (*gpu.aliases, gpu.driver_name)]
    others += [spelling for family in families.fields for spelling in families.texts(family)]
    return _Catalogue(tuple(ordered), by_key, names, (*names, *others))


def _gpu(file: str, entry: object, capabilities: Record) -> Gpu:
    record = Record(file, "gpus", entry)
    record = Record(file, f"gpu {record.text('name')!r}", entry)
    record.only(*FIELDS)
    capability = record.text("compute_capability")
    if not re.fullmatch(r"[0-9]+\.[0-9]", capability):
        raise record.error("'compute_capability' must be like \"8.0\"")
    major, minor = capability.split(".")
    chip = capabilities.record(capability)
    memory_source = record.text("total_memory_source")
    if memory_source not in get_args(MemorySource):
        raise record.error("'total_memory_source' must be reported or derived")
    gpu = Gpu(
        name=record.text("name"),
        driver_name=record.text("driver_name"),
        aliases=record.texts("aliases"),
        family=record.text("family", ""),
        compute_capability=(int(major), int(minor)),
        architecture=chip.text("architecture"),
        multiprocessors=record.integer("multiprocessors"),
        memory_gib=record.integer("memory_gib"),
        total_memory=record.integer("total_memory"),
        total_memory_source=cast(MemorySource, memory_source),
        source=record.text("source"),
        note=record.text("note", ""),
        ecc=record.flag("ecc"),
        shared_memory_per_block_optin=chip.integer("shared_memory_per_block_optin"),
        reserved_shared_memory_per_block=chip.integer("reserved_shared_memory_per_block", minimum=0),
        registers_per_multiprocessor=chip.integer("registers_per_multiprocessor"),
        max_threads_per_multiprocessor=chip.integer("max_threads_per_multiprocessor"),
        max_blocks_per_multiprocessor=chip.integer("max_blocks_per_multiprocessor"),
        l2_cache=record.integer("l2_cache"),
        sm_clock_khz=record.integer("sm_clock_khz"),
        memory_clock_khz=record.integer("memory_clock_khz"),
        memory_bus_bits=record.integer("memory_bus_bits"),
    )
    if not gpu.memory_gib * GiB * 0.8 < gpu.total_memory <= gpu.memory_gib * GiB:
        raise record.error("'total_memory' does not go with 'memory_gib'")
    if not gpu.source:
        raise record.error("'source' is empty")
    return gpu


def _check(file: str, gpus: list[Gpu], families: Record) -> None:
    """No spelling may belong to two GPUs, else a lookup would depend on the order of the file."""
    owner: dict[str, str] = {}
    claims = [(spelling, gpu.name) for gpu in gpus for spelling in (gpu.name, *gpu.aliases)]
    claims += [
        (spelling, f"family {family}") for family in families.fields for spelling in (family, *families.texts(family))
    ]
    for spelling, claimant in claims:
        key = _key(spelling)
        if key in owner:
            raise broken(file, f"gpu {claimant!r}", f"{spelling!r} is taken by {owner[key]!r}")
        owner[key] = claimant
    for gpu in gpus:
        if gpu.family and gpu.family not in families.fields:
            raise broken(file, f"gpu {gpu.name!r}", f"there is no family {gpu.family!r}")
    for family in families.fields:
        if sum(gpu.family == family for gpu in gpus) < 2:
            raise broken(file, f"family {family!r}", "it needs two members")


def _key(spelling: str) -> str:
    """What is left of a name when its style of writing is taken away."""
    return re.sub(r"[^a-z0-9]", "", spelling.lower()).removeprefix("nvidia")


def _lookup(name: str, catalogue: _Catalogue) -> tuple[Gpu, ...]:
    """All that a name may mean, the chosen one first; nothing if it is unknown."""
    key = _key(name)
    meant = catalogue.by_key.get(key)
    if meant is not None:
        return meant
    # `a100-80g` and `rtx-3090-24gb`: a known name with its memory behind it. Not tried first: A10G has its own G.
    sized = re.fullmatch(r"(.+?)([0-9]+)g(?:i?b)?", key)
    if sized is None:
        return ()
    stem = sized.group(1) + sized.group(2)
    for digits in (1, 2, 3):
        variants = catalogue.by_key.get(stem[:-digits], ())
        wanted = tuple(gpu for gpu in variants if stem[-digits:] == f"{gpu.memory_gib:.0f}")
        if wanted:
            return wanted
    return ()


def _driver_spellings(driver_name: str) -> tuple[str, ...]:
    """The driver's name, and without the brand that people leave out (never Quadro: RTX 4000 is more than one card)."""
    full = _key(driver_name)
    return tuple(dict.fromkeys((full, full.removeprefix("geforce").removeprefix("tesla"))))


def _custom(name: str, catalogue: _Catalogue) -> Gpu | None:
    if not re.search(r"[0-9]\s*[A-Za-z]+\s*$", name):  # a bare number is a mistyped model, not bytes
        return None
    try:
        size = parse_bytes(name)
    except (BadInput, OverflowError):
        return None
    if size < SMALLEST_CUSTOM:
        return None
    like = catalogue.by_key["rtx3090"][0]
    return dataclasses.replace(
        like,
        name=name.strip(),
        driver_name=name.strip(),
        aliases=(),
        family="",
        memory_gib=size / GiB,
        total_memory=size,
        total_memory_source="given",
        source="the size that was asked for",
        note=f"Any GPU with {name.strip()} of total memory; in all else taken to be like an {like.driver_name}.",
    )
