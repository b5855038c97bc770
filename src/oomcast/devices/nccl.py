"""What NCCL takes from a GPU beside torch's allocator: buffers for every connection of every communicator.

The sizes follow from NCCL's source, the number of channels from logs and measurements (`nccl.json`). A communicator
has so many channels; in each, a GPU is connected

- by a ring with the next and the previous one,
- by trees, which on one node are a chain: a GPU within it sends back to the one before, too,
- by send and receive with whom it exchanges messages; an all-to-all is one with every other GPU of the communicator.

A connection to a GPU of the same node has a part at the sender and one at the receiver, rounded up to 2 MiB: together
12 MiB. On Hopper and later a multicast (NVLS) has buffers for each GPU of the node. Before 2.22 rings, trees, multicast
and a pool for send and receive over the network are made with the communicator; since then when they are used first.

Not counted: NCCL's kernels, and a few MiB of lists of each communicator.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ..units import MiB
from .gpus import Gpu
from .nccl_data import Buffers, BufferSizes, Channels, Release, Server, nccl_data
from .stacks import Stack

__all__ = ["NCCL_VARIABLES", "Exchange", "NcclFigure", "RankGroup", "nccl_figure", "nccl_in_words", "nccl_version"]


class Exchange(str, Enum):
    """What the ranks of a group do together, as far as it decides which of them are connected."""

    SHARDS = "shards"
    """All-gather, reduce-scatter, broadcast, reduce: a ring."""
    SUMS = "sums"
    """All-reduce: a ring, and trees for small messages."""
    LARGE_SUMS = "large sums"
    """All-reduce of a MiB and more: multicast where there is one."""
    NEIGHBOURS = "neighbours"
    """Send and receive."""
    PAIRS = "pairs"
    """All-to-all."""


class RankGroup(NamedTuple):
    """Ranks that have a communicator, as one of them sees it."""

    size: int
    nodes: int = 1
    """How many nodes they are on."""
    exchanges: frozenset[Exchange] = frozenset((Exchange.SHARDS, Exchange.SUMS))
    near_peers: int = 0
    """Ranks of its own node that it sends messages to or receives them from, one by one."""

    @property
    def on_a_node(self) -> int:
        return -(-self.size // self.nodes)


@dataclass(frozen=True)
class NcclFigure:
    """Bytes: the least, the usual and the most."""

    low: int = 0
    typical: int = 0
    high: int = 0

    def __add__(self, other: NcclFigure) -> NcclFigure:
        return NcclFigure(self.low + other.low, self.typical + other.typical, self.high + other.high)


def nccl_version(stack: Stack) -> tuple[int, int]:
    """The release under a software stack; for other frameworks than torch the newest."""
    data = nccl_data()
    return data.version_of_torch(stack.version) if stack.framework == "torch" else data.newest


def nccl_figure(
    gpu: Gpu, version: tuple[int, int], groups: Iterable[RankGroup], variables: Mapping[str, str] | None = None
) -> NcclFigure:
    """Of all communicators of a process on GPUs of this kind, as their servers usually connect them.

    `variables` are those of `NCCL_VARIABLES` that hold in the process.
    """
    data = nccl_data()
    buffers = _Buffers.of(data.server(gpu), data.release(version), data.sizes, _Settings.read(variables or {}))
    return sum((buffers.figure(group) for group in groups if group.size > 1), NcclFigure())


NCCL_VARIABLES = ("NCCL_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE", "NCCL_MIN_NCHANNELS",
                  "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_MIN_P2P_NCHANNELS",
                  "NCCL_MAX_P2P_NCHANNELS", "NCCL_NVLS_ENABLE", "NCCL_NVLS_NCHANNELS", "NCCL_RUNTIME_CONNECT",
                  "NCCL_CUMEM_ENABLE", "NCCL_P2P_DISABLE", "NCCL_ALGO")  # fmt: skip
"""Those that decide the size or the number of buffers, and that are followed."""


@dataclass(frozen=True)
class _Settings:
    """What the variables say; None: nothing."""

    numbers: Mapping[str, int]
    algorithms: frozenset[str] | None

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> _Settings:
        numbers = {
            name.removeprefix("NCCL_"): int(text)
            for name, text in variables.items()
            if name in NCCL_VARIABLES and re.fullmatch(r"\s*\d{1,12}\s*", text)
        }
        listed = variables.get("NCCL_ALGO", "").lower()
        # `^tree`: all but these; `allreduce:tree;…`: for some collectives only. Neither forbids a whole algorithm here.
        plain = re.fullmatch(r"[a-z0-9]+(,[a-z0-9]+)*", listed.replace(" ", ""))
        return cls(numbers, frozenset(listed.replace(" ", "").split(",")) if plain else None)

    def allows(self, algorithm: str) -> bool:
        return self.algorithms is None or algorithm in self.algorithms

    def switched_off(self, name: str) -> bool:
        return self.numbers.get(name) == 0

    def limited(self, channels: int) -> int:
        """As NCCL does it: the most first, then the least, by copies of the channels that there are."""
        for name in ("MAX_NCHANNELS", "MAX_CTAS"):
            channels = min(channels, max(self.numbers.get(name, channels), 1))
        return max(channels, self.numbers.get("MIN_NCHANNELS", 0), self.numbers.get("MIN_CTAS", 0))


@dataclass(frozen=True)
class _Buffers:
    server: Server
    release: Release
    sizes: BufferSizes
    settings: _Settings

    @classmethod
    def of(cls, server: Server, release: Release, sizes: BufferSizes, settings: _Settings) -> _Buffers:
        return cls(server, release, sizes, settings)

    def figure(self, group: RankGroup) -> NcclFigure:
        channels = self._channels(group)
        if self.server.buffers is Buffers.AT_RECEIVER and not self.server.nvlink and group.on_a_node > 1:
            # Behind another CPU even these go through the host.
            low = 0
        else:
            low = self._total(group, channels, channels.low, least=True)
        at_most = self
        if self.server.buffers is Buffers.ON_HOST:
            # A bridge, or a changed driver, lets even these read each other's memory.
            at_most = dataclasses.replace(self, server=dataclasses.replace(self.server, buffers=Buffers.AT_RECEIVER))
        typical, high = channels.typical, channels.high
        return NcclFigure(low, self._total(group, channels, typical), at_most._total(group, channels, high, most=True))

    def _channels(self, group: RankGroup) -> Channels:
        found = self.server.on_a_node if group.nodes == 1 else self.server.on_nodes
        figures = (found.low, found.typical, found.high)
        if group.nodes > 1 and group.on_a_node == 1:
            figures = self.server.one_of_each_node
        low, typical, high = map(self.settings.limited, figures)
        multicast = self.settings.numbers.get("NVLS_NCHANNELS", found.multicast) if found.multicast else 0
        return Channels(low, typical, high, found.to_a_peer, self.settings.limited(multicast) if multicast else 0)

    def _total(
        self, group: RankGroup, channels: Channels, count: int, *, least: bool = False, most: bool = False
    ) -> int:
        """With so many channels. `least`: at the end of a chain, without what is not sure to be used; `most`: with
        all that may be."""
        done, at_start = group.exchanges, not self._waits_for_use
        collective = bool(done & {Exchange.SHARDS, Exchange.SUMS, Exchange.LARGE_SUMS})
        sums = bool(done & {Exchange.SUMS, Exchange.LARGE_SUMS})
        total = 0
        if at_start or collective:
            total += self._ring(group, count)
        if self.settings.allows("tree") and (at_start or (collective if most else sums and not least)):
            total += self._trees(group, count, least=least, most=most)
        large = Exchange.LARGE_SUMS in done
        if self._has_multicast(group) and (at_start or (collective if most else large and not least)):
            total += channels.multicast * 2 * group.on_a_node * self.release.multicast_unit
        total += self._messages(group, channels, count)
        far = group.nodes > 1 and bool(done & {Exchange.NEIGHBOURS, Exchange.PAIRS})
        if at_start or (far and self.server.rdma):
            total += self._pool(group, count)
        return total

    @property
    def _waits_for_use(self) -> bool:
        off = self.settings.switched_off
        return self.release.connects_when_used and not off("RUNTIME_CONNECT") and not off("CUMEM_ENABLE")

    @property
    def _simple(self) -> int:
        return self.settings.numbers.get("BUFFSIZE", self.sizes.simple)

    @property
    def _small(self) -> int:
        """Of the protocols for small messages."""
        return self._ll + self.settings.numbers.get("LL128_BUFFSIZE", self.sizes.ll128)

    @property
    def _ll(self) -> int:
        return self.settings.numbers.get("LL_BUFFSIZE", self.sizes.ll)

    def _rounded(self, size: int) -> int:
        return -(-size // self.sizes.granularity) * self.sizes.granularity

    @property
    def _sending(self) -> int:
        """At the sender, towards a GPU of the same node."""
        if self._is_on_host:
            return 0
        own = self._simple if self.server.buffers is Buffers.AT_SENDER else 0
        return self._rounded(self.sizes.control + own)

    @property
    def _receiving(self) -> int:
        if self._is_on_host:
            return 0
        own = 0 if self.server.buffers is Buffers.AT_SENDER else self._simple
        return self._rounded(self.sizes.control + self._small + own)

    @property
    def _is_on_host(self) -> bool:
        return self.server.buffers is Buffers.ON_HOST or self.settings.numbers.get("P2P_DISABLE", 0) > 0

    @property
    def _near(self) -> int:
        """Both directions of a connection to a GPU of the same node."""
        return self._sending + self._receiving

    @property
    def _far(self) -> int:
        """Both directions of a collective's connection to another node; small messages are sent from the host."""
        if not self.server.rdma:
            return 0
        return self._rounded(self._small - self._ll + self._simple) + self._rounded(self._small + self._simple)

    def _ring(self, group: RankGroup, count: int) -> int:
        if group.nodes == 1:
            return count * self._near
        if group.on_a_node == 1:
            return count * self._far
        # In each channel, one GPU of a node sends to the next node, and one receives from the node before.
        return count * self._near + -(-count // group.on_a_node) * max(self._far - self._near, 0)

    def _trees(self, group: RankGroup, count: int, *, least: bool, most: bool) -> int:
        """Beyond the ring: back along the chain of a node, and the trees between nodes."""
        within = 0
        if group.on_a_node > 2:
            within = count * (self._receiving if least else self._near)
        if group.nodes == 1 or (group.nodes == 2 and group.on_a_node == 1):
            return within
        neighbours = 1 if group.nodes == 2 else (3 if most else 2)
        return within + -(-count // group.on_a_node) * neighbours * self._far

    def _has_multicast(self, group: RankGroup) -> bool:
        usable = self.settings.allows("nvls") or self.settings.allows("nvlstree")
        first = self.release.first
        on_nodes = group.nodes == 1 or first >= (2, 21)
        return group.on_a_node > 2 and on_nodes and usable and not self.settings.switched_off("NVLS_ENABLE")

    def _messages(self, group: RankGroup, channels: Channels, count: int) -> int:
        peers = group.near_peers
        if Exchange.PAIRS in group.exchanges:
            peers = group.on_a_node - 1
        return peers * min(channels.to_a_peer, self._message_channels(count)) * self._near

    def _message_channels(self, count: int) -> int:
        limit = self.settings.numbers
        count = max(min(count, limit.get("MAX_P2P_NCHANNELS", count)), limit.get("MIN_P2P_NCHANNELS", 1))
        return 1 << (count - 1).bit_length()

    def _pool(self, group: RankGroup, count: int) -> int:
        """Of messages over the network, for all peers together."""
        large = group.nodes == 1 and self.server.nvlink and self.release.nvlink_pool
        chunk = self.sizes.nvlink_chunk if large else self.sizes.other_chunk
        chunk = min(chunk, self._simple // self.sizes.steps)
        return self._message_channels(count) * self.sizes.shared_steps * chunk


def nccl_in_words(figure: NcclFigure, version: tuple[int, int]) -> str:
    """One sentence for those who read an answer."""
    takes = f"NCCL {version[0]}.{version[1]} takes {figure.typical // MiB} MiB for its buffers"
    if figure.low == figure.high:
        return takes
    between = f"{figure.low // MiB} to {figure.high // MiB} MiB"
    return f"{takes}, {between} by the channels that it finds on the machine and by the algorithms that it chooses"
