"""The training loop that a job stands for, written as a user would write it; the virtual GPU records it."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn
from torch.utils._pytree import tree_map

from ...errors import BadInput
from ...spec import DEFAULT_OPTIMIZER, JobKind, Precision, TrainingLoop, Workload, ZeroGrad
from ...trace import Category, Phase
from .blocks import keep_first_blocks, repeated_blocks
from .checkpointing import enable_checkpointing
from .generation import generate
from .jobs import LoadedJob, learns_from, loss_of, run_model
from .keras_training import is_keras_model, run_keras
from .machine import VirtualGpu
from .offloading import OffloadedActivations
from .optimizers import MasterWeights, OptimizerInBackward, make_optimizer

if TYPE_CHECKING:
    from .distributed import Pipeline, Spread

__all__ = [
    "AUTOCAST",
    "Steps",
    "build_model",
    "compile_blocks",
    "compile_model",
    "on_device",
    "put_on_gpu",
    "run_training",
]

AUTOCAST = {Precision.AMP_FP16: torch.float16, Precision.AMP_BF16: torch.bfloat16}


_NO_LABELS = "the batch has no labels: the mean of the output is trained; --phase inference follows the forward alone"


class Steps(Protocol):
    """The model as the loop calls it, and what the loop does with a loss."""

    @property
    def model(self) -> nn.Module: ...
    def zero_grad(self, set_to_none: bool) -> None: ...
    def backward(self, loss: torch.Tensor, is_last: bool) -> None:
        """`is_last`: of the micro-batches whose gradients are summed."""

    def step(self) -> None: ...


@dataclass(frozen=True)
class _PlainSteps:
    model: nn.Module
    optimizer: Any
    scaler: torch.amp.GradScaler
    pipeline: Pipeline | None = None
    """Of a pipeline, where the model is cut into stages."""

    def zero_grad(self, set_to_none: bool) -> None:
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def backward(self, loss: torch.Tensor, is_last: bool) -> None:
        self.scaler.scale(loss).backward()

    def step(self) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()


def run_training(virtual: VirtualGpu, job: LoadedJob, workload: Workload, spread: Spread | None = None) -> None:
    """Build the model, move it to the GPU, or spread it over several, and train it for a few steps."""
    device = torch.device("cuda")
    shared = None if workload.vllm_share is None else _share_with_vllm(virtual, workload.vllm_share)
    built = build_model(virtual, job, workload, spread)
    if is_keras_model(built):
        run_keras(virtual, built, job, workload)
        return
    steps = _prepared(virtual, job, built, workload, spread)
    model, zero_grad = steps.model, workload.zero_grad
    offloaded = _offloaded(virtual, model, workload)
    autocast = None if spread is not None and spread.mixes_by_itself else AUTOCAST.get(workload.precision)

    batches, answers = job.batches(), None
    if isinstance(steps, _PlainSteps) and steps.pipeline is not None:
        assert spread is not None
        _run_pipeline(virtual, job, workload, steps, steps.pipeline, spread)
        _tell_host(steps, spread)
        virtual.job_ends()
        return
    # Batches of different lengths all come; the first one a second time, once the optimizer has its state.
    needed = math.ceil((len(workload.lengths) + 1) / workload.accumulation)
    last = (max(workload.steps, needed) if workload.lengths else workload.steps) - 1
    alike = _steps_are_alike(job, workload, spread)
    for step in range(last + 1):
        begin = virtual.moment()
        if zero_grad is ZeroGrad.BEFORE_FORWARD:
            steps.zero_grad(workload.set_to_none)
        if job.prompts is not None:
            answers = _answer_prompts(virtual, model, job.prompts(), workload, step)
        if job.score is not None:
            job.score(model)
        for micro_batch in range(workload.accumulation):
            virtual.enter(Phase.INPUT, step)
            # As in a loop over a loader, the name passes to the host's batch first: the GPU's old one is free by then.
            batch = next(batches)
            batch = on_device(batch, device, workload)
            virtual.label(batch, Category.INPUT)
            with contextlib.nullcontext() if spread is None else spread.sequences(batch):
                virtual.enter(Phase.FORWARD, step)
                with (
                    torch.autocast("cuda", dtype=autocast) if autocast else contextlib.nullcontext(),
                    contextlib.nullcontext() if offloaded is None else offloaded,
                    virtual.loss(),
                ):
                    if job.loss is not None:
                        loss = job.loss(model, batch)
                    else:
                        output = run_model(model, batch)
                        loss = loss_of(output, batch)
                        if step == micro_batch == 0 and not learns_from(output, batch):
                            virtual.ledger.assume(_NO_LABELS)
                    _check_loss(loss)
                    if workload.accumulation > 1:
                        loss = loss / workload.accumulation
                if zero_grad is ZeroGrad.BEFORE_BACKWARD and micro_batch == 0:
                    steps.zero_grad(workload.set_to_none)
                if workload.training_loop is TrainingLoop.HF_TRAINER:
                    _empty_cache(workload, step)  # trainer.py, training_step: in the first step, too
                steps.backward(loss, micro_batch == workload.accumulation - 1)
                if offloaded is not None:
                    offloaded.forget()
        steps.step()
        if zero_grad is ZeroGrad.AFTER_STEP:
            steps.zero_grad(workload.set_to_none)
        if workload.training_loop is not TrainingLoop.HF_TRAINER:
            _empty_cache(workload, step + 1)
        if alike and 0 < step < last and virtual.goes_on_as_since(begin, last - step):
            break  # it left what it had found, so that the next ones would do the same: they are written down, not run
    _tell_host(steps, spread)
    del shared, answers
    virtual.job_ends()


def _steps_are_alike(job: LoadedJob, workload: Workload, spread: Spread | None) -> bool:
    """Whether all steps get batches of one kind, and the loop does the same in each. The first is another: it makes the
    optimizer's state. What an engine has seen of the steps before decides what DeepSpeed gathers ahead."""
    has_engine = spread is not None and spread.has_engine
    varies = job.loader is not None or job.prompts is not None or workload.lengths or workload.empty_cache_steps
    return not (has_engine or varies)


