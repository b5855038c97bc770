"""The training loop that a job stands for, written as a user would write it; the virtual GPU records it."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from oomcast.errors import BadInput
from oomcast.trace import Category, Phase
from oomcast.workload import Precision, Workload, ZeroGrad

from ._checkpointing import enable_checkpointing
from ._optimizers import make_optimizer
from ._virtual_gpu import VirtualGpu
from .jobs import LoadedJob, loss_of, run_model

__all__ = ["run_training"]

_AUTOCAST = {Precision.AMP_FP16: torch.float16, Precision.AMP_BF16: torch.bfloat16}


def run_training(virtual: VirtualGpu, job: LoadedJob, workload: Workload) -> None:
    """Build the model, move it to the GPU, and train it for a few steps."""
    device = torch.device("cuda")
    for sentence in job.assumptions:
        virtual.ledger.assume(sentence)
    virtual.enter(Phase.BUILD, -1)
    torch.backends.cuda.matmul.allow_tf32 = workload.precision is Precision.TF32
    model = job.model()
    if not isinstance(model, nn.Module):
        raise BadInput(f"model() must return a torch.nn.Module, not {type(model).__name__}.")
    if workload.checkpointing:
        names = workload.checkpointing if isinstance(workload.checkpointing, tuple) else ()
        virtual.ledger.assume(enable_checkpointing(model, names))
    model.train()
    if workload.precision is Precision.BF16:
        model.to(torch.bfloat16)
    model.to(device)
    if workload.channels_last:
        _to_channels_last(model)
    virtual.adopt_model(model)
    optimizer = _optimizer(job, workload, model)
    scaler = torch.amp.GradScaler("cuda", enabled=workload.precision is Precision.AMP_FP16)
    autocast = _AUTOCAST.get(workload.precision)

    batches = job.batches()
    for step in range(workload.steps):
        if workload.zero_grad is ZeroGrad.BEFORE_FORWARD:
            optimizer.zero_grad(set_to_none=workload.set_to_none)
        for micro_batch in range(workload.accumulation):
            virtual.enter(Phase.INPUT, step)
            # As in a loop over a loader, the name passes to the host's batch first: the GPU's old one is free by then.
            batch = next(batches)
            batch = _on_device(batch, device, workload)
            virtual.label(batch, Category.INPUT)
            virtual.enter(Phase.FORWARD, step)
            with torch.autocast("cuda", dtype=autocast) if autocast else contextlib.nullcontext():
                if job.loss is not None:
                    loss = job.loss(model, batch)
                else:
                    output = run_model(model, batch)
                    loss = loss_of(output, batch)
                _check_loss(loss)
                if workload.accumulation > 1:
                    loss = loss / workload.accumulation
            if workload.zero_grad is ZeroGrad.BEFORE_BACKWARD and micro_batch == 0:
                optimizer.zero_grad(set_to_none=workload.set_to_none)
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if workload.zero_grad is ZeroGrad.AFTER_STEP:
            optimizer.zero_grad(set_to_none=workload.set_to_none)


def _optimizer(job: LoadedJob, workload: Workload, model: nn.Module) -> torch.optim.Optimizer:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise BadInput("the model has no parameter that requires a gradient: there is nothing to train.")
    if workload.optimizer is None and job.optimizer is not None:
        optimizer = job.optimizer(model.parameters())
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise BadInput(f"optimizer(params) must return a torch optimizer, not {type(optimizer).__name__}.")
        return optimizer
    return make_optimizer(workload.optimizer or "adamw", trained)


def _check_loss(loss: Any) -> None:
    if not isinstance(loss, torch.Tensor):
        raise BadInput(f"loss(model, batch) must return a tensor, not {type(loss).__name__}.")
    if loss.numel() != 1:
        raise BadInput(f"the loss must be a single number, but its shape is {tuple(loss.shape)}.")
    if not loss.requires_grad:
        raise BadInput("the loss does not depend on any trained parameter: backward() would fail.")


def _on_device(batch: Any, device: torch.device, workload: Workload) -> Any:
    def move(item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        if workload.precision is Precision.BF16 and item.dtype == torch.float32:
            item = item.to(torch.bfloat16)
        item = item.to(device)
        if workload.channels_last and item.dim() in (4, 5):
            item = item.contiguous(memory_format=_channels_last(item))
        return item

    if hasattr(batch, "to") and not isinstance(batch, torch.Tensor):
        return batch.to(device)
    return tree_map(move, batch)


def _channels_last(tensor: torch.Tensor) -> torch.memory_format:
    return torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d


def _to_channels_last(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() in (4, 5):
                parameter.data = parameter.data.contiguous(memory_format=_channels_last(parameter))
