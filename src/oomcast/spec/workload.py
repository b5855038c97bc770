"""A job with everything that decides its memory: sizes, optimizer, precision, the shape of its training loop."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..errors import BadInput
from .job import Job, JobKind
from .optimizers import DEFAULT_OPTIMIZER, OPTIMIZER_KINDS, OPTIMIZERS
from .options import (
    Flag,
    Kind,
    Number,
    OneOf,
    Switch,
    Text,
    Whole,
    as_plain,
    list_or_text,
    option,
    read_description,
    read_fields,
)
from .parallel import Parallel, ParallelText
from .tuning import (
    ATTENTIONS,
    HEADS,
    KV_CACHES,
    PRECOMPUTED,
    QAT,
    QUANTIZATIONS,
    WEIGHTS,
    WITHOUT_DERIVATIVE,
    Adapter,
    AdapterText,
    JobPhase,
    Loading,
    Names,
    Objective,
    Sentences,
    TrainingLoop,
)

__all__ = ["FRAMEWORKS", "Precision", "Workload", "ZeroGrad", "parse_input_shape"]


class Precision(str, Enum):
    """`fp32` means torch's defaults on the target: TF32 convolutions and fp32 matmuls on Ampere and later."""

    FP32 = "fp32"
    TF32 = "tf32"
    AMP_FP16 = "amp-fp16"
    AMP_BF16 = "amp-bf16"
    BF16 = "bf16"


class ZeroGrad(str, Enum):
    """Where `optimizer.zero_grad()` stands in the step."""

    BEFORE_FORWARD = "before-forward"
    BEFORE_BACKWARD = "before-backward"
    AFTER_STEP = "after-step"


FRAMEWORKS: tuple[str, ...] = ("torch", "tensorflow", "jax", "mxnet", "onnx")
"""The frameworks a job can be written in; Keras jobs are TensorFlow's."""
_SPELLINGS = {"keras": "tensorflow", "tf": "tensorflow", "pytorch": "torch"}


COMPILED: tuple[str, ...] = ("model", "blocks")
"""What `torch.compile` is called with: the whole model, or each repeated block (regional compilation)."""


class _Extents(Kind):
    words = "a shape such as 3x224x224"
    is_closed = True

    def read(self, value: Any) -> tuple[int, ...]:
        extents = parse_input_shape(value) if isinstance(value, str) else value
        if not isinstance(extents, Iterable):
            raise BadInput(f"cannot read {value!r} as an input shape; write it like 3x224x224, without the batch.")
        every = Whole("extents of the input shape")
        return tuple(every.read(extent) for extent in extents)

    def spell(self, value: Any) -> str:
        return "x".join(map(str, value))

    def schema(self) -> dict[str, Any]:
        return list_or_text({"type": "integer", "minimum": 1}, self.words)


class _Lengths(Kind):
    words = "whole numbers with commas"

    def read(self, value: Any) -> tuple[int, ...]:
        listed = value.split(",") if isinstance(value, str) else value
        if not isinstance(listed, Iterable):
            raise BadInput(f"cannot read {value!r} as lengths of batches; write them like 812,2048,91.")
        each = Whole("lengths of batches")
        return tuple(each.parse(part) if isinstance(part, str) else each.read(part) for part in listed)

    def schema(self) -> dict[str, Any]:
        return list_or_text({"type": "integer", "minimum": 1}, self.words)


class _Modules(Kind):
    words = "true, false, or names of modules"

    def read(self, value: Any) -> bool | tuple[str, ...]:
        if isinstance(value, bool):
            return value
        parts = value.split(",") if isinstance(value, str) else value if isinstance(value, Iterable) else (value,)
        listed = tuple(parts)
        if not all(isinstance(name, str) for name in listed):
            raise BadInput(f"checkpointing must be true, false, or names of modules like 'layers.0', not {value!r}.")
        names = tuple(name.strip() for name in listed)
        if "" in names:
            raise BadInput(f"checkpointing was given an empty name of a module in {value!r}; write them like layers.0.")
        return names or False

    def schema(self) -> dict[str, Any]:
        texts = list_or_text({"type": "string"}, self.words)
        return {**texts, "anyOf": [{"type": "boolean"}, *texts["anyOf"]]}


