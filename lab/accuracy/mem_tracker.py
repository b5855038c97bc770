"""torch's own MemTracker on the same jobs: the library itself runs, on fake CPU tensors, in a process of its own.

On fake `cuda` tensors it aborts on a machine without a GPU. So it sees the CPU's operators and optimizers, and neither
an allocator nor a context: that is what one gets from it without a GPU.

Of jobs that FSDP2 shards it is FSDPMemTracker, as torchtitan estimates its own runs (pytorch/torchtitan,
scripts/estimate/estimation.py: fake tensors, a fake process group, two steps of the job). What else spreads a job over
several GPUs it does not know, and is refused.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from oomcast.capture.job_process import Limits
from oomcast.capture.messages import Answer, ProcessEnded, TimeLimit
from oomcast.capture.processes import run_forked
from oomcast.spec import DataParallel, Parallel, Precision, Workload

__all__ = ["Tracked", "track"]

_TIME_LIMIT = 600.0
_STEPS = 2
"""The optimizer's state is there from the second step on."""


class Tracked(NamedTuple):
    """Its peak in bytes, or why there is none."""

    peak: int | None
    seconds: float
    error: str = ""


def track(workload: Workload, world_size: int = 1) -> Tracked:
    """What MemTracker says of this workload on so many GPUs."""
    try:
        answer = run_forked(partial(_answer, workload, world_size), Limits(_TIME_LIMIT))
    except TimeLimit:
        return Tracked(None, _TIME_LIMIT, "it took too long")
    except ProcessEnded as end:
        return Tracked(None, 0.0, end.last_words() or "its process ended")
    if answer.error:
        return Tracked(None, 0.0, answer.message)
    told = json.loads(answer.payload)
    return Tracked(told["peak"], told["seconds"])


def _answer(workload: Workload, world_size: int) -> Answer:
    """In the fork."""
    started = time.perf_counter()
    try:
        peak = _peak(workload, world_size)
    except Exception as error:
        return Answer(error=type(error).__name__, message=f"{type(error).__name__}: {error}"[:300])
    seconds = round(time.perf_counter() - started, 3)
    return Answer(payload=json.dumps({"peak": peak, "seconds": seconds}).encode())


def _peak(workload: Workload, world_size: int) -> int:
    import torch
    from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed._tools.mem_tracker import MemTracker

    from oomcast.capture.torch.checkpointing import enable_checkpointing
    from oomcast.capture.torch.jobs import load_job, loss_of, run_model
    from oomcast.capture.torch.optimizers import make_optimizer

    torch.set_num_threads(1)
    parallel = _fsdp2_of(workload, world_size)
    mesh = None if parallel is None else _mesh(parallel, world_size)
    job = load_job(workload)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with _cuda_is_cpu():
        try:
            with mode:
                model = job.model()
        except DataDependentOutputException:
            model = _made_fake(job.model(), mode)
    with mode, _cuda_is_cpu():
        if workload.checkpointing:
            enable_checkpointing(model, workload.checkpointing if isinstance(workload.checkpointing, tuple) else ())
        model.train()
        if workload.precision is Precision.BF16:
            model.to(torch.bfloat16)
        if mesh is not None:
            _shard(model, workload, mesh)
        if workload.optimizer is None and job.optimizer is not None:
            optimizer = job.optimizer(model.parameters())
        else:
            trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
            optimizer = make_optimizer(workload.optimizer or "adamw", trained)
        tracker: Any = MemTracker() if mesh is None else FSDPMemTracker(model, optimizer)
        if mesh is None:
            tracker.track_external(model, optimizer)
        with tracker:
            for _ in range(_STEPS):
                for _ in range(min(workload.accumulation, 2)):
                    batch = _cast(job.batch(), workload.precision)
                    if mesh is not None:
                        tracker.track_inputs((batch,))
                    with _autocast(workload.precision if mesh is None else Precision.FP32):
                        loss = job.loss(model, batch) if job.loss else loss_of(run_model(model, batch), batch)
                    loss.backward()
                    tracker.reset_mod_stats()  # it refuses a second pass otherwise
                optimizer.step()
                optimizer.zero_grad(set_to_none=workload.set_to_none)
        snapshot = tracker.get_tracker_snapshot("peak")
    return sum(int(device["Total"]) for device in snapshot.values())


