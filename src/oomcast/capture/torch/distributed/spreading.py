"""A job's model spread over the GPUs as a user would write it: the mesh, tensor parallelism, then data parallelism.

Repeated blocks are the units of FSDP, as in torch's and torchtitan's examples. With `amp-bf16` or `amp-fp16`, FSDP's
own mixed precision is used (parameters gathered in 16 bits, gradients reduced in fp32 or, by `reduce-half`, in 16 bits)
instead of autocast.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffload,
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    OffloadPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
from torch.nn.parallel import DistributedDataParallel

from ....errors import BadInput
from ....spec import DataParallel, Parallel, PipelineSchedule, Precision, Workload
from ..blocks import repeated_blocks
from ..training import Steps
from .context_parallel import parts_of_sequences, shapes_of_parts
from .expert_parallel import share_experts
from .pipeline import Pipeline, cut_stages
from .tensor_parallel import cut_tensors, has_cut_experts
from .world import World

__all__ = ["Spread"]

_HALF = {Precision.AMP_BF16: torch.bfloat16, Precision.AMP_FP16: torch.float16}
_STRATEGIES = {
    (False, False): ShardingStrategy.FULL_SHARD,
    (False, True): ShardingStrategy.SHARD_GRAD_OP,
    (True, False): ShardingStrategy.HYBRID_SHARD,
    (True, True): ShardingStrategy._HYBRID_SHARD_ZERO2,
}
"""Whether there are copies of the shards, and whether what is gathered stays until backward → FSDP's name for it."""
_ORDERS = {
    PipelineSchedule.ONE_FORWARD_ONE_BACKWARD: "1F1B",
    PipelineSchedule.INTERLEAVED: "interleaved 1F1B",
    PipelineSchedule.ZERO_BUBBLE: "zero bubble, as torch's ScheduleInterleavedZeroBubble",
    PipelineSchedule.ZBV: "zero bubble in a V, as torch's ScheduleZBVZeroBubble",
}


