"""Fine-tuning of a model of transformers: quantised weights, an adapter, what is trained, how the loss is computed.

Everything is done by the libraries that do it on a GPU: bitsandbytes quantises while the weights are moved, peft puts
its adapters in, accelerate converts the outputs. What is not installed is told in a sentence.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from oomcast.errors import BadInput, UnknownName
from oomcast.spec import Adapter, JobKind, Loading, Objective, Precision, TrainingLoop, Workload

from .head_losses import chunked_loss, fused_loss, own_loss
from .loaded import LoadedJob
from .loading import is_loaded_to_gpu, load_to_gpu
from .objectives import about_objective, objective_of
from .quantised import DTYPES, about_quantization, kept_as_they_are, library

__all__ = ["AdapterRefused", "check_tuning", "tune_model", "tuned"]


class AdapterRefused(BadInput):
    """peft did not build an adapter from its settings."""


_OPTIONS = ("adapter", "quantization", "qat", "loading", "weights", "trained_weights", "upcast_rest", "trained_layers",
            "attention", "objective", "reference_model", "reward_model", "rollouts", "vllm_share", "head",
            "training_loop", "loss_chunks", "fused_loss", "lengths")  # fmt: skip
_OF_DIFFUSERS = ("adapter", "quantization", "weights", "trained_weights")


def check_tuning(workload: Workload) -> None:
    """A job file builds its own model: these options are for models of transformers, some for those of diffusers."""
    kind = workload.job.kind
    if kind is not JobKind.DIFFUSERS and workload.precomputed:
        raise BadInput("--precomputed is for diffusion models: diffusers:NAME.")
    if kind in (JobKind.HF, JobKind.CONFIG):
        return
    followed = _OF_DIFFUSERS if kind is JobKind.DIFFUSERS else ()
    defaults = {field.name: field.default for field in dataclasses.fields(workload)}
    for name in _OPTIONS:
        if name not in followed and getattr(workload, name) != defaults[name]:
            flag = "--" + name.replace("_", "-")
            raise BadInput(f"{flag} is for models of transformers (hf:NAME); a job file does it in model() or loss().")


_LOADING = {
    Loading.DEVICE_MAP: "transformers' loader takes a block as large as the whole model first, as with a device map of "
    "one GPU; a map that leaves layers on the host is not followed",
    Loading.WHOLE: "all weights are on the GPU before the first of them is quantised",
}


def tuned(job: LoadedJob, workload: Workload, whole: Callable[[], nn.Module]) -> LoadedJob:
    """The job as the workload's options tune it. `whole`: builds the model with all its layers."""
    said = list(job.assumptions)
    if workload.attention == "flash":
        said.append("FlashAttention's package stands in as torch's own flash kernel, which holds as much")
    if workload.fused_loss and workload.objective is Objective.SFT:
        said.append(
            "Liger's fused linear cross entropy stands in with its own chunks; its other kernels are not followed"
        )
    if workload.quantization is not None:
        said.append(f"the linear layers hold {workload.quantization} weights; the head stays as it is")
        said += about_quantization(workload)
    if workload.qat is not None:
        said.append(f"torchao rounds the linear layers to {workload.qat} in each forward pass, but for the head")

    if workload.loading is not None:
        said.append(_LOADING[workload.loading])

    def load(model: nn.Module) -> nn.Module:
        return load_to_gpu(model, workload, whole)

    said += about_objective(workload)
    loss = _loss(workload, job.model)

    def about(model: nn.Module) -> Iterator[str]:
        yield from job.about_model(model) if workload.quantization is None else kept_as_they_are(model)
        yield from _left_out_settings(workload)

    return dataclasses.replace(
        job,
        load=load if is_loaded_to_gpu(workload) else None,
        tune=lambda model: tune_model(model, workload),
        loss=loss or job.loss,
        assumptions=tuple(said),
        about_model=about,
    )


# -------- The model


def tune_model(model: nn.Module, workload: Workload) -> nn.Module:
    """With its adapter, and what is trained in the type that the workload asks for."""
    tuned_model: nn.Module = _trained(_with_adapter(model, workload), workload)
    return tuned_model