def _fsdp2_of(workload: Workload, world_size: int) -> Parallel | None:
    """The layout, where there are several GPUs."""
    if world_size == 1:
        return None
    parallel = workload.parallel
    if parallel is None or parallel.data is not DataParallel.FSDP2 or parallel.model_size > 1 or parallel.offload:
        raise ValueError(f"of several GPUs it knows FSDP2 alone, not {parallel}")
    return parallel


def _mesh(parallel: Parallel, world_size: int) -> Any:
    """In a fake process group: made before tensors are fake, since it reads the numbers of its ranks."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)
    if parallel.replicate == 1:
        return init_device_mesh("cpu", (world_size,))
    sizes = (parallel.replicate, world_size // parallel.replicate)
    return init_device_mesh("cpu", sizes, mesh_dim_names=("replicate", "shard"))


def _shard(model: Any, workload: Workload, mesh: Any) -> None:
    """`fully_shard` on each block and on the model, as torchtitan does it."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    from oomcast.capture.torch.blocks import repeated_blocks

    parallel = workload.parallel
    assert parallel is not None
    half = {Precision.AMP_FP16: torch.float16, Precision.AMP_BF16: torch.bfloat16}.get(workload.precision)
    reduced = half if parallel.reduces_in_half or half is None else torch.float32
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=reduced)
    for block in repeated_blocks(model):
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=not parallel.keeps_gathered)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def _made_fake(model: Any, mode: Any) -> Any:
    """A model whose constructor reads values is built for real; its parameters and buffers are exchanged after."""
    return _exchanged(model, lambda tensor: mode.from_tensor(tensor.detach()))


def _exchanged(model: Any, change: Callable[[Any], Any]) -> Any:
    """The model with other parameters and buffers; what was shared stays shared."""
    import torch

    made: dict[int, Any] = {}
    for module in model.modules():
        for kept in (module._parameters, module._buffers):
            for name, tensor in kept.items():
                if tensor is None:
                    continue
                if id(tensor) not in made:
                    new = change(tensor)
                    if isinstance(tensor, torch.nn.Parameter):
                        new = torch.nn.Parameter(new, tensor.requires_grad)
                    # With the old one, which must live: its id would be given away.
                    made[id(tensor)] = (new, tensor)
                kept[name] = made[id(tensor)][0]
    return model


@contextlib.contextmanager
def _cuda_is_cpu() -> Iterator[None]:
    """Jobs that move themselves stay where they are."""
    from unittest import mock

    import torch

    def stay(moved: Any, *_: Any, **__: Any) -> Any:
        return moved

    def apply(module: Any, change: Any, recurse: bool = True) -> Any:
        return _exchanged(module, lambda tensor: change(tensor.detach()))

    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(torch.Tensor, "cuda", stay))
        patches.enter_context(mock.patch.object(torch.nn.Module, "cuda", stay))
        # torch swaps fake parameters in place, and cannot where something refers to them weakly.
        patches.enter_context(mock.patch.object(torch.nn.Module, "_apply", apply))
        yield


def _cast(batch: Any, precision: Precision) -> Any:
    """Where the model is bf16, so are its inputs."""
    import torch
    from torch.utils._pytree import tree_map

    def cast(item: Any) -> Any:
        is_float = isinstance(item, torch.Tensor) and item.dtype is torch.float32
        return item.to(torch.bfloat16) if is_float else item

    return tree_map(cast, batch) if precision is Precision.BF16 else batch


def _autocast(precision: Precision) -> Any:
    import torch

    types = {Precision.AMP_FP16: torch.float16, Precision.AMP_BF16: torch.bfloat16}
    dtype = types.get(precision)
    return contextlib.nullcontext() if dtype is None else torch.autocast("cpu", dtype=dtype)
