"""Which groups of ranks exchanged tensors on their GPUs: for each of them NCCL has a communicator with its buffers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from ...devices import Exchange
from ...trace import Communicator

__all__ = ["GroupsInUse"]

_LARGE = 1 << 20
"""Bytes from which an all-reduce counts as large."""


@dataclass
class _Group:
    size: int
    node_of: tuple[int, ...]
    """By the rank within the group."""
    own: int
    """The node of this rank."""
    exchanges: set[Exchange] = field(default_factory=set)
    peers: set[int] = field(default_factory=set)


class GroupsInUse:
    """Told every collective and message; knows the communicators at the end."""

    def __init__(self) -> None:
        self.gpus_per_node = 0
        """0: there is one GPU, and nobody to talk to."""
        self._groups: dict[str, _Group | None] = {}

    def exchange(self, group: Any, what: Exchange, nbytes: int = 0, peers: Iterable[int] = ()) -> None:
        """`group`: a process group; `peers`: whom messages go to or come from, as the group counts its ranks."""
        if not self.gpus_per_node:
            return
        known = self._known(group)
        if known is None:
            return
        known.exchanges.add(Exchange.LARGE_SUMS if what is Exchange.SUMS and nbytes >= _LARGE else what)
        known.peers.update(peer for peer in peers if 0 <= peer < known.size)

    def _known(self, group: Any) -> _Group | None:
        name = group.group_name
        if name not in self._groups:
            ranks = dist.get_process_group_ranks(group)
            nodes = tuple(rank // self.gpus_per_node for rank in ranks)
            here = dist.get_rank() // self.gpus_per_node
            self._groups[name] = _Group(len(ranks), nodes, here) if len(ranks) > 1 else None
        return self._groups[name]

    def communicators(self) -> tuple[Communicator, ...]:
        return tuple(
            Communicator(
                group.size,
                len(set(group.node_of)),
                tuple(one.value for one in Exchange if one in group.exchanges),
                sum(group.node_of[peer] == group.own for peer in group.peers),
            )
            for group in self._groups.values()
            if group is not None
        )