@dataclass(frozen=True)
class Workload:
    """One training job as it will run. `None` leaves a choice to the job."""

    job: Job
    batch_size: int = option(1, Whole("batch size"), help="samples per step and GPU", metavar="N")
    input_shape: tuple[int, ...] | None = option(
        None, _Extents(), help="shape of one sample, like 3x224x224", metavar="CxHxW"
    )
    seq_len: int | None = option(None, Whole("sequence length"), help="tokens per sample", metavar="N")
    lengths: tuple[int, ...] = option(
        (),
        _Lengths(),
        help="tokens per sample of one batch after the other, like 812,2048,91, of models of transformers: blocks of "
        "one length do not serve another, so texts of different lengths reserve more",
        metavar="N,N,…",
        left_out_by_default=True,
    )
    optimizer: str | None = option(
        None,
        OneOf("optimizer", OPTIMIZERS),
        help=f"{', '.join(OPTIMIZER_KINDS)}; with -fused, -foreach or -forloop to fix the implementation (default: the "
        f"job's own, else {DEFAULT_OPTIMIZER})",
        metavar="NAME",
    )
    precision: Precision = option(
        Precision.FP32,
        OneOf("precision", Precision),
        help=f"{', '.join(p.value for p in Precision)} (default: fp32, torch's defaults)",
        metavar="NAME",
    )
    channels_last: bool = option(False, Switch("channels_last"), help="NHWC memory format")
    accumulation: int = option(
        1,
        Whole("gradient accumulation"),
        help="micro-batches of batch-size samples whose gradients are summed for one optimizer step (default: 1)",
        metavar="N",
    )
    checkpointing: bool | tuple[str, ...] = option(
        False,
        _Modules(),
        help="recompute in backward: each repeated block, or the modules of these names",
        flags=(
            Flag("--checkpointing", "recompute each repeated block in backward", value=True),
            Flag("--checkpoint-modules", "recompute these modules only, like layers.0,layers.1 or layers.*", "NAMES"),
        ),
    )
    offload_activations: bool = option(
        False,
        Switch("offload_activations"),
        help="what is kept for backward waits in the host's memory, as TRL and torchtune do it; with --checkpointing "
        "that is what the blocks are given, as unsloth does it",
        left_out_by_default=True,
    )
    blocks: int | None = option(
        None,
        Whole("number of blocks"),
        help="keep only the first N of the model's repeated blocks; the difference of two answers is what blocks add",
        metavar="N",
        left_out_by_default=True,
    )
    compile: str | None = option(
        None,
        OneOf("part to compile", COMPILED),
        help="torch.compile, as Inductor compiles for the GPU: the model, or its repeated blocks one by one",
        flags=(
            Flag("--compile", "torch.compile the model, as Inductor compiles it for the GPU", value="model"),
            Flag("--compile-blocks", "torch.compile each repeated block by itself", value="blocks"),
        ),
        left_out_by_default=True,
    )
    zero_grad: ZeroGrad = option(
        ZeroGrad.BEFORE_FORWARD,
        OneOf("place for zero_grad", ZeroGrad),
        help=f"where zero_grad() stands: {', '.join(z.value for z in ZeroGrad)} (default: before-forward)",
        metavar="WHERE",
    )
    set_to_none: bool = option(
        True,
        Switch("set_to_none"),
        help="whether zero_grad() drops the gradients",
        flags=(Flag("--keep-gradients", "zero_grad(set_to_none=False)", value=False),),
    )
    steps: int = option(
        3,
        Whole("number of steps"),
        help="training steps to follow (default: 3); optimizer state appears in the first, so the peak is often later",
        metavar="N",
    )
    empty_cache_steps: int | None = option(
        None,
        Whole("number of steps"),
        help="the loop calls torch.cuda.empty_cache() after every N steps, or, as Trainer does, before their backward",
        metavar="N",
        left_out_by_default=True,
    )
    framework: str | None = option(
        None,
        OneOf("framework", FRAMEWORKS, _SPELLINGS),
        help=f"{', '.join(FRAMEWORKS)} (default: what the job's model() returns)",
        metavar="NAME",
        left_out_by_default=True,
    )

    parallel: Parallel | None = option(
        None,
        ParallelText(),
        help="how the job is spread over several GPUs (--device 8xh100-80gb): ddp, fsdp, fsdp2, zero1, zero2, zero3, "
        "tp=N, pp=N, cp=N, ep=N, replicate=N, no-reshard, reduce-half, offload, nvme, static-graph, bucket-view, "
        "schedule=interleaved|zero-bubble|zbv, pieces=N; several with commas, like fsdp2,tp=2",
        metavar="LAYOUT",
        left_out_by_default=True,
    )
    phase: JobPhase = option(
        JobPhase.TRAINING,
        OneOf("phase", JobPhase),
        help="training (default), eval or inference (forward passes without gradients), or generate (a prompt of "
        "--seq-len tokens, then --new-tokens more, with a KV cache)",
        metavar="NAME",
        left_out_by_default=True,
    )
    new_tokens: int = option(
        128,
        Whole("number of new tokens"),
        help="tokens that --phase generate, --objective grpo, rloo and ppo add to each prompt (default: 128)",
        metavar="N",
        left_out_by_default=True,
    )

    kv_cache: str | None = option(
        None,
        OneOf("KV cache", KV_CACHES),
        help="what keys and values are kept as while tokens are generated: fp8, int4 or int2 (default: as computed)",
        metavar="NAME",
        left_out_by_default=True,
    )

    # Fine-tuning: models of transformers (hf:NAME) and configuration files.
    model: str | None = option(
        None,
        Text("model"),
        help="of a configuration file that names none, or instead of its own: hf:NAME or a config.json",
        metavar="MODEL",
        left_out_by_default=True,
    )
    configs: tuple[str, ...] = option(
        (),
        Names("configuration files"),
        help="further configuration files of the job, like DeepSpeed's or an adapter's; several with commas",
        metavar="FILES",
        left_out_by_default=True,
    )
    adapter: Adapter | None = option(
        None,
        AdapterText(),
        help="a method of peft, with settings: lora, lora,r=16,target_modules=q_proj+v_proj, ia3, …",
        metavar="METHOD",
        left_out_by_default=True,
    )
    quantization: str | None = option(
        None,
        OneOf("quantisation", QUANTIZATIONS),
        help="weights as bitsandbytes, GPTQ, AWQ, HQQ or torchao hold them, with an adapter: "
        + ", ".join(QUANTIZATIONS),
        metavar="NAME",
        left_out_by_default=True,
    )
    qat: str | None = option(
        None,
        OneOf("kind of fake quantisation", QAT),
        help="train as if the linear layers were quantised (torchao's quantisation-aware training): weights, or "
        f"activations and weights: {', '.join(QAT)}",
        metavar="NAME",
        left_out_by_default=True,
    )
    loading: Loading | None = option(
        None,
        OneOf("way of loading", Loading),
        help="how the weights come onto the GPU: device-map (transformers takes a block for all of them first), whole "
        "(all are there before the first is quantised); default: one after the other",
        metavar="NAME",
        left_out_by_default=True,
    )
    weights: str | None = option(
        None,
        OneOf("type of weights", WEIGHTS),
        help=f"type that the model is loaded in: {', '.join(WEIGHTS)} (default: fp32, or what --precision says)",
        metavar="TYPE",
        left_out_by_default=True,
    )
    trained_weights: str | None = option(
        None,
        OneOf("type of trained weights", WEIGHTS),
        help="type of the parameters that are trained (default: the model's; an adapter's are fp32, as peft has it)",
        metavar="TYPE",
        left_out_by_default=True,
    )
    upcast_rest: bool = option(
        False,
        Switch("upcast_rest"),
        help="keep in fp32 what is not quantised, as peft's prepare_model_for_kbit_training does",
        left_out_by_default=True,
    )
    master_weights: bool = option(
        False,
        Switch("master_weights"),
        help="the optimizer keeps fp32 copies of weights that are in half precision, as DeepSpeed's do",
        left_out_by_default=True,
    )
    trained_layers: int | None = option(
        None,
        Whole("number of trained layers"),
        help="train only the last N blocks",
        metavar="N",
        left_out_by_default=True,
    )
    attention: str | None = option(
        None,
        OneOf("attention", ATTENTIONS),
        help=f"how the model attends: {', '.join(ATTENTIONS)} (default: transformers' choice)",
        metavar="NAME",
        left_out_by_default=True,
    )
    loss_chunks: int = option(
        1,
        Whole("number of chunks"),
        help="compute logits and loss in N chunks of the tokens, as torchtune and Liger do",
        metavar="N",
        left_out_by_default=True,
    )
    fused_loss: bool = option(
        False,
        Switch("fused_loss"),
        help="head and loss in one kernel, as Liger's fused linear cross entropy: all logits are never held",
        left_out_by_default=True,
    )
    objective: Objective = option(
        Objective.SFT,
        OneOf("objective", Objective),
        help="sft (default: the next token), dpo, orpo or reward (pairs of answers), kto (single ones), or grpo, "
        "rloo and ppo (answers of --new-tokens to prompts of --seq-len, which the model generates)",
        metavar="NAME",
        left_out_by_default=True,
    )
    reference_model: bool | None = option(
        None,
        Switch("reference_model"),
        help="whether the objective has a reference",
        flags=(
            Flag(
                "--reference-model",
                "a copy of the model stands beside it, or, with an adapter, the model without it is run too (default: "
                "with dpo, kto, rloo and ppo)",
                value=True,
            ),
            Flag("--no-reference-model", "its answers were computed before, or the objective has none", value=False),
        ),
        left_out_by_default=True,
    )
    reward_model: str | None = option(
        None,
        Text("reward model"),
        help="a model on the same GPU that scores the answers of --objective grpo, rloo or ppo: hf:NAME or a "
        "config.json (default: none; of ppo one as large as the model)",
        metavar="MODEL",
        left_out_by_default=True,
    )
    rollouts: int | None = option(
        None,
        Whole("number of rollouts"),
        help="answers that --objective grpo, rloo or ppo generates at once (default: batch size x accumulation)",
        metavar="N",
        left_out_by_default=True,
    )
    vllm_share: float | None = option(
        None,
        Number("share of vLLM", most=1),
        help="share of the card that a vLLM in the same process takes, which generates then, like 0.3",
        metavar="SHARE",
        left_out_by_default=True,
    )
    head: str | None = option(
        None,
        OneOf("head", HEADS),
        help=f"what stands on a model of transformers: {', '.join(HEADS)} (default: what its configuration names)",
        metavar="NAME",
        left_out_by_default=True,
    )
    training_loop: TrainingLoop = option(
        TrainingLoop.PLAIN,
        OneOf("training loop", TrainingLoop),
        help="plain, or hf-trainer, which frees the outputs early and converts them to fp32 under autocast",
        metavar="NAME",
        left_out_by_default=True,
    )
    precomputed: tuple[str, ...] = option(
        (),
        Names("precomputed parts", of=PRECOMPUTED),
        help="what a diffusion model is given ready-made, so that its encoders are not on the GPU: latents, text, or "
        "both with a comma",
        metavar="PARTS",
        left_out_by_default=True,
    )
    optimizer_in_backward: bool = option(
        False,
        Switch("optimizer_in_backward"),
        help="step each parameter as soon as its gradient is there, and drop the gradient",
        left_out_by_default=True,
    )
    notes: tuple[str, ...] = option(
        (), Sentences("notes"), help="what is to be said with the answer", flags=(), left_out_by_default=True
    )

    def __post_init__(self) -> None:
        read_fields(self)
        if self.lengths and self.seq_len is not None:
            raise BadInput("give --seq-len for batches of one length, or --lengths for different ones, not both.")
        if self.quantization is not None and self.adapter is None and self.phase is JobPhase.TRAINING:
            raise BadInput("quantised weights cannot be trained in full; add an adapter, like --adapter lora.")
        if self.quantization in WITHOUT_DERIVATIVE and self.phase is JobPhase.TRAINING:
            raise BadInput(
                f"torch has no derivative for products with {self.quantization} weights; take nf4-torchao, "
                "int8-torchao or fp8-torchao beside an adapter, or say --phase inference."
            )
        if self.qat is not None and (self.quantization is not None or self.phase is not JobPhase.TRAINING):
            raise BadInput("--qat trains plain weights as if they were quantised: without --quantization or --phase.")
        if self.offload_activations:
            if self.phase is not JobPhase.TRAINING:
                raise BadInput("--offload-activations is for training: nothing is kept for backward otherwise.")
            if self.compile is not None or (self.parallel is not None and self.parallel.pipeline > 1):
                raise BadInput("--offload-activations is not followed beside --compile or pp=N; leave one of them out.")
        if self.loading is Loading.WHOLE and (self.quantization or "").partition("-")[0] in ("", "gptq", "awq", "hqq"):
            raise BadInput("--loading whole is for weights that are quantised on the GPU: --quantization nf4, for one.")
        if self.loading is not None and self.parallel is not None:
            raise BadInput("--loading is followed on one GPU; leave it out beside --parallel.")
        if self.kv_cache is not None and not (self.phase is JobPhase.GENERATE or self.objective.generates):
            raise BadInput("--kv-cache is for what generates: --phase generate, --objective grpo, rloo or ppo.")
        if self.kv_cache is not None and self.vllm_share is not None:
            raise BadInput(
                "--kv-cache is of transformers' own generation; a vLLM (--vllm-share) has its cache in its share."
            )
        if self.parallel is not None and (self.reward_model is not None or self.objective is Objective.PPO):
            raise BadInput("ppo and reward models are followed on one GPU; leave --parallel out.")
        if not self.objective.generates:
            for name in ("rollouts", "vllm_share", "reward_model"):
                if getattr(self, name) is not None:
                    flag = "--" + name.replace("_", "-")
                    raise BadInput(f"{flag} is for --objective grpo, rloo and ppo, which generate while they train.")

    @classmethod
    def create(cls, job: Any, **options: Any) -> Workload:
        """From what a user writes: strings are read, unknown names are told with near matches."""
        return read_description(cls, options, job=Job.parse(job))

    @property
    def libraries(self) -> tuple[str, ...]:
        """The packages that a named model is built with."""
        if self.job.kind in (JobKind.HF, JobKind.CONFIG):
            return ("transformers",) if self.adapter is None else ("transformers", "peft")
        if self.job.kind is JobKind.DIFFUSERS:
            return ("diffusers", "transformers") if self.adapter is None else ("diffusers", "transformers", "peft")
        return (self.job.kind.value,) if self.job.kind in (JobKind.TIMM, JobKind.TORCHVISION) else ()

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON data, for traces and reports."""
        return {"job": self.job.reference, **as_plain(self)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], job: Job | None = None) -> Workload:
        """`job` is the one that the data cannot name: a script."""
        options = dict(plain)
        reference = options.pop("job")
        return cls.create(reference if job is None else job, **options)


def parse_input_shape(text: str) -> tuple[int, ...]:
    """`3x224x224` or `3,224,224`: the shape of one sample, without the batch."""
    parts = re.split(r"[x×,]", text.strip().lower())
    if not all(re.fullmatch(r"[0-9]{1,18}", part.strip()) for part in parts):
        raise BadInput(f"cannot read {text!r} as an input shape; write it like 3x224x224, without the batch.")
    return tuple(int(part) for part in parts)