@dataclass(frozen=True)
class Spread:
    """A layout on a world, ready to take a model."""

    parallel: Parallel
    world: World
    precision: Precision
    assume: Callable[[str], None]
    know: Callable[[Any, torch.Tensor], None]
    """Told the values of a tensor, where what it holds is assumed."""
    put_off: Callable[[int], None]
    """Told the bytes that this rank has in the host's memory."""

    def start(self) -> None:
        """As a script of torchrun begins."""
        torch.cuda.set_device(self.world.local_rank)
        dist.init_process_group("nccl")

    @property
    def mixes_by_itself(self) -> bool:
        """Whether the wrapper casts, so that autocast is not used."""
        return self.parallel.data in (DataParallel.FSDP, DataParallel.FSDP2) and self.precision in _HALF

    @property
    def _reduced(self) -> torch.dtype | None:
        """The type in which mixed precision reduces gradients, where it is used."""
        half = _HALF.get(self.precision)
        return torch.float32 if half and not self.parallel.reduces_in_half else half

    @property
    def _mixing(self) -> str:
        """What is told of mixed precision."""
        if self._reduced is None:
            return ""
        bits = "fp32" if self._reduced is torch.float32 else "16 bits"
        return f", {self.precision.value} by its mixed precision, reduced in {bits}"

    @property
    def has_engine(self) -> bool:
        """Whether a library brings its own loop around model and optimizer."""
        return self.parallel.data is not None and self.parallel.data.is_deepspeed

    def engine(self, model: nn.Module, optimizer: Callable[[], torch.optim.Optimizer], workload: Workload) -> Steps:
        """DeepSpeed's engine around the model."""
        from .zero import DeepSpeedSteps

        assert self.parallel.data is not None
        return DeepSpeedSteps.of(model, optimizer, workload, self.parallel, self.assume)

    def mesh(self) -> DeviceMesh:
        """In torchtitan's order: tensor-parallel ranks are neighbours, pipeline stages far apart."""
        parallel = self.parallel
        data = parallel.data_size(self.world.size)
        sizes = {
            "pp": parallel.pipeline,
            "replicate": parallel.replicate,
            # Experts are shared within a group, and sharded over the groups; all else is sharded over both.
            **({"shard": data // parallel.replicate} if parallel.expert == 1 else {}),
            **({"groups": data // parallel.expert, "ep": parallel.expert} if parallel.expert > 1 else {}),
            "cp": parallel.context,
            "tp": parallel.tensor,
        }
        return init_device_mesh("cuda", tuple(sizes.values()), mesh_dim_names=tuple(sizes))

    def pipeline(self, model: nn.Module, run: Callable[[nn.Module], Any]) -> Pipeline | None:
        """This rank's stages of the pipeline, if there is one; the model has then only the parts of the first."""
        parallel = self.parallel
        if parallel.pipeline == 1:
            return None
        place = self.world.rank // (self.world.size // parallel.pipeline)
        numbers = parallel.stages_of(place)
        models = [*(copy.deepcopy(model) for _ in numbers[1:]), model]
        cast = _HALF.get(self.precision) if self.mixes_by_itself else None
        parts = [
            cut_stages(part, number, parallel.stages, run, cast) for part, number in zip(models, numbers, strict=True)
        ]
        pipeline = Pipeline(parallel, place, parts)
        pieces = f", {len(parts)} of {parallel.stages} stages on each GPU" if len(parts) > 1 else ""
        self.assume(
            f"pp={parallel.pipeline}: {pipeline.divided}{pieces}, the order of micro-batches is "
            f"{_ORDERS[parallel.schedule]}"
        )
        return pipeline

    def place(self, model: nn.Module, plan_of_job: Callable[[nn.Module], Any] | None = None) -> nn.Module:
        """The model on this rank's GPU, wrapped."""
        self._refuse()
        mesh = self.mesh()
        data = self.parallel.data
        is_cut = self.parallel.tensor > 1 or self.parallel.expert > 1
        unbuilt = _without_weights(model) if is_cut and data is DataParallel.FSDP2 else None
        if self.parallel.tensor > 1:
            self.assume(cut_tensors(model, mesh["tp"], plan_of_job))
        if data is DataParallel.FSDP2:
            experts = share_experts(model, mesh["ep"], mesh["tp"], self.know) if self.parallel.expert > 1 else []
            return self._fsdp2(model, mesh, unbuilt, experts)
        if data is DataParallel.FSDP:
            return self._fsdp(model, mesh)
        if has_cut_experts(model):
            if data is DataParallel.DDP:
                raise BadInput(
                    f"{self.parallel} cuts experts by the code of transformers, whose DTensors DDP does not take; "
                    "write fsdp2 instead of ddp."
                )
        elif self.parallel.tensor > 1:
            # Buckets and foreach kernels take no mix of DTensors and others: each rank's own parts as plain tensors.
            _pre_dp_module_transform(model)
        model.to(torch.device("cuda"))
        if data is DataParallel.DDP and self._copies(mesh).size() > 1:
            return self._ddp(model, mesh)
        return model

    def _refuse(self) -> None:
        """What the layout may say and job files cannot have yet."""
        if self.parallel.reduces_in_half and self._reduced is None:
            raise BadInput(
                f"reduce-half needs a precision whose parameters FSDP gathers in 16 bits, not {self.precision.value}; "
                "write amp-bf16 or amp-fp16."
            )
        beside = self.parallel.model_size * self.parallel.replicate
        if self.parallel.expert > 1 and (self.parallel.data is not DataParallel.FSDP2 or beside > 1):
            raise BadInput(
                "ep=N is offered for job files beside fsdp2 alone; write fsdp2,ep=N, or run a script that uses more: "
                "oomcast run -- …"
            )

    @property
    def cuts_sequences(self) -> bool:
        return self.parallel.context > 1

    def sequences(self, batch: Any) -> AbstractContextManager[None]:
        """Around a forward and its backward: this rank's part of the batch's sequences, where they are cut."""
        if not self.cuts_sequences:
            return contextlib.nullcontext()
        self.assume(f"cp={self.parallel.context}: dimension 1 of the batch's tensors is cut, attention runs as a ring")
        return parts_of_sequences(self.mesh()["cp"], batch, self.assume)

    def sample(self, batch: Any) -> Any:
        """A batch of the host as this rank's part of its sequences has its shapes."""
        return shapes_of_parts(self.parallel.context, batch) if self.cuts_sequences else batch

    def _ddp(self, model: nn.Module, mesh: DeviceMesh) -> nn.Module:
        how = (
            "gradients are views of them"
            if self.parallel.gradients_in_buckets
            else "gradients copied into them and back"
        )
        self.assume(f"ddp: buckets of 25 MiB, {how}" + ", a static graph" * self.parallel.static_graph)
        return DistributedDataParallel(
            model,
            device_ids=[self.world.local_rank],
            process_group=self._copies(mesh).get_group(),
            static_graph=self.parallel.static_graph,
            gradient_as_bucket_view=self.parallel.gradients_in_buckets,
        )

    def _copies(self, mesh: DeviceMesh) -> DeviceMesh:
        """The GPUs that hold the same parts of the model: those of other samples, or of other parts of sequences."""
        if self.parallel.expert > 1:
            return mesh["groups", "ep"]._flatten("shard")
        return mesh["shard", "cp"]._flatten("shard_cp") if self.parallel.context > 1 else mesh["shard"]

    def _units(self, model: nn.Module) -> list[nn.Module]:
        blocks = repeated_blocks(model)
        if not blocks:
            self.assume("the model has no repeated blocks: it is sharded as one unit")
        return blocks

    def _fsdp2(
        self,
        model: nn.Module,
        mesh: DeviceMesh,
        buffers: dict[str, torch.Tensor] | None,
        experts: Sequence[nn.Module],
    ) -> nn.Module:
        half = _HALF.get(self.precision)
        policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=self._reduced)
        offload = CPUOffloadPolicy() if self.parallel.offload else OffloadPolicy()
        shards = self._copies(mesh)
        if self.parallel.replicate > 1:
            shards = mesh["replicate", "shard"]
        blocks = [block for block in self._units(model) if any(True for _ in block.parameters())]
        # Between the micro-batches of a pipeline, blocks stay gathered, as torchtitan does it.
        reshard = self.parallel.pipeline == 1 and not self.parallel.keeps_gathered
        self.assume(
            f"fsdp2: fully_shard on each of {len(blocks)} blocks and on the model, "
            + ("resharded after forward" if reshard else "gathered until backward")
            + self._mixing
        )
        if experts:
            self.assume(
                f"ep={self.parallel.expert}: the experts of {len(experts)} layers are shared as transformers does it, "
                "the router chooses all of them equally often"
            )
        for module in experts:
            groups = mesh["groups"]
            fully_shard(module, mesh=groups, mp_policy=policy, offload_policy=offload, reshard_after_forward=reshard)
            module.set_gradient_divide_factor(float(shards.size()))  # type: ignore[operator]
            module.set_force_sum_reduction_for_comms(True)  # type: ignore[operator]
        for block in blocks:
            fully_shard(block, mesh=shards, mp_policy=policy, offload_policy=offload, reshard_after_forward=reshard)
        fully_shard(model, mesh=shards, mp_policy=policy, offload_policy=offload)
        device = torch.device("cpu" if self.parallel.offload else "cuda")
        if buffers is not None:
            self.assume("the model is built on the meta device: a rank allocates its own shards alone")
            model.to_empty(device=device)
            for name, buffer in buffers.items():
                owner, _, last = name.rpartition(".")
                model.get_submodule(owner)._buffers[last] = buffer.to(device)
        elif not self.parallel.offload:
            model.to(device)
        return model

    def tell_host(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """After the last step: what this rank has on its host, where `offload` put it there."""
        parameters = list(model.parameters())
        states = (value for state in optimizer.state.values() for value in state.values())
        # A gradient is as large as its parameter; the last ones may have been let go.
        self.put_off(2 * sum(map(_bytes_on_host, parameters)) + sum(map(_bytes_on_host, states)))

    def tell_host_of_engine(self, steps: Steps) -> None:
        """The same where DeepSpeed puts it there."""
        from .zero import DeepSpeedSteps

        assert isinstance(steps, DeepSpeedSteps)
        self.put_off(steps.bytes_on_host())

    def _fsdp(self, model: nn.Module, mesh: DeviceMesh) -> nn.Module:
        half = _HALF.get(self.precision)
        kinds = {type(block) for block in self._units(model)}
        has_copies = self.parallel.replicate > 1
        strategy = _STRATEGIES[has_copies, self.parallel.keeps_gathered]
        self.assume(f"fsdp: {strategy.name.lstrip('_')}, each repeated block a unit, use_orig_params" + self._mixing)
        return FullyShardedDataParallel(
            model,
            sharding_strategy=strategy,
            auto_wrap_policy=ModuleWrapPolicy(kinds) if kinds else None,
            mixed_precision=MixedPrecision(param_dtype=half, reduce_dtype=self._reduced) if half else None,
            cpu_offload=CPUOffload(offload_params=True) if self.parallel.offload else None,
            device_id=torch.device("cuda", self.world.local_rank),
            use_orig_params=True,
            device_mesh=mesh["replicate", "shard"] if has_copies else None,
        )


def _bytes_on_host(value: Any) -> int:
    """Of this rank's part, where the tensor is divided."""
    if not isinstance(value, torch.Tensor):
        return 0
    local = value.to_local() if isinstance(value, DTensor) else value
    return local.numel() * local.element_size() if local.device.type == "cpu" else 0


def _without_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Put the parameters on the meta device, as torchtitan builds its models; the buffers are returned, with values.

    Cut by tensor parallelism first, each layer would otherwise come to the GPU before FSDP shards it.
    """
    buffers = dict(model.named_buffers())
    tied: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                made = nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=parameter.requires_grad)
                module._parameters[name] = tied.setdefault(id(parameter), made)
    return buffers
