"""What is known of NCCL's buffers (`nccl.json`): their sizes, its releases, and how servers connect their GPUs."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from enum import Enum

from ..units import KiB
from .gpus import Gpu, all_gpus
from .records import Record, read_records

__all__ = ["BufferSizes", "Buffers", "Channels", "NcclData", "Release", "Server", "nccl_data"]

FILE = "nccl.json"
_Version = tuple[int, int]


class Buffers(Enum):
    """Who of two neighbours on a node has the buffer of the protocol for large messages."""

    AT_RECEIVER = "at the receiver"
    AT_SENDER = "read from the sender"
    ON_HOST = "on the host"
    """No GPU: what cannot read the other's memory goes through shared memory of the host, all protocols of it."""


@dataclass(frozen=True)
class BufferSizes:
    """Bytes of a connection's buffers, by protocol, and what else decides how much is allocated."""

    ll: int
    ll128: int
    simple: int
    control: int
    granularity: int
    """What each buffer that another process maps is rounded up to."""
    steps: int
    shared_steps: int
    nvlink_chunk: int
    """Of what send and receive move at once, where all GPUs of a communicator are connected by NVLink."""
    other_chunk: int
    source: str


@dataclass(frozen=True)
class Release:
    """What changed with a release of NCCL."""

    first: _Version
    connects_when_used: bool
    """Whether rings, trees and multicast get their buffers with the first collective that uses them."""
    nvlink_pool: bool
    """Whether the pool of send and receive over the network has the larger chunks of NVLink on one node."""
    multicast_unit: int
    """Bytes for each channel, direction and GPU of a multicast (NVLS)."""
    source: str


@dataclass(frozen=True)
class Channels:
    """Of a communicator: the least, the usual and the most that were seen."""

    low: int
    typical: int
    high: int
    to_a_peer: int
    """Used by send and receive between two of its GPUs."""
    multicast: int


@dataclass(frozen=True)
class Server:
    """How GPUs of a kind are usually connected."""

    name: str
    gpus: tuple[str, ...]
    capabilities: tuple[str, ...]
    """For GPUs that are in no catalogue; `*`: for all that no other server has."""
    driver_names: tuple[str, ...]
    buffers: Buffers
    nvlink: bool
    rdma: bool
    """Whether the network reads and writes the GPU's memory by itself."""
    on_a_node: Channels
    on_nodes: Channels
    one_of_each_node: tuple[int, int, int]
    """Channels where each node has one GPU of the communicator."""
    source: str


@dataclass(frozen=True)
class NcclData:
    """The whole file."""

    sizes: BufferSizes
    releases: tuple[Release, ...]
    of_torch: tuple[tuple[_Version, _Version], ...]
    servers: tuple[Server, ...]

    def release(self, version: _Version) -> Release:
        return next((one for one in reversed(self.releases) if one.first <= version), self.releases[0])

    def version_of_torch(self, torch: _Version) -> _Version:
        """The one that torch's wheels bring or ask for."""
        return next((nccl for first, nccl in reversed(self.of_torch) if first <= torch), self.of_torch[0][1])

    @property
    def newest(self) -> _Version:
        return self.of_torch[-1][1]

    def server(self, gpu: Gpu) -> Server:
        named = [server for server in self.servers if gpu.name in server.gpus]
        named += [server for server in self.servers if any(word in gpu.driver_name for word in server.driver_names)]
        if not named and gpu.name not in {known.name for known in all_gpus()}:
            capability = "{}.{}".format(*gpu.compute_capability)
            named += [server for server in self.servers if capability in server.capabilities]
        return (named or [server for server in self.servers if "*" in server.capabilities])[0]