def _offloaded(virtual: VirtualGpu, model: nn.Module, workload: Workload) -> OffloadedActivations | None:
    if not workload.offload_activations:
        return None
    by_trl = workload.training_loop is TrainingLoop.HF_TRAINER
    virtual.ledger.assume(
        f"activations wait in the host's memory, which is not counted, as {'TRL' if by_trl else 'torchtune'} offloads "
        "them: the last five, and the head's, stay on the GPU"
    )
    return OffloadedActivations(model, as_trl=by_trl)


def _empty_cache(workload: Workload, steps_done: int) -> None:
    if workload.empty_cache_steps is not None and steps_done % workload.empty_cache_steps == 0:
        torch.cuda.empty_cache()


def _tell_host(steps: Steps, spread: Spread | None) -> None:
    """What was put off to the host's memory is told."""
    if spread is None or not (spread.parallel.offload or spread.parallel.nvme):
        return
    if isinstance(steps, _PlainSteps):
        spread.tell_host(steps.model, steps.optimizer)
    else:
        spread.tell_host_of_engine(steps)


def _answer_prompts(virtual: VirtualGpu, model: nn.Module, prompts: Any, workload: Workload, step: int) -> Any:
    """The model generates what it will learn from: in eval mode, so that nothing is checkpointed and all is cached.

    What is kept of it until the next answers are there, if anything, is returned.
    """
    autocast = AUTOCAST.get(workload.precision)
    model.eval()
    virtual.enter(Phase.INPUT, step)
    prompts = on_device(prompts, torch.device("cuda"), workload)
    with torch.no_grad(), torch.autocast("cuda", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
        kept = generate(virtual, model, prompts, workload, step)
    model.train()
    return kept


def _share_with_vllm(virtual: VirtualGpu, share: float) -> torch.Tensor:
    """A vLLM in the same process takes its share of the card at once: weights of its own, and a cache that fills it."""
    total = torch.cuda.get_device_properties(0).total_memory
    virtual.ledger.assume(f"vLLM in the same process holds {share:g} of the card throughout, its own weights included")
    return torch.empty(int(total * share), dtype=torch.uint8, device="cuda")


def _prepared(
    virtual: VirtualGpu, job: LoadedJob, model: nn.Module, workload: Workload, spread: Spread | None
) -> Steps:
    """The model on the GPU, with its optimizer."""
    if workload.checkpointing:
        names = workload.checkpointing if isinstance(workload.checkpointing, tuple) else ()
        virtual.ledger.assume(enable_checkpointing(model, names))
    if not model.training and workload.job.kind in (JobKind.FILE, JobKind.OBJECT):
        virtual.ledger.assume(
            "model() returns the model in eval mode; it is trained here, in train mode: --phase inference follows it "
            "as it is"
        )
    model.train()
    if workload.optimizer is None and job.optimizer is None:
        virtual.ledger.assume("the optimizer is AdamW, since neither the job nor --optimizer names one")
    compile_blocks(model, workload)
    if spread is not None and spread.has_engine:
        steps = spread.engine(model, lambda: _optimizer(virtual, job, workload, model), workload)
        virtual.adopt_model(model)
        return steps
    pipeline = None
    if spread is None:
        model = put_on_gpu(virtual, model, workload)
    else:
        pipeline = spread.pipeline(model, lambda whole: _loss(job, whole, spread.sample(job.batch())))
        model = _spread_out(job, model, spread, pipeline)
        virtual.adopt_model(model)
    optimizer = _optimizer(virtual, job, workload, model)
    scaler = torch.amp.GradScaler("cuda", enabled=workload.precision is Precision.AMP_FP16)
    if pipeline is not None:
        pipeline.put(lambda part: compile_model(part, workload))
    else:
        model = compile_model(model, workload)
    return _PlainSteps(model, optimizer, scaler, pipeline)


def _spread_out(job: LoadedJob, model: nn.Module, spread: Spread, pipeline: Pipeline | None) -> nn.Module:
    if pipeline is None:
        return spread.place(model, job.tensor_parallel_plan)
    return pipeline.put(lambda part: spread.place(part, job.tensor_parallel_plan))


def _loss(job: LoadedJob, model: nn.Module, batch: Any) -> torch.Tensor:
    return job.loss(model, batch) if job.loss is not None else loss_of(run_model(model, batch), batch)


def _run_pipeline(
    virtual: VirtualGpu, job: LoadedJob, workload: Workload, steps: _PlainSteps, pipeline: Pipeline, spread: Spread
) -> None:
    """The loop of one rank of a pipeline: micro-batches are those whose gradients are summed."""
    device = torch.device("cuda")
    autocast = None if spread.mixes_by_itself else AUTOCAST.get(workload.precision)
    micro_batches = workload.accumulation
    if micro_batches == 1:
        micro_batches = pipeline.parallel.pipeline
        virtual.ledger.assume(f"{micro_batches} micro-batches of batch-size samples, as --accumulation does not say")
    run = pipeline.micro_batches_to_run(micro_batches)
    if run < micro_batches:
        virtual.ledger.assume(f"{run} of the {micro_batches} micro-batches are followed; the others repeat them")
    batches = job.batches()
    loaded: list[Any] = []
    used: Counter[nn.Module] = Counter()

    def load() -> Any:
        batch = on_device(next(batches), device, workload)
        virtual.label(batch, Category.INPUT)
        return batch

    def forward(model: nn.Module) -> torch.Tensor:
        batch = loaded[used[model]] if loaded else load()
        used[model] += 1
        virtual.enter(Phase.FORWARD)
        with torch.autocast("cuda", dtype=autocast) if autocast else contextlib.nullcontext():
            loss = _loss(job, model, batch)
            _check_loss(loss)
            return loss / micro_batches

    # Sequences are cut from a step's first forward to its last backward: all micro-batches are there by then.
    ahead = micro_batches if pipeline.takes_batches else run * spread.cuts_sequences
    group = spread.mesh()["pp"].get_group()
    for step in range(workload.steps):
        virtual.enter(Phase.FORWARD, step)
        steps.zero_grad(workload.set_to_none)
        used.clear()
        loaded[:] = [load() for _ in range(ahead)]
        with spread.sequences(loaded):
            pipeline.step(micro_batches, forward, group)
        steps.step()


def build_model(virtual: VirtualGpu, job: LoadedJob, workload: Workload, spread: Spread | None = None) -> nn.Module:
    """The job's model in the type that the workload asks for, on the host or where the job puts it."""
    for sentence in (*workload.notes, *job.assumptions):
        virtual.ledger.assume(sentence)
    virtual.enter(Phase.BUILD, -1)
    torch.backends.cuda.matmul.allow_tf32 = workload.precision is Precision.TF32
    if spread is not None:
        spread.start()
    model = job.model()
    if not isinstance(model, nn.Module):
        raise BadInput(f"model() must return a torch.nn.Module, not {type(model).__name__}.")
    if workload.blocks is not None:  # before anything is loaded: what is left out never is
        virtual.ledger.assume(keep_first_blocks(model, workload.blocks))
    if job.frozen is not None:
        with virtual.ledger.during(Phase.LOADING):
            for part in job.frozen():
                virtual.adopt_model(part)
    if job.load is not None:
        with virtual.ledger.during(Phase.LOADING):
            model = job.load(model)
    if job.tune is not None:
        model = job.tune(model)
    for sentence in job.about_model(model):
        virtual.ledger.assume(sentence)
    if workload.precision is Precision.BF16 and workload.weights is None:
        model.to(torch.bfloat16)
    return model


def compile_blocks(model: nn.Module, workload: Workload) -> None:
    """Regional compilation: each repeated block by itself, in the place of the block."""
    if workload.compile != "blocks":
        return
    blocks = set(repeated_blocks(model))
    if not blocks:
        raise BadInput("--compile-blocks was asked for, but the model has no repeated blocks; use --compile.")
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if child in blocks:
                parent.register_module(name, torch.compile(child))  # type: ignore[arg-type]


def compile_model(model: nn.Module, workload: Workload) -> nn.Module:
    """The model as the loop calls it."""
    return torch.compile(model) if workload.compile == "model" else model  # type: ignore[return-value]


def put_on_gpu(virtual: VirtualGpu, model: nn.Module, workload: Workload) -> nn.Module:
    # A model was on the GPU before its adapter came. What peft leaves on the host then (BOFT's permutations) is copied
    # whenever it is used, unless somebody moves the whole model once more, as Trainer does.
    if workload.adapter is None or workload.training_loop is not TrainingLoop.PLAIN:
        model = model.to(torch.device("cuda"))
    if workload.channels_last:
        _to_channels_last(model)
    virtual.adopt_model(model)
    return model


def _optimizer(virtual: VirtualGpu, job: LoadedJob, workload: Workload, model: nn.Module) -> Any:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise BadInput("the model has no parameter that requires a gradient: there is nothing to train.")
    if workload.optimizer is None and job.optimizer is not None:
        optimizer = job.optimizer(model.parameters())
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise BadInput(f"optimizer(params) must return a torch optimizer, not {type(optimizer).__name__}.")
        return optimizer
    name = workload.optimizer or DEFAULT_OPTIMIZER
    if name.startswith("paged-"):
        virtual.ledger.assume("paged optimizer states are counted on the GPU, where they stay while there is room")
    if "-offload-" in name:
        virtual.ledger.assume(
            "the optimizer's states, and copies of what is trained, are in the host's memory: not counted"
        )
    if workload.optimizer_in_backward:
        return OptimizerInBackward(name, trained, virtual.torch_version)
    if workload.master_weights:
        return MasterWeights(name, trained, virtual.torch_version)
    return make_optimizer(name, _by_mesh(trained), virtual.torch_version)


def _by_mesh(parameters: list[nn.Parameter]) -> Any:
    """foreach kernels take no DTensors of different meshes at once: a group for each, as users write it."""
    groups: dict[Any, list[nn.Parameter]] = {}
    for parameter in parameters:
        groups.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    return parameters if len(groups) == 1 else [{"params": group} for group in groups.values()]


def _check_loss(loss: Any) -> None:
    if not isinstance(loss, torch.Tensor):
        raise BadInput(f"loss(model, batch) must return a tensor, not {type(loss).__name__}.")
    if loss.numel() != 1:
        raise BadInput(f"the loss must be a single number, but its shape is {tuple(loss.shape)}.")
    if not loss.requires_grad:
        raise BadInput("the loss does not depend on any trained parameter: backward() would fail.")


def on_device(batch: Any, device: torch.device, workload: Workload) -> Any:
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
