"""The GPUs that XLA compiles for, described to it; none of them is there.

In a job for several GPUs `jax.devices()` and its kin name these, so that a mesh is made of them as on the machine that
the job is meant for. Nothing can be put on them: arguments are described by shape and sharding.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import jax
from jax.experimental import topologies

from ...devices import Gpu
from ..explain import first_sentence
from ..stderr import silenced
from .plan import NotAsked

__all__ = ["describe", "in_place_of_devices", "mesh_devices"]

PLUGINS = ("jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13")


def mesh_devices(gpu: Gpu, devices: int) -> Sequence[Any] | NotAsked:
    """So many GPUs that can be compiled for, and nothing else."""
    if not any(_has(plugin) for plugin in PLUGINS):
        return NotAsked("XLA's compiler for GPUs is not installed (pip install 'oomcast[jax-gpu]')")
    if gpu.compute_capability < (6, 0):
        return NotAsked(f"XLA has no compiler for {gpu.name}")
    try:
        with silenced():
            topology = topologies.get_topology_desc(
                platform="cuda", target_config=describe(gpu), topology=f"1x1x{devices}"
            )
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return NotAsked(f"XLA's compiler for GPUs does not start ({first_sentence(error)})")
    return list(topology.devices)


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


_FLOATS_PER_CORE = {(6, 0): 64, (7, 0): 64, (7, 5): 64, (8, 0): 64}
"""Units for fp32 in a multiprocessor; 128 in all others (CUDA's programming guide, arithmetic throughput)."""


def describe(gpu: Gpu, cuda: tuple[int, int] = (12, 8), cudnn: tuple[int, int] = (9, 10)) -> str:
    """The GPU as XLA's `GpuTargetConfigProto` wants it."""
    major, minor = gpu.compute_capability
    info = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 49152,
        "shared_memory_per_core": gpu.shared_memory_per_block_optin + gpu.reserved_shared_memory_per_block,
        "threads_per_core_limit": gpu.max_threads_per_multiprocessor,
        "core_count": gpu.multiprocessors,
        "fpus_per_core": _FLOATS_PER_CORE.get(gpu.compute_capability, 128),
        "block_dim_limit_x": 2147483647,
        "block_dim_limit_y": 65535,
        "block_dim_limit_z": 65535,
        "memory_bandwidth": gpu.memory_bandwidth,
        "l2_cache_size": gpu.l2_cache,
        "clock_rate_ghz": gpu.sm_clock_khz / 1e6,
        "device_memory_size": gpu.total_memory,
        "shared_memory_per_block_optin": gpu.shared_memory_per_block_optin,
        "registers_per_core_limit": gpu.registers_per_multiprocessor,
        "registers_per_block_limit": 65536,
    }
    fields = " ".join(f"{name}: {value}" for name, value in info.items())
    return (
        f"gpu_device_info {{ {fields} cuda_compute_capability {{ major: {major} minor: {minor} }} }}\n"
        f'platform_name: "CUDA"\n'
        f"dnn_version_info {{ major: {cudnn[0]} minor: {cudnn[1]} }}\n"
        f"runtime_version {{ major: {cuda[0]} minor: {cuda[1]} }}\n"
        f'device_description_str: "{gpu.driver_name}"\n'
    )


@contextlib.contextmanager
def in_place_of_devices(devices: Sequence[Any]) -> Iterator[None]:
    """As long as it lasts, JAX says that the machine has these."""

    def listed(backend: Any = None, *_: Any, **__: Any) -> list[Any]:
        return list(devices)

    def counted(backend: Any = None) -> int:
        return len(devices)

    make_mesh = jax.make_mesh

    @functools.wraps(make_mesh)
    def mesh_of_these(*arguments: Any, **options: Any) -> Any:
        return make_mesh(*arguments, **{"devices": list(devices), **options})

    with contextlib.ExitStack() as stack:
        for name, stand_in in (
            ("devices", listed),
            ("local_devices", listed),
            ("device_count", counted),
            ("local_device_count", counted),
            ("make_mesh", mesh_of_these),
        ):
            stack.enter_context(mock.patch.object(jax, name, stand_in))
        yield
