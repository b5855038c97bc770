"""What can be changed to hold less memory, each with what it costs. Savings are never in here: they are captured."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from ..devices import Gpu
from ..estimation import Target
from ..simulate import AllocatorSettings
from ..simulate.cudnn import has_convolutions
from ..spec import (
    OPTIMIZER_KINDS,
    OPTIMIZERS,
    Adapter,
    DataParallel,
    JobKind,
    JobPhase,
    Objective,
    Parallel,
    Precision,
    Spec,
    Workload,
    ZeroGrad,
    split_optimizer,
)
from ..trace import Allocation, Category, Trace
from .recomputation import Recomputed, worth_recomputing

__all__ = ["BY_MODULE", "Harm", "Remedy", "remedies_for"]

BY_MODULE = "checkpoint-modules"
_BLOCK = 256
_SMALLEST_8BIT = 4096


class Harm(IntEnum):
    """What a remedy may cost, from nothing to a different training."""

    NONE = 0
    TIME = 1
    NUMERICS = 2
    TRAINING = 3


@dataclass(frozen=True)
class Remedy:
    key: str
    title: str
    part: str
    """What of the job it changes; of two that change the same part, only one can be taken."""
    harm: Harm
    cost: str
    """What it costs in time or accuracy."""
    source: str
    """Where that is said, or the physical reason."""
    flag: str
    """The options of oomcast that stand for it."""
    code: str
    """The line for the training script."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Fields of the workload."""
    alloc_conf: str = ""
    """Settings of the allocator, as PYTORCH_CUDA_ALLOC_CONF spells them."""
    formula: Callable[[Trace], Trace] | None = None
    """For what no capture can run here: applied to the Trace of the changed workload."""
    again: float = 0.0
    """The share of the forward pass that runs a second time."""
    versions: tuple[Remedy, ...] = ()
    """The same from its mildest to its strongest form, where it has several; the mildest that does is taken."""

    def apply(self, spec: Spec) -> Spec:
        if self.changes:
            spec = spec.with_workload(dataclasses.replace(spec.workload, **self.changes))
        if self.alloc_conf:
            settings = [text for text in (spec.place.alloc_conf, self.alloc_conf) if text]
            spec = spec.with_place(alloc_conf=",".join(settings))
        return spec


def remedies_for(
    workload: Workload, target: Target, base: Trace, optimizer: str | None, never_called: Collection[str] = ()
) -> tuple[Remedy, ...]:
    """Those that would change this job. `optimizer` is what it uses now, None where that cannot be told."""
    return (
        *_for_activations(workload, base, never_called),
        *_for_precision(workload, target.gpu),
        *_for_gradients(workload),
        *_for_optimizer(optimizer),
        *_for_batch(workload, base),
        *_for_fine_tuning(workload, base),
        *_for_sharding(workload),
        *_for_allocator(target),
        *_for_compiler(workload, target.gpu, base),
    )


def _for_activations(workload: Workload, base: Trace, never_called: Collection[str]) -> list[Remedy]:
    remedies = []
    if not workload.checkpointing:
        twice = "; batch norm updates its running statistics twice a step" if _has_batch_norm(base) else ""
        remedies.append(
            Remedy(
                "checkpointing",
                "recompute each repeated block's activations in backward",
                "activations",
                Harm.TIME,
                "about one more forward pass a step, a quarter to a third more time; the gradients stay the same"
                + twice,
                "Chen et al. 2016, arXiv:1604.06174; dropout repeats its mask, torch.utils.checkpoint keeps its state",
                "--checkpointing",
                "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) around each block",
                {"checkpointing": True},
                again=1.0,
            )
        )
        versions = tuple(_by_module(one, twice) for one in worth_recomputing(base, never_called))
        if versions:
            remedies.append(dataclasses.replace(versions[-1], versions=versions))
    if _can_offload(workload, base):
        recomputes = not workload.checkpointing
        remedies.append(
            Remedy(
                "checkpointing-offload",
                ("recompute each repeated block's activations, and keep" if recomputes else "keep")
                + " what the blocks are given in the host's memory",
                "activations",
                Harm.TIME,
                ("about one more forward pass a step; " if recomputes else "")
                + "the copies go on beside the work, but take time where the link to the host is slow, and as much "
                "pinned host memory as they save; the gradients stay the same",
                "torchtune's and TRL's OffloadActivations, unsloth's checkpointing",
                "--checkpointing --offload-activations" if recomputes else "--offload-activations",
                "SFTConfig(gradient_checkpointing=True, activation_offloading=True), or "
                "torch.autograd.graph.save_on_cpu(pin_memory=True) around the forward pass of a checkpointed model",
                {"checkpointing": workload.checkpointing or True, "offload_activations": True},
                again=1.0 if recomputes else 0.0,
            )
        )
    if has_convolutions(base) and not workload.channels_last:
        remedies.append(
            Remedy(
                "channels-last",
                "channels-last memory format",
                "layout",
                Harm.NONE,
                "none in accuracy; often faster with tensor cores, as nothing must be transposed for them",
                "torch's tutorial on channels last",
                "--channels-last",
                "model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)",
                {"channels_last": True},
            )
        )
    return remedies


