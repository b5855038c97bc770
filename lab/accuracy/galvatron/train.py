"""The script that Hetu-Galvatron's profiles were recorded with, put together again; run by oomcast, not imported.

`torchrun … train.py JSON`: a few layers under pipeline, tensor and data parallelism (FSDP 1, `FULL_SHARD`, bf16), one
micro-batch, Adam. Read from AFDWang/Hetu-Galvatron at 0beac24: galvatron/core/runtime (parallel.py,
pipeline/pipeline.py), galvatron/models/*/train_dist_random.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel as Fsdp
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp import _common_utils as fsdp_states
from torch.distributed.fsdp import _runtime_utils as fsdp_runtime

sys.path.insert(0, str(Path(__file__).parents[3]))

from lab.accuracy.galvatron.models import Layout, stage_units
from lab.accuracy.galvatron.parallel_layers import Buffer, Cut, move_batch

_STEPS = 3
_PRECISION = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)


class Moved(nn.Module):
    """A part of the model behind the move of its input from the layout before it."""

    def __init__(self, part: nn.Module, cut: Cut, gathers: bool, samples_first: bool) -> None:
        super().__init__()
        self.part, self.cut, self.gathers, self.samples_first = part, cut, gathers, samples_first

    def forward(self, x: Tensor, **more: Any) -> Tensor:
        return self.part(move_batch(x, self.cut, self.gathers, self.samples_first), **more)


class Stage(nn.Module):
    """A stage of the pipeline; `received` is the form of what the stage before it sends."""

    def __init__(self, parts: list[nn.Module], received: tuple[int, ...] | None) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.received = received
        self.input: Tensor | None = None

    def forward(self, x: Tensor, **more: Any) -> Tensor:
        if self.received is not None:
            self.input = torch.empty(self.received, dtype=torch.bfloat16, device=x.device, requires_grad=True)
            dist.recv(self.input.detach(), 0)
            x = self.input
        for part in self.parts:
            x = part(x, **more)
        return x


def shard(module: nn.Module, group: Any, device: torch.device) -> nn.Module:
    return Fsdp(
        module,
        process_group=group,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        mixed_precision=_PRECISION,
        device_id=device,
        limit_all_gathers=True,
    )


def build(layout: Layout, device: torch.device) -> Any:
    """Each unit sharded over the GPUs that hold the same part of it, and all of them in one more unit.

    Layers are cut over `tensor` GPUs; what is before and behind them is cut too, or each GPU has samples of its own.
    """
    mesh = dist.device_mesh.init_device_mesh(
        "cuda", (layout.pipeline, layout.data, layout.tensor), mesh_dim_names=("pp", "dp", "tp")
    )
    stage = mesh.get_local_rank("pp")
    same_part, same_samples = mesh["dp"].get_group(), mesh["tp"].get_group()
    whole_stage = mesh["dp", "tp"]._flatten("stage").get_group()
    buffers = None if layout.samples_first else Buffer()
    inner = Cut(same_samples, layout.tensor, layout.by_tokens and layout.buffers_of(layout.tensor), buffers)
    outer = inner
    if layout.tensor > 1 and not layout.cuts_vocabulary:
        outer = Cut(own_group(), 1, layout.by_tokens and layout.buffers_alone, buffers)
    outer_group = same_part if layout.cuts_vocabulary or layout.tensor == 1 else whole_stage
    parts: list[nn.Module] = []
    was_layer = stage > 0
    for unit in stage_units(layout, stage, inner, outer):
        for owner, name in unit.sharded:
            module = getattr(owner, name)
            wrapped = checkpoint_wrapper(module) if unit.is_layer and layout.recomputes else module
            setattr(owner, name, shard(wrapped, same_part if unit.is_layer else outer_group, device))
        part = unit.module
        if parts and not layout.cuts_vocabulary and unit.is_layer != was_layer:
            part = Moved(part, inner, gathers=unit.is_layer, samples_first=layout.samples_first)
        was_layer = unit.is_layer
        parts.append(part)
    return shard(Stage(parts, layout.between() if stage else None), outer_group, device)


def own_group() -> Any:
    """A group of this GPU alone; every rank makes all of them, in the same order."""
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    return groups[dist.get_rank()]


class _Sent(torch.autograd.Function):
    """What the next stage receives; its backward waits for the gradient that comes back, which stays until the end."""

    @staticmethod
    def forward(context: Any, x: Tensor, received: list[Tensor]) -> Tensor:
        context.form, context.received = (x.shape, x.dtype, x.device), received
        dist.send(x, dist.get_world_size() - 1)
        return torch.zeros((), dtype=x.dtype, device=x.device)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        shape, dtype, device = context.form
        gradient = torch.empty(shape, dtype=dtype, device=device)
        dist.recv(gradient, dist.get_world_size() - 1)
        context.received.append(gradient)
        return gradient, None


def step(model: nn.Module, layout: Layout, stage: int, device: torch.device) -> None:
    """A forward and a backward of one micro-batch; stages beside this one are only sent to and received from."""
    x, more = layout.inputs(layout.batch_outside, device)
    out = model(x, **more)
    if stage < layout.pipeline - 1:
        received: list[Tensor] = []
        _Sent.apply(out, received).backward()
        return
    loss = out.mean() if out.numel() > 1 else out
    del out
    loss.backward()
    if stage:
        own: Any = model.module
        dist.send(own.input.grad, 0)
        if not layout.of_2023:
            own.input = None


def reduce_gradients(model: nn.Module) -> None:
    """What FSDP does in backward unless it is told not to (`no_sync`), for all units after it."""
    units: list[Any] = [unit for unit in model.modules() if isinstance(unit, Fsdp)]
    for unit in units:
        handle = unit._handle
        if handle is None:
            continue
        unit.training_state = fsdp_states.TrainingState.FORWARD_BACKWARD
        handle._training_state = fsdp_states.HandleTrainingState.BACKWARD_PRE
        fsdp_runtime._unshard(unit, handle, unit._unshard_stream, unit._pre_unshard_stream)
        fsdp_runtime._post_backward_hook(unit, handle, handle.flat_param)
    fsdp_runtime._post_backward_final_callback(model, model)


def main() -> None:
    layout = Layout(**json.loads(sys.argv[1]))
    dist.init_process_group("nccl")
    device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    stage = dist.get_rank() // (layout.data * layout.tensor)
    model = build(layout, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=0.01)
    for _ in range(_STEPS):
        if layout.of_2023 and layout.pipeline > 1:
            with model.no_sync():
                step(model, layout, stage, device)
            reduce_gradients(model)
        else:
            step(model, layout, stage, device)
        optimizer.step()
        optimizer.zero_grad()
        model.module.input = None


if __name__ == "__main__":
    main()