@functools.cache
def nccl_data() -> NcclData:
    top = read_records(FILE, schema=1)
    top.only("schema", "buffers", "releases", "of_torch", "servers")
    data = NcclData(
        sizes=_sizes(top.record("buffers")),
        releases=tuple(_release(record) for record in _records(top, "releases")),
        of_torch=tuple(_torch(record) for record in _records(top, "of_torch")),
        servers=tuple(_server(record) for record in _records(top, "servers")),
    )
    for name, firsts in (
        ("releases", [one.first for one in data.releases]),
        ("of_torch", [a for a, _ in data.of_torch]),
    ):
        if firsts != sorted(set(firsts)):
            raise top.error(f"{name!r} must be in order, each version once")
    unknown = {name for server in data.servers for name in server.gpus} - {gpu.name for gpu in all_gpus()}
    if unknown:
        raise top.error(f"there is no GPU {min(unknown)!r}")
    if sum("*" in server.capabilities for server in data.servers) != 1:
        raise top.error("one server must stand for all other GPUs")
    return data


def _records(top: Record, key: str) -> list[Record]:
    listed = top.fields.get(key)
    if not isinstance(listed, list) or not listed:
        raise top.error(f"{key!r} must be a list")
    return [Record(top.file, f"{key}, entry {number}", entry) for number, entry in enumerate(listed, 1)]


def _sizes(record: Record) -> BufferSizes:
    kib = ("ll", "ll128", "simple", "control", "granularity", "nvlink_chunk", "other_chunk")
    record.only(*(f"{name}_kib" for name in kib), "steps", "shared_steps", "source")
    return BufferSizes(
        **{name: record.integer(f"{name}_kib") * KiB for name in kib},
        steps=record.integer("steps"),
        shared_steps=record.integer("shared_steps"),
        source=_source(record),
    )


def _release(record: Record) -> Release:
    record.only("first", "connects_when_used", "nvlink_pool", "multicast_kib", "source")
    return Release(
        first=_version(record, "first"),
        connects_when_used=record.flag("connects_when_used"),
        nvlink_pool=record.flag("nvlink_pool"),
        multicast_unit=record.integer("multicast_kib", minimum=0) * KiB,
        source=_source(record),
    )


def _torch(record: Record) -> tuple[_Version, _Version]:
    record.only("first", "nccl", "source")
    _source(record)
    return _version(record, "first"), _version(record, "nccl")


def _server(record: Record) -> Server:
    record.only("name", "gpus", "capabilities", "driver_names", "buffers", "nvlink", "rdma", "node", "nodes",
                "one_of_each_node", "source")  # fmt: skip
    buffers = record.text("buffers")
    if buffers not in {one.value for one in Buffers}:
        raise record.error(f"'buffers' cannot be {buffers!r}")
    return Server(
        name=record.text("name"),
        gpus=record.texts("gpus"),
        capabilities=record.texts("capabilities"),
        driver_names=record.texts("driver_names"),
        buffers=Buffers(buffers),
        nvlink=record.flag("nvlink"),
        rdma=record.flag("rdma"),
        on_a_node=_channels(record.record("node")),
        on_nodes=_channels(record.record("nodes")),
        one_of_each_node=_range(record, "one_of_each_node"),
        source=_source(record),
    )


def _channels(record: Record) -> Channels:
    record.only("channels", "to_a_peer", "multicast")
    return Channels(
        *_range(record, "channels"),
        to_a_peer=record.integer("to_a_peer"),
        multicast=record.integer("multicast", minimum=0),
    )


def _range(record: Record, key: str) -> tuple[int, int, int]:
    figures = record.fields.get(key)
    if not isinstance(figures, list) or len(figures) != 3 or not all(isinstance(figure, int) for figure in figures):
        raise record.error(f"{key!r} must be three whole numbers")
    low, typical, high = figures
    if not 0 < low <= typical <= high:
        raise record.error(f"{key!r} must be the least, the usual and the most")
    return low, typical, high


def _source(record: Record) -> str:
    source = record.text("source")
    if not source:
        raise record.error("a figure needs its source")
    return source


def _version(record: Record, key: str) -> _Version:
    match = re.fullmatch(r"([0-9]+)\.([0-9]+)", record.text(key))
    if match is None:
        raise record.error(f'{key!r} must be like "2.27"')
    return int(match.group(1)), int(match.group(2))