def _can_offload(workload: Workload, base: Trace) -> bool:
    return (
        "torch" in base.versions
        and not workload.offload_activations
        and workload.phase is JobPhase.TRAINING
        and workload.compile is None
        and (workload.parallel is None or workload.parallel.pipeline == 1)
    )


def _by_module(chosen: Recomputed, twice: str) -> Remedy:
    names, count = ",".join(chosen.modules), len(chosen.modules)
    listed = names.replace(",", ", ") if count <= 6 else ", ".join((*chosen.modules[:5], f"… ({count} in all)"))
    return Remedy(
        BY_MODULE,
        f"recompute the activations of {'one module' if count == 1 else f'{count} modules'} in backward: {listed}",
        "activations",
        Harm.TIME,
        f"{'its forward runs' if count == 1 else 'their forwards run'} twice, which is where {chosen.share:.0%} of the "
        "forward pass's bytes are made; the gradients stay the same" + twice,
        "Chen et al. 2016, arXiv:1604.06174; dropout repeats its mask, torch.utils.checkpoint keeps its state",
        f"--checkpoint-modules {names}",
        "module.forward = functools.partial(torch.utils.checkpoint.checkpoint, module.forward, use_reentrant=False) "
        f"for {'this module' if count == 1 else 'these modules'}",
        {"checkpointing": chosen.modules},
        again=chosen.share,
    )


def _has_batch_norm(base: Trace) -> bool:
    return any("batch_norm" in allocation.operator for allocation in base.allocations)


def _for_precision(workload: Workload, gpu: Gpu) -> list[Remedy]:
    if workload.precision not in (Precision.FP32, Precision.TF32):
        return []
    remedies = [
        Remedy(
            "amp-fp16",
            "mixed precision, fp16",
            "precision",
            Harm.NUMERICS,
            f"{_speed(gpu)}; small gradients vanish without a loss scaler, which costs next to nothing",
            "Micikevicius et al. 2018, arXiv:1710.03740: accuracy kept with fp32 weights and loss scaling",
            "--precision amp-fp16",
            'torch.autocast("cuda", dtype=torch.float16) around the forward, torch.amp.GradScaler("cuda") for the step',
            {"precision": Precision.AMP_FP16},
        )
    ]
    if gpu.compute_capability >= (8, 0):
        remedies += [
            Remedy(
                "amp-bf16",
                "mixed precision, bf16",
                "precision",
                Harm.NUMERICS,
                "faster on tensor cores; 8 significant bits in products, the range of fp32, so no loss scaler",
                "the format: 8 bits of exponent as fp32, 7 of fraction; Kalamkar et al. 2019, arXiv:1905.12322",
                "--precision amp-bf16",
                'torch.autocast("cuda", dtype=torch.bfloat16) around the forward',
                {"precision": Precision.AMP_BF16},
            ),
            Remedy(
                "bf16",
                "weights, gradients and optimizer state in bf16",
                "precision",
                Harm.TRAINING,
                "faster; updates smaller than about 1/256 of a weight are rounded away, so training can stall",
                "the format: 7 bits of fraction; Zamirai et al. 2020, arXiv:2010.06192",
                "--precision bf16",
                "model.to(torch.bfloat16)",
                {"precision": Precision.BF16},
            ),
        ]
    return remedies


def _speed(gpu: Gpu) -> str:
    return "faster on tensor cores" if gpu.compute_capability >= (7, 0) else "not faster here: no tensor cores"


