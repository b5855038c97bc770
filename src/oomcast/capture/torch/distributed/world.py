"""A process that stands for one rank of many: what its launcher set, and a process group in which nobody else is.

Everything that a rank asks of the others is answered from what it holds itself. Where that cannot be (an object that
another rank sends), the job ends with a sentence that says which rank it waits for, never with a hang.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ....devices import nccl_version
from ....errors import BadInput
from ..devices import DEVICES
from ..machine import VirtualGpu
from ..operators import RULES
from ..patches import Patches
from .collectives import COLLECTIVES, telling_sums
from .sharding import install_quick_sharding
from .stage_forms import install_stage_forms
from .symmetric_memory import install_symmetric_memory

__all__ = ["Membership", "World", "join_world"]

_BACKEND = "fake"
"""torch's own process group without communication; the module below registers it."""
_NCCL_PATCH = 3
"""The last part of NCCL's version, which nothing depends on."""
_FAKE = "torch.testing._internal.distributed.fake_pg"


@dataclass(frozen=True)
class World:
    """Which rank this process is, of how many, on how many to a node."""

    size: int
    rank: int = 0
    gpus_per_node: int = 8

    @property
    def local_rank(self) -> int:
        return self.rank % self.gpus_per_node

    @property
    def nodes(self) -> int:
        return -(-self.size // self.gpus_per_node)

    def environment(self) -> dict[str, str]:
        """What torchrun sets for its processes, and what Slurm's and MPI's launchers are asked for instead."""
        local = min(self.gpus_per_node, self.size)
        node = self.rank // self.gpus_per_node
        values = {
            "RANK": self.rank,
            "WORLD_SIZE": self.size,
            "LOCAL_RANK": self.local_rank,
            "LOCAL_WORLD_SIZE": local,
            "GROUP_RANK": node,
            "GROUP_WORLD_SIZE": self.nodes,
            "NODE_RANK": node,
            "ROLE_RANK": self.rank,
            "ROLE_WORLD_SIZE": self.size,
            "ROLE_NAME": "default",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": 29500,
            "TORCHELASTIC_RUN_ID": "oomcast",
            "TORCHELASTIC_RESTART_COUNT": 0,
            "TORCHELASTIC_MAX_RESTARTS": 0,
        }
        return {name: str(value) for name, value in values.items()}


class Membership:
    """Whether the code that runs in a world has made itself a rank of it."""

    joined = False


@contextlib.contextmanager
def join_world(virtual: VirtualGpu, world: World) -> Iterator[Membership]:
    """Within a `virtual_gpu`: `torch.distributed` as a rank of that world sees it, without the other ranks."""
    if not dist.is_available():
        raise BadInput("this build of torch has no torch.distributed; install one that has, to look at several GPUs.")
    importlib.import_module(_FAKE)
    with Patches() as patches, contextlib.ExitStack() as contexts:
        if world.size > 1:  # a process alone may have no launcher, which scripts see by these variables
            contexts.enter_context(_environment(world.environment()))
        contexts.callback(_leave_group)
        contexts.enter_context(_rules())
        contexts.enter_context(DEVICES.visible(min(world.gpus_per_node, world.size)))
        virtual.recorder.groups.gpus_per_node = world.gpus_per_node if world.size > 1 else 0
        membership = Membership()
        _install_group(patches, world, membership, nccl_version(virtual.stack))
        _install_objects(patches, world)
        install_quick_sharding(patches)
        install_symmetric_memory(patches, virtual.ledger.assume)
        install_stage_forms(patches, world.rank, virtual.ledger.assume)
        yield membership


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _rules() -> Iterator[None]:
    RULES.update(COLLECTIVES)
    try:
        yield
    finally:
        for operator in COLLECTIVES:
            RULES.pop(operator, None)


def _leave_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _install_group(patches: Patches, world: World, membership: Membership, nccl: tuple[int, int]) -> None:
    start, helper = c10d.init_process_group, c10d._new_process_group_helper
    stores: list[_Store] = []

    def init_process_group(
        backend: str | None = None, init_method: str | None = None, *args: Any, **options: Any
    ) -> None:
        asked = options.get("world_size", args[1] if len(args) > 1 else -1)
        if asked not in (-1, None, world.size):
            raise BadInput(
                f"the job asks for a process group of {asked} ranks, but the device has {world.size} GPUs; "
                f"name {asked} GPUs, or let the job take WORLD_SIZE."
            )
        # torch keeps the C++ half alone: without a reference from here, the Python half that answers would be gone.
        stores.append(_Store(world.rank))
        membership.joined = True
        start(_BACKEND, store=stores[-1], rank=world.rank, world_size=world.size)

    def new_helper(size: int, rank: int, ranks: Any, backend: Any, *args: Any, **options: Any) -> Any:
        options = {**options, "backend_options": None} if "backend_options" in options else options
        return helper(size, rank, ranks, _BACKEND, *args, **options)

    _set_everywhere(patches, "init_process_group", init_process_group)
    patches.set(c10d, "_new_process_group_helper", new_helper)
    _set_everywhere(patches, "get_backend", lambda group=None: "nccl")
    _set_everywhere(patches, "is_nccl_available", lambda: True)
    patches.set(torch.cuda.nccl, "version", lambda: (*nccl, _NCCL_PATCH))
    patches.set(dist, "TCPStore", lambda *args, **options: _Store(world.rank))
    _set_everywhere(patches, "monitored_barrier", lambda *args, **options: None)
    _set_everywhere(patches, "all_reduce", telling_sums(c10d.all_reduce))
    _set_everywhere(patches, "barrier", lambda *args, **options: None)
    # What DDP compares between the processes is the same by construction, and it reads data for it.
    _set_everywhere(patches, "_verify_params_across_processes", lambda *args, **options: None)


def _set_everywhere(patches: Patches, name: str, value: Any) -> None:
    """Also in the modules of torch that have it under their own name: a device mesh joins the group by itself."""
    original = getattr(c10d, name, None) or getattr(dist, name, None)
    for path, module in tuple(sys.modules.items()):
        if path.startswith("torch.distributed") and original is not None and vars(module).get(name) is original:
            patches.set(module, name, value)


def _install_objects(patches: Patches, world: World) -> None:
    """Objects go between ranks as pickles in tensors, which hold nothing here: they are handed over as they are."""

    def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
        object_list[:] = [obj] * len(object_list)

    def gather_object(obj: Any, object_gather_list: Any = None, *args: Any, **options: Any) -> None:
        if object_gather_list is not None:
            object_gather_list[:] = [obj] * len(object_gather_list)

    def broadcast_object_list(
        object_list: list[Any], src: Any = None, group: Any = None, *args: Any, **options: Any
    ) -> None:
        source = _sender(src, options, group)
        if source != world.rank:
            raise _waits(world.rank, "an object", source, "broadcast_object_list")

    def scatter_object_list(
        output: list[Any], objects: Any = None, src: Any = None, group: Any = None, **options: Any
    ) -> None:
        source = _sender(src, options, group)
        if source != world.rank:
            raise _waits(world.rank, "an object", source, "scatter_object_list")
        output[0] = objects[dist.get_rank(group)]

    def recv_object_list(object_list: list[Any], src: Any = None, *args: Any, **options: Any) -> int:
        raise _waits(world.rank, "an object", src, "recv_object_list")

    for function in (all_gather_object, gather_object, broadcast_object_list, scatter_object_list, recv_object_list):
        _set_everywhere(patches, function.__name__, function)
    _set_everywhere(patches, "send_object_list", lambda *args, **options: None)


def _sender(src: Any, options: dict[str, Any], group: Any) -> int:
    if src is not None:
        return int(src)
    return (
        dist.get_global_rank(group, int(options.get("group_src") or 0)) if group else int(options.get("group_src") or 0)
    )


def _waits(rank: int, what: str, source: Any, call: str) -> BadInput:
    whose = "another rank" if source is None else f"rank {source}"
    return BadInput(
        f"rank {rank} waits in {call} for {what} of {whose}, which does not run here; look at that rank with --rank, "
        "or let each rank make it itself."
    )


class _Store(dist.Store):  # type: ignore[name-defined]
    """What this rank itself has put there; what another rank would have put is not waited for."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self._rank = rank
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: Any) -> None:
        self._values[key] = value.encode() if isinstance(value, str) else bytes(value)

    def get(self, key: str) -> bytes:
        self._must_have((key,))
        return self._values[key]

    def add(self, key: str, number: int) -> int:
        total = int(self._values.get(key, b"0")) + number
        self._values[key] = str(total).encode()
        return total

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        wanted = expected.encode() if isinstance(expected, str) else bytes(expected)
        if self._values.get(key, b"") == wanted:
            self.set(key, desired)
        return self._values.get(key, wanted)

    def delete_key(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._values)

    def check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def wait(self, keys: list[str], timeout: Any = None) -> None:
        self._must_have(keys)

    def set_timeout(self, timeout: Any) -> None: ...

    def _must_have(self, keys: Any) -> None:
        for key in keys:
            if key not in self._values:
                raise _waits(self._rank, f"the entry {key!r} of the store", None, "Store.get")
