"""ZeRO as DeepSpeed itself does it: its engine holds the model, the optimizer, the buckets and the master weights."""

from __future__ import annotations

from collections.abc import Callable
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
        assume(f"{parallel}: DeepSpeed {deepspeed.__version__} with its defaults")
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer(), config=deepspeed_configuration(workload, parallel)
        )
        return cls(engine)

    def zero_grad(self, set_to_none: bool) -> None: ...

    def backward(self, loss: torch.Tensor, is_last: bool) -> None:
        self.model.backward(loss)
        if not is_last:
            self.model.step()

    def step(self) -> None:
        self.model.step()


def deepspeed_configuration(workload: Workload, parallel: Parallel) -> dict[str, Any]:
    """What a user would write into DeepSpeed's JSON; what is not there is its default."""
    assert parallel.data is not None
    zero: dict[str, Any] = {"stage": int(parallel.data.value[-1])}
    if parallel.offload:
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