def _for_gradients(workload: Workload) -> list[Remedy]:
    remedies = []
    if not workload.set_to_none:
        remedies.append(
            Remedy(
                "set-to-none",
                "free gradients instead of filling them with zeros",
                "gradients",
                Harm.NONE,
                "none; slightly faster, as nothing is filled",
                "torch's documentation of Optimizer.zero_grad",
                "without --keep-gradients",
                "optimizer.zero_grad(set_to_none=True)",
                {"set_to_none": True},
            )
        )
    elif workload.zero_grad is ZeroGrad.BEFORE_BACKWARD:
        remedies.append(
            Remedy(
                "zero-grad-early",
                "free the gradients before the forward pass, not after it",
                "gradients",
                Harm.NONE,
                "none: the same numbers in another order",
                "gradients of the step before are not read in the forward pass",
                "--zero-grad before-forward",
                "optimizer.zero_grad() before the forward",
                {"zero_grad": ZeroGrad.BEFORE_FORWARD},
            )
        )
    return remedies


def _for_optimizer(name: str | None) -> list[Remedy]:
    base, variant = split_optimizer(name) if name else ("", "")
    remedies = []
    if base and variant in ("", "foreach"):
        remedies.append(
            Remedy(
                "foreach-off",
                "update parameter by parameter, without the foreach implementation",
                "optimizer",
                Harm.TIME,
                "more and smaller kernels: the optimizer's step is slower; the numbers stay the same",
                "torch's documentation of foreach: it takes about the size of the parameters more",
                f"--optimizer {base}-forloop",
                f"{_class(base)}(…, foreach=False)",
                {"optimizer": f"{base}-forloop"},
            )
        )
    if base and variant != "fused" and f"{base}-fused" in OPTIMIZERS:
        remedies.append(
            Remedy(
                "fused",
                "the fused implementation of the optimizer",
                "optimizer",
                Harm.NONE,
                "none: one kernel instead of many, mostly faster; sums may differ in the last bit",
                "torch's documentation of fused",
                f"--optimizer {base}-fused",
                f"{_class(base)}(…, fused=True)",
                {"optimizer": f"{base}-fused"},
            )
        )
    if base in ("adam", "adamw"):
        remedies += [
            Remedy(
                "sgd",
                "SGD with momentum for Adam: one state a parameter instead of two",
                "optimizer",
                Harm.TRAINING,
                "another training: the learning rate must be found anew; Transformers mostly train worse with it",
                "Zhang et al. 2020, arXiv:1912.03194",
                "--optimizer sgd-momentum",
                "torch.optim.SGD(params, lr=…, momentum=0.9)",
                {"optimizer": "sgd-momentum"},
            ),
            Remedy(
                "8-bit",
                "optimizer states in 8 bits (by formula)",
                "optimizer",
                Harm.NUMERICS,
                "about the speed of the fused optimizer; states are rounded in blocks of 256, needs bitsandbytes",
                "Dettmers et al. 2022, arXiv:2110.02861: 32-bit accuracy kept on their tasks",
                f"--optimizer {base}-fused, states by the formula",
                f"bitsandbytes.optim.{'AdamW8bit' if base == 'adamw' else 'Adam8bit'}(params, lr=…)",
                {"optimizer": f"{base}-fused"},
                formula=with_8bit_states,
            ),
        ]
    return remedies


