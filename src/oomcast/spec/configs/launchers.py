"""Files of the launchers, DeepSpeed's JSON and accelerate's YAML: they say how a job runs, not which model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import BadInput
from .found import Findings, as_count, as_switch

__all__ = ["deepspeed_of", "fsdp_of", "read_accelerate", "read_deepspeed"]


def read_deepspeed(found: Findings) -> None:
    """`ds_config.json`."""
    found.follow(
        {
            "train_micro_batch_size_per_gpu": ("batch_size", as_count),
            "gradient_accumulation_steps": ("accumulation", as_count),
        }
    )
    batch, whole = found.options.get("batch_size"), found.take("train_batch_size")
    if batch is None and isinstance(whole, int):
        share = whole // found.options.get("accumulation", 1)
        found.options["batch_size"] = max(share, 1)
        found.assume(f"train_batch_size {whole:,} is one GPU's, since train_micro_batch_size_per_gpu is not said")
    deepspeed_of(found, found.data)
    found.without_effect(
        (
            "zero_optimization",
            "optimizer",
            "fp16",
            "bf16",
            "amp",
            "activation_checkpointing",
            "zero_allow_untested_optimizer",
            "communication_data_type",
            "flops_profiler",
            "elasticity",
            "autotuning",
            "aio",
            "zero_force_ds_cpu_optimizer",
        )
    )


def deepspeed_of(found: Findings, config: Mapping[str, Any]) -> None:
    """What DeepSpeed's configuration says of precision, optimizer and the spreading of states."""
    bf16, fp16 = (_is_on(config.get(name)) for name in ("bf16", "fp16"))
    if bf16 and fp16:
        raise BadInput("the file asks for bf16 and fp16 at once; one of them must go.")
    if bf16 or fp16:
        # DeepSpeed keeps the weights in half precision and fp32 copies of them in its optimizer.
        found.options["weights"] = "bf16" if bf16 else "fp16"
        found.options["precision"] = "fp32"
        found.options["master_weights"] = True
    optimizer = config.get("optimizer")
    if isinstance(optimizer, Mapping) and isinstance(optimizer.get("type"), str):
        name = str(optimizer["type"])
        if "lamb" in name.lower():
            found.options["optimizer"] = "adam"
            found.assume(f"{name} holds what Adam holds: two moments a parameter")
        else:
            found.set_optimizer(name)
    zero = config.get("zero_optimization")
    zero = zero if isinstance(zero, Mapping) else {}
    stage = zero.get("stage", 0)
    if stage in (1, 2, 3):
        offload = any(_offloads(zero.get(name)) for name in ("offload_optimizer", "offload_param"))
        found.options["parallel"] = f"zero{stage}" + (",offload" if offload or zero.get("cpu_offload") else "")


def _is_on(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("enabled") not in (None, "auto") and as_switch(value["enabled"])


def _offloads(value: Any) -> bool:
    return isinstance(value, Mapping) and str(value.get("device", "none")).lower() in ("cpu", "nvme")


def read_accelerate(found: Findings) -> None:
    """`accelerate config`'s file, or one written for it."""
    found.world_size = as_count(found.take("num_processes", 1))
    precision = str(found.take("mixed_precision", "no")).lower()
    if precision in ("bf16", "fp16"):
        found.options["precision"] = f"amp-{precision}"
    elif precision == "fp8":
        found.options["precision"] = "amp-bf16"
        found.assume("fp8 is followed as bf16: the copies that TransformerEngine keeps are not in the figures")
    elif precision not in ("no", "none", "false"):
        raise BadInput(f"the mixed_precision {precision!r} is not known; it is no, bf16, fp16 or fp8.")
    found.options["training_loop"] = "hf-trainer"
    steps = found.take("gradient_accumulation_steps")
    if isinstance(steps, int):
        found.options["accumulation"] = steps
    kind = str(found.take("distributed_type", "NO")).upper()
    deepspeed, fsdp = found.part("deepspeed_config"), found.part("fsdp_config")
    if kind == "DEEPSPEED":
        _accelerated_deepspeed(found, deepspeed)
    elif kind == "FSDP":
        fsdp_of(found, fsdp)
    elif kind == "MULTI_GPU":
        found.options["parallel"] = "ddp"
    elif kind != "NO":
        found.assume(f"distributed_type {kind} is not followed: the figures are those of one GPU that holds everything")
    found.without_effect(("num_machines", "gpu_ids", "dynamo_config", "megatron_lm_config", "fp8_config"))
    parallelism = found.part("parallelism_config")
    if parallelism:
        found.assume(f"parallelism_config ({', '.join(parallelism)}) is not followed")


def _accelerated_deepspeed(found: Findings, config: Mapping[str, Any]) -> None:
    other = config.get("deepspeed_config_file")
    if other:
        found.assume(f"what {other} says is not in the figures; give it with --configs")
        return
    stage = config.get("zero_stage")
    if stage in (1, 2, 3):
        offload = any(
            config.get(f"offload_{what}_device", "none") in ("cpu", "nvme") for what in ("optimizer", "param")
        )
        found.options["parallel"] = f"zero{stage}" + (",offload" if offload else "")
    steps = config.get("gradient_accumulation_steps")
    if isinstance(steps, int):
        found.options.setdefault("accumulation", steps)
    precision = found.options.get("precision")
    if precision in ("amp-bf16", "amp-fp16"):
        found.options.update(weights=precision[4:], precision="fp32", master_weights=True)


def fsdp_of(found: Findings, config: Mapping[str, Any]) -> None:
    """FSDP's options, with the prefix `fsdp_` or without it."""

    def value(name: str, default: Any = None) -> Any:
        return config.get(f"fsdp_{name}", config.get(name, default))

    offload = ",offload" if as_switch(value("offload_params", False)) else ""
    found.options["parallel"] = ("fsdp2" if str(value("version", 1)) == "2" else "fsdp") + offload
    if as_switch(value("activation_checkpointing", False)):
        found.options["checkpointing"] = True
