"""ZeRO as DeepSpeed itself does it: its engine holds the model, the optimizer, the buckets and the master weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ....errors import BadInput
from ....spec import Parallel, Precision, Workload

__all__ = ["DeepSpeedSteps", "deepspeed_configuration"]

_HALF = {Precision.AMP_BF16: "bf16", Precision.BF16: "bf16", Precision.AMP_FP16: "fp16"}


@dataclass(frozen=True)
class DeepSpeedSteps:
    """An engine in the place of model and optimizer; it zeroes the gradients itself."""

    model: Any
    buffers_for_disks: int
    """Bytes of pinned memory that ZeRO-Infinity has on the host; 0 without it."""

    @classmethod
    def of(
        cls,
        model: nn.Module,
        optimizer: Callable[[], torch.optim.Optimizer],
        workload: Workload,
        parallel: Parallel,
        assume: Callable[[str], None],
    ) -> DeepSpeedSteps:
        deepspeed = _import_deepspeed()
        _choose_the_gpu(deepspeed)
        assume(f"{parallel}: DeepSpeed {deepspeed.__version__} with its defaults")
        if parallel.nvme:
            assume(
                "nvme: the GPU holds what it holds when the host's memory takes parameters and states; here the disks "
                "do, and the host has pinned buffers"
            )
        buffers = _buffers_for_disks(model, workload) if parallel.nvme else 0
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer(), config=deepspeed_configuration(workload, parallel)
        )
        return cls(engine, buffers)

    def zero_grad(self, set_to_none: bool) -> None: ...

    def backward(self, loss: torch.Tensor, is_last: bool) -> None:
        self.model.backward(loss)
        if not is_last:
            self.model.step()

    def step(self) -> None:
        self.model.step()

    def bytes_on_host(self) -> int:
        """What the engine keeps there: each tensor once, however many refer to it."""
        if self.buffers_for_disks:
            return self.buffers_for_disks
        parameters = [getattr(parameter, "ds_tensor", None) for parameter in self.model.module.parameters()]
        storages: dict[int, int] = {}
        for tensor in _tensors([vars(self.model.optimizer), self.model.optimizer.optimizer.state, parameters], set()):
            if tensor.device == torch.device("cpu"):
                storage = tensor.untyped_storage()
                storages[storage._cdata] = storage.nbytes()
        return sum(storages.values())


def _tensors(tree: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (dict, list, tuple)) and id(tree) not in seen:
        seen.add(id(tree))
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from _tensors(item, seen)


def _buffers_for_disks(model: nn.Module, workload: Workload) -> int:
    """From the defaults of `offload_param` and `offload_optimizer` (DeepSpeed 0.19, runtime/zero/offload_config.py):
    5 of 100 million elements for parameters, 4 of a subgroup's elements (at most a billion) in fp32 for the
    optimizer."""
    import torch.distributed as dist

    own = -(-sum(parameter.numel() for parameter in model.parameters()) // dist.get_world_size())
    wide = 2 if workload.precision in _HALF else 4
    return 5 * 100_000_000 * wide + 4 * min(own, 1_000_000_000) * 4


def deepspeed_configuration(workload: Workload, parallel: Parallel) -> dict[str, Any]:
    """What a user would write into DeepSpeed's JSON; what is not there is its default."""
    assert parallel.data is not None
    zero: dict[str, Any] = {"stage": int(parallel.data.value[-1])}
    # The disks of ZeRO-Infinity are reached over the same pinned memory: the GPU sees no difference.
    if parallel.offload or parallel.nvme:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if zero["stage"] == 3:
            zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    configuration: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": workload.batch_size,
        "gradient_accumulation_steps": workload.accumulation,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1_000_000_000,
    }
    half = _HALF.get(workload.precision)
    if half is not None:
        configuration[half] = {"enabled": True}
    return configuration


def _choose_the_gpu(deepspeed: Any) -> None:
    """DeepSpeed looks for a GPU once a process: where somebody asked it before the virtual one was there, it is on the
    CPU, and compiles code for it. What was chosen stays so in this process, which is the job's own."""
    from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

    deepspeed.accelerator.set_accelerator(CUDA_Accelerator())


def _import_deepspeed() -> Any:
    try:
        import deepspeed
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "deepspeed":
            raise
        raise BadInput(
            "ZeRO runs DeepSpeed itself, which is not installed; install it with: pip install deepspeed"
        ) from None
    return deepspeed