def _with_adapter(model: Any, workload: Workload) -> Any:
    adapter = workload.adapter
    if adapter is None:
        return model
    peft = library("peft", "--adapter")
    if workload.upcast_rest:
        peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    configuration = _configuration(adapter.kind)
    known = {field.name: str(field.type) for field in dataclasses.fields(configuration)}
    for name in _unknown_settings(adapter):
        if workload.job.kind is not JobKind.CONFIG:  # else the file may be another version's, and it is told
            raise UnknownName(f"setting of {adapter.kind}", name, known)
    settings = {name: _named(value, known[name]) for name, value in adapter.settings.items() if name in known}
    try:
        config = configuration(**{"task_type": _task(model), **settings})
        in_fp32 = workload.trained_weights in (None, "fp32")
        return peft.get_peft_model(model, config, autocast_adapter_dtype=in_fp32)
    except (ValueError, TypeError, KeyError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
        raise AdapterRefused(f"peft refuses the adapter {adapter}: {reason}.") from None


def _configuration(kind: str) -> Any:
    """peft's own class for the settings of a method."""
    peft = library("peft", "--adapter")
    methods = {str(method.value).lower(): method for method in peft.PeftType}
    if kind not in methods:
        raise UnknownName("adapter", kind, methods)
    return importlib.import_module("peft.mapping").PEFT_TYPE_TO_CONFIG_MAPPING[methods[kind]]


def _unknown_settings(adapter: Adapter) -> list[str]:
    known = {field.name for field in dataclasses.fields(_configuration(adapter.kind))}
    return [name for name in adapter.settings if name not in known]


def _left_out_settings(workload: Workload) -> Iterator[str]:
    strange = [] if workload.adapter is None else _unknown_settings(workload.adapter)
    if strange:
        yield f"the installed peft does not know {', '.join(strange)} of the adapter's file: left out"


def _named(value: Any, kind: str) -> Any:
    """peft takes a text for an expression that must match a whole path: the name of one module alone means a list."""
    is_name = isinstance(value, str) and re.fullmatch(r"[A-Za-z_]\w*", value) is not None
    return [value] if is_name and "list" in kind.lower() else value


def _task(model: Any) -> str | None:
    name = type(model).__name__
    if "CausalLM" in name or "LMHead" in name:
        return "CAUSAL_LM"
    if "ConditionalGeneration" in name and getattr(model.config, "is_encoder_decoder", False):
        return "SEQ_2_SEQ_LM"
    return "SEQ_CLS" if "SequenceClassification" in name else None


def _trained(model: Any, workload: Workload) -> Any:
    """What is trained, and in which type; outputs as the training loop hands them on."""
    if workload.trained_layers is not None:
        _train_last_blocks(model, workload.trained_layers)
    if workload.trained_weights is not None:
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(DTYPES[workload.trained_weights])
    is_mixed = workload.precision in (Precision.AMP_BF16, Precision.AMP_FP16)
    if workload.training_loop is TrainingLoop.HF_TRAINER and is_mixed:
        convert = library("accelerate.utils", "--training-loop hf-trainer").convert_outputs_to_fp32
        model.forward = convert(model.forward)
    return model


def _train_last_blocks(model: Any, count: int) -> None:
    blocks = next((module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) > 1), None)
    if blocks is None or count > len(blocks):
        raise BadInput(f"--trained-layers {count}: the model has {0 if blocks is None else len(blocks)} blocks.")
    model.requires_grad_(False)
    for block in list(blocks)[-count:]:
        block.requires_grad_(True)


# -------- The loss


def _loss(workload: Workload, reference: Callable[[], nn.Module]) -> Callable[[nn.Module, Any], torch.Tensor] | None:
    if workload.objective is not Objective.SFT:
        return objective_of(workload, reference)
    if workload.fused_loss:
        return fused_loss
    if workload.loss_chunks > 1:
        return lambda model, batch: chunked_loss(model, batch, workload.loss_chunks)
    if workload.training_loop is TrainingLoop.HF_TRAINER:
        return own_loss
    return None
