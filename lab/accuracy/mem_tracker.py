"""torch's own MemTracker on the same jobs: the library itself runs, on fake CPU tensors, in a process of its own.

On fake `cuda` tensors it aborts on a machine without a GPU. So it sees the CPU's operators and optimizers, and neither
an allocator nor a context: that is what one gets from it without a GPU.
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
from oomcast.spec import Precision, Workload

__all__ = ["Tracked", "track"]

_TIME_LIMIT = 600.0
_STEPS = 2
"""The optimizer's state is there from the second step on."""


class Tracked(NamedTuple):
    """Its peak in bytes, or why there is none."""

    peak: int | None
    seconds: float
    error: str = ""


def track(workload: Workload) -> Tracked:
    """What MemTracker says of this workload."""
    try:
        answer = run_forked(partial(_answer, workload), Limits(_TIME_LIMIT))
    except TimeLimit:
        return Tracked(None, _TIME_LIMIT, "it took too long")
    except ProcessEnded as end:
        return Tracked(None, 0.0, end.last_words() or "its process ended")
    if answer.error:
        return Tracked(None, 0.0, answer.message)
    told = json.loads(answer.payload)
    return Tracked(told["peak"], told["seconds"])


def _answer(workload: Workload) -> Answer:
    """In the fork."""
    started = time.perf_counter()
    try:
        peak = _peak(workload)
    except Exception as error:
        return Answer(error=type(error).__name__, message=f"{type(error).__name__}: {error}"[:300])
    seconds = round(time.perf_counter() - started, 3)
    return Answer(payload=json.dumps({"peak": peak, "seconds": seconds}).encode())


def _peak(workload: Workload) -> int:
    import torch
    from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    from oomcast.capture.torch.checkpointing import enable_checkpointing
    from oomcast.capture.torch.jobs import load_job, loss_of, run_model
    from oomcast.capture.torch.optimizers import make_optimizer

    torch.set_num_threads(1)
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
        if workload.optimizer is None and job.optimizer is not None:
            optimizer = job.optimizer(model.parameters())
        else:
            trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
            optimizer = make_optimizer(workload.optimizer or "adamw", trained)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            for _ in range(_STEPS):
                for _ in range(min(workload.accumulation, 2)):
                    batch = _cast(job.batch(), workload.precision)
                    with _autocast(workload.precision):
                        loss = job.loss(model, batch) if job.loss else loss_of(run_model(model, batch), batch)
                    loss.backward()
                    tracker.reset_mod_stats()  # it refuses a second pass otherwise
                optimizer.step()
                optimizer.zero_grad(set_to_none=workload.set_to_none)
        snapshot = tracker.get_tracker_snapshot("peak")
    return sum(int(device["Total"]) for device in snapshot.values())


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