def _for_batch(workload: Workload, base: Trace) -> list[Remedy]:
    size, by = workload.batch_size, workload.accumulation
    remedies = []
    norm = _has_batch_norm(base)
    for parts in (2, 4):
        if size % parts == 0:
            remedies.append(
                Remedy(
                    f"accumulate-{parts}",
                    f"{by * parts} micro-batches of {size // parts}: gradient accumulation, the same effective batch",
                    "batch",
                    Harm.TRAINING if norm else Harm.TIME,
                    "less for the GPU to do at once, so a step can take longer"
                    + ("; batch norm sees smaller batches" if norm else "; the same gradients but for rounding"),
                    "the loss is a mean over samples: the sum of the parts' gradients is the whole's",
                    f"--batch-size {size // parts} --accumulation {by * parts}",
                    f"(loss / {by * parts}).backward() for each part, then one optimizer.step()",
                    {"batch_size": size // parts, "accumulation": by * parts},
                )
            )
    if size > 1:
        remedies.append(
            Remedy(
                "half-batch",
                f"a batch of {size // 2} instead of {size}",
                "batch",
                Harm.TRAINING,
                "another training: noisier gradients, twice the steps for an epoch; the learning rate may need change",
                "Goyal et al. 2017, arXiv:1706.02677: the learning rate goes with the batch",
                f"--batch-size {size // 2}",
                f"DataLoader(…, batch_size={size // 2})",
                {"batch_size": size // 2},
            )
        )
    return remedies


def _for_fine_tuning(workload: Workload, base: Trace) -> list[Remedy]:
    """For models of transformers, which oomcast can build in another way."""
    if workload.job.kind not in (JobKind.HF, JobKind.CONFIG) or workload.phase is not JobPhase.TRAINING:
        return []
    remedies = []
    adapter = Adapter.create("lora", r=16, target_modules="all-linear")
    if workload.adapter is None:
        remedies.append(
            Remedy(
                "lora",
                "train an adapter (LoRA of rank 16 on every linear layer) beside frozen weights in bf16",
                "weights",
                Harm.TRAINING,
                "another training: it learns less than full fine-tuning where much is to be learnt; no slower",
                "Hu et al. 2021, arXiv:2106.09685; Biderman et al. 2024, arXiv:2405.09673",
                "--adapter lora,r=16,target_modules=all-linear --weights bf16",
                'peft.get_peft_model(model, peft.LoraConfig(r=16, target_modules="all-linear"))',
                {"adapter": adapter, "weights": "bf16"},
            )
        )
    if workload.quantization is None:
        remedies.append(
            Remedy(
                "qlora",
                "the same beside weights in 4 bits (QLoRA)" if workload.adapter is None else "frozen weights in 4 bits",
                "weights",
                Harm.TRAINING if workload.adapter is None else Harm.NUMERICS,
                "a step takes about a third longer, as weights are unpacked each time; needs bitsandbytes",
                "Dettmers et al. 2023, arXiv:2305.14314: the accuracy of 16-bit adapters kept on their tasks",
                "--adapter lora,r=16,target_modules=all-linear --quantization nf4-double --weights bf16",
                'BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)',
                {"adapter": workload.adapter or adapter, "quantization": "nf4-double", "weights": "bf16"},
            )
        )
    if not workload.fused_loss and workload.loss_chunks == 1 and workload.objective is Objective.SFT:
        remedies.append(
            Remedy(
                "fused-loss",
                "head and loss in one kernel (Liger): all logits are never held",
                "loss",
                Harm.NONE,
                "none in accuracy beyond rounding, about as fast; needs liger-kernel, and a language model",
                "Hsu et al. 2024, arXiv:2410.10989",
                "--fused-loss",
                "TrainingArguments(use_liger_kernel=True)",
                {"fused_loss": True},
            )
        )
    remedies += _for_lengths(workload)
    tokens = None if workload.lengths else workload.seq_len or _tokens(base)
    if tokens is not None and tokens > 1:
        remedies.append(
            Remedy(
                "shorter",
                f"samples of {tokens // 2:,} tokens instead of {tokens:,}",
                "length",
                Harm.TRAINING,
                "another training: longer samples are cut, or packed into more of them",
                "activations and logits grow with the tokens of a batch",
                f"--seq-len {tokens // 2}",
                f"max_length={tokens // 2}",
                {"seq_len": tokens // 2},
            )
        )
    return remedies


def _for_lengths(workload: Workload) -> list[Remedy]:
    if not workload.lengths:
        return []
    longest = max(workload.lengths)
    return [
        Remedy(
            "packing",
            f"samples packed to {longest:,} tokens each, instead of batches of different lengths",
            "length",
            Harm.TRAINING,
            "no padding, so an epoch is faster; a step sees more samples than before, and attention must keep them "
            "apart (flash attention with position ids)",
            "blocks of one length serve every batch; Krell et al. 2021, arXiv:2107.02027",
            f"--seq-len {longest} without --lengths",
            f"SFTConfig(packing=True, max_length={longest})",
            {"lengths": (), "seq_len": longest},
        )
    ]


_SHARDED = (DataParallel.FSDP, DataParallel.FSDP2, DataParallel.ZERO2, DataParallel.ZERO3)
_ALONE = "needs DeepSpeed, which brings its own optimizer loop"


def _for_sharding(workload: Workload) -> list[Remedy]:
    """Of a job on several GPUs whose states each of them holds."""
    layout = workload.parallel
    if layout is None:
        return []
    remedies = []

    def offer(key: str, title: str, cost: str, code: str, changed: Parallel) -> None:
        remedies.append(
            Remedy(
                key,
                title,
                "sharding",
                Harm.TIME,
                f"{cost}; the same sums but for their order",
                "Rajbhandari et al. 2020, arXiv:1910.02054; Zhao et al. 2023, arXiv:2304.11277",
                f"--parallel {changed}",
                code,
                {"parallel": changed},
            )
        )

    if layout.data is DataParallel.DDP:
        offer(
            "fsdp2",
            "each GPU holds a share of parameters, gradients and optimizer states (FSDP2)",
            "half as much traffic again: parameters are gathered for each block, forward and backward",
            "torch.distributed.fsdp.fully_shard(block) for each block, then fully_shard(model)",
            dataclasses.replace(layout, data=DataParallel.FSDP2),
        )
        if layout == Parallel(DataParallel.DDP):
            offer(
                "zero2",
                "each GPU holds a share of gradients and optimizer states (ZeRO-2)",
                f"as much traffic as before; {_ALONE}",
                '{"zero_optimization": {"stage": 2}} in DeepSpeed\'s configuration',
                Parallel(DataParallel.ZERO2),
            )
    if layout.keeps_gathered:
        offer(
            "reshard",
            "parameters that a block gathered for its forward pass are let go after it",
            "they are gathered a second time, for backward",
            "fully_shard(block, reshard_after_forward=True)",
            dataclasses.replace(layout, keeps_gathered=False),
        )
    if layout.data in _SHARDED and not layout.offload:
        offer(
            "offload-states",
            "shares of parameters, gradients and optimizer states in the host's memory",
            "the optimizer runs on the host, and every step copies over its link: often several times slower",
            "fully_shard(…, offload_policy=CPUOffloadPolicy())",
            dataclasses.replace(layout, offload=True),
        )
    return remedies


def _tokens(base: Trace) -> int | None:
    """Of a sample, where the job leaves it to the model: the last extent of the whole numbers that it is fed."""
    fed = (made for made in base.allocations if made.category is Category.INPUT and made.dtype == "int64")
    return next((made.shape[-1] for made in fed if len(made.shape) == 2), None)


_TRITON = (7, 0)
"""The oldest compute capability that the compiler's kernels run on (torch/utils/_triton.py)."""


def _for_compiler(workload: Workload, gpu: Gpu, base: Trace) -> list[Remedy]:
    """Models of transformers block by block, which is sooner done: their blocks are alike."""
    if workload.compile is not None or "torch" not in base.versions or gpu.compute_capability < _TRITON:
        return []
    by_block = workload.job.kind in (JobKind.HF, JobKind.CONFIG)
    return [
        Remedy(
            "compile",
            "compile " + ("each block" if by_block else "the model") + ": fused kernels, and less kept for backward",
            "compiler",
            Harm.NONE,
            "none once it is compiled, mostly faster; the first step takes a minute or more; the last bits may differ",
            "torch's documentation of torch.compile",
            "--compile-blocks" if by_block else "--compile",
            "for block in model.model.layers: block.compile()" if by_block else "model = torch.compile(model)",
            {"compile": "blocks" if by_block else "model"},
        )
    ]


def _for_allocator(target: Target) -> list[Remedy]:
    if not isinstance(target.settings, AllocatorSettings) or target.settings.expandable_segments:
        return []
    return [
        Remedy(
            "expandable-segments",
            "let the allocator's segments grow instead of taking new ones",
            "allocator",
            Harm.NONE,
            "none to speak of; torch calls it experimental, and it is not there on Windows",
            "torch's notes on CUDA memory management",
            "--alloc-conf expandable_segments:True",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            alloc_conf="expandable_segments:True",
        )
    ]


def with_8bit_states(trace: Trace) -> Trace:
    """bitsandbytes' layout: a byte for each value and a 4-byte scale for each block of 256; small tensors stay."""
    return dataclasses.replace(trace, allocations=tuple(map(_in_8bit, trace.allocations)))


def _in_8bit(made: Allocation) -> Allocation:
    count = math.prod(made.shape)
    if made.category is not Category.OPTIMIZER_STATE or not made.shape or count < _SMALLEST_8BIT:
        return made
    return dataclasses.replace(made, nbytes=min(made.nbytes, count + 4 * -(-count // _BLOCK)), dtype="uint8")


def _class(base: str) -> str:
    kind = OPTIMIZER_KINDS[base]
    return f"{kind.library}.optim.{kind.class_name}"
