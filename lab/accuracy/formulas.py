"""Published formulas for transformers on several GPUs, for the same table: they look at sizes, not at a Trace.

They answer where a case tells its sizes as arguments of Megatron-LM, or is a decoder that is sharded by FSDP, and
nowhere else. None: a formula does not know that layout.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oomcast.spec import DataParallel, JobKind

from .cases import Case
from .titan_2026 import TitanDecoderShape
from .titan_jobs import TitanShape

__all__ = ["FORMULAS", "Transformer", "deepspeed_zero2", "deepspeed_zero3", "llmem", "megatron_report",
           "transformer_of", "ultra_scale"]  # fmt: skip

_PAGE = 2 << 20
"""Bytes to which LLMem rounds, CUDA's pages."""


@dataclass(frozen=True)
class Transformer:
    """What the formulas ask of a run."""

    layers: int
    width: int
    inner: int
    heads: int
    groups: int
    """Heads of keys and values."""
    length: int
    micro_batch: int
    micro_batches: int
    vocabulary: int
    gated: bool
    untied: bool
    tensor: int
    pipeline: int
    chunks: int
    """Pieces of the model on a rank of the pipeline."""
    data: int
    shares_optimizer: bool
    divides_tokens: bool
    recomputes_attention: bool
    recomputes_all: bool = False
    """Of each layer its input alone is kept."""
    is_sharded: bool = False
    """Weights, gradients and states are shared by the data-parallel GPUs (FSDP, ZeRO-3)."""

    @property
    def parameters(self) -> float:
        """Of the fullest rank, as tensor and pipeline parallelism leave them to it."""
        attention = 2 * self.width**2 * (1 + self.groups / self.heads)
        layer = attention + 2 * self.width * (self.inner * (1.5 if self.gated else 1.0) + 2)
        words = self.width * self.vocabulary
        own = layer * self.layers / self.pipeline + words * (1 + (self.untied and self.pipeline == 1))
        return own / self.tensor

    @property
    def states(self) -> float:
        """Bytes of the fullest rank: bf16 weights, fp32 gradients, and fp32 weights with Adam's two states; what is
        shared by all has 16-bit gradients in the published sum."""
        if self.is_sharded:
            return self.parameters * 16 / self.data
        return self.parameters * (6 + 12 / self.data if self.shares_optimizer else 18)


def transformer_of(case: Case) -> Transformer | None:
    if case.workload.job.kind is JobKind.OBJECT:
        return _sharded_decoder(case)
    if case.data != "megatron_golden" or case.script is None:
        return None
    arguments: dict[str, Any] = json.loads(case.script.line[-1])
    if arguments.get("num_experts") or arguments.get("multi_latent_attention") or "num_layers" not in arguments:
        return None
    width, heads = int(arguments["hidden_size"]), int(arguments["num_attention_heads"])
    gated = bool(arguments.get("swiglu"))
    tensor, pipeline = (int(arguments.get(f"{kind}_model_parallel_size", 1)) for kind in ("tensor", "pipeline"))
    data = case.spec.place.machines.world_size // (tensor * pipeline * int(arguments.get("context_parallel_size", 1)))
    micro_batch, layers = int(arguments["micro_batch_size"]), int(arguments["num_layers"])
    virtual = arguments.get("num_layers_per_virtual_pipeline_stage")
    return Transformer(
        layers=layers,
        width=width,
        inner=int(arguments.get("ffn_hidden_size") or (int(4 * width * 2 / 3) // 64 * 64 if gated else 4 * width)),
        heads=heads,
        groups=int(arguments["num_query_groups"]) if arguments.get("group_query_attention") else heads,
        length=int(arguments.get("seq_length") or arguments["encoder_seq_length"]),
        micro_batch=micro_batch,
        micro_batches=max(int(arguments.get("global_batch_size", micro_batch * data)) // (micro_batch * data), 1),
        vocabulary=int(arguments["padded_vocab_size"]),
        gated=gated,
        untied=bool(arguments.get("untie_embeddings_and_output_weights")),
        tensor=tensor,
        pipeline=pipeline,
        chunks=layers // pipeline // int(virtual) if virtual else 1,
        data=data,
        shares_optimizer=bool(arguments.get("use_distributed_optimizer")),
        divides_tokens=bool(arguments.get("sequence_parallel")),
        recomputes_attention=arguments.get("recompute_granularity") == "selective",
    )


def _sharded_decoder(case: Case) -> Transformer | None:
    """A job of torchtitan's decoders: its sizes stand in its shape."""
    job: Any = case.workload.job.target
    parallel = case.workload.parallel
    shape: Any = getattr(job, "shape", None)
    if not isinstance(shape, (TitanShape, TitanDecoderShape)) or parallel is None:
        return None
    if parallel.data is not DataParallel.FSDP2 or parallel.model_size > 1 or parallel.offload:
        return None
    return Transformer(
        layers=shape.depth,
        width=shape.width,
        inner=shape.inner,
        heads=shape.heads,
        groups=shape.kv_heads,
        length=job.length,
        micro_batch=case.workload.batch_size,
        micro_batches=case.workload.accumulation,
        vocabulary=shape.vocabulary,
        gated=True,
        untied=True,
        tensor=1,
        pipeline=1,
        chunks=1,
        data=case.spec.place.machines.world_size // parallel.replicate,
        shares_optimizer=True,
        divides_tokens=False,
        recomputes_attention=True,  # fused attention keeps no scores
        recomputes_all=job.recompute == "full",
        is_sharded=True,
    )


def megatron_report(run: Transformer) -> int | None:
    """What Megatron-LM prints before training (NVIDIA/Megatron-LM at 00caa53, training/theoretical_memory_usage.py)."""
    if run.is_sharded:
        return None
    tokens = run.length * run.micro_batch
    follows_korthikanti = run.divides_tokens and run.recomputes_attention
    layer = 18 + 4 * run.inner / run.width if follows_korthikanti else 10 + 24 / run.tensor
    kept = tokens * run.width * layer * run.layers + tokens * run.pipeline * (8 + run.width)
    if run.chunks > 1:
        kept *= 1 + (run.pipeline - 1) / (run.pipeline * run.chunks)
    elif run.pipeline > 1:
        kept *= min(1.0, run.micro_batches / run.pipeline)
    if follows_korthikanti:
        if run.pipeline == 1:
            kept += 4 * tokens * (run.width + run.vocabulary)
        return round(run.states + kept / run.tensor)
    if run.pipeline == 1:
        kept += 2 * tokens * (run.width + run.vocabulary / run.tensor)
    return round(run.states + 1.05 * kept)


def ultra_scale(run: Transformer) -> int:
    """The Ultra-Scale Playbook (Hugging Face, 2025; activations after Korthikanti et al., 2022): states, and for each
    layer 34 bytes a token and feature and 5 for each pair of tokens and head; a stage of a pipeline keeps those of as
    many micro-batches as it has stages, so that all layers count. Of a layer that is recomputed whole, 2 bytes of its
    input."""
    scores = 0.0 if run.recomputes_attention else 5 * run.heads * run.length / run.width
    parts = 2.0 if run.recomputes_all else 34 + scores
    apart = min(parts, 10.0)  # which tensor parallelism alone does not divide
    shared = parts / run.tensor if run.divides_tokens or run.tensor == 1 else apart + (parts - apart) / run.tensor
    return round(run.states + run.length * run.micro_batch * run.width * run.layers * shared)


def deepspeed_zero2(run: Transformer) -> int | None:
    """`estimate_zero2_model_states_mem_needs` without offload (DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py): 16-bit
    weights, and 18 bytes of gradients, weights and states shared by the data-parallel GPUs; no activations."""
    if run.is_sharded:
        return None
    return round(run.parameters * (2 + 18 / run.data))


def deepspeed_zero3(run: Transformer) -> int | None:
    """`estimate_zero3_model_states_mem_needs` without offload (DeepSpeed 0.19.8, runtime/zero/stage3.py): 18 bytes
    shared by all GPUs, and the largest layer whole, in 16 bits with its gradient; no activations."""
    if not run.is_sharded:
        return None
    largest = run.width * max(run.vocabulary, run.inner)
    return round(4 * largest + 18 * run.parameters / run.data)


def llmem(run: Transformer) -> int | None:
    """LLMem (Kim et al., IJCAI 2024, arXiv 2404.10933, sections 4 and 5), without the context that it measures:
    16-bit weights whose place gradients take, fp32 weights and Adam's states, one output for each layer, and the logits
    with the two shifted copies of the loss. ZeRO-3 gathers all 16-bit weights; tensor parallelism divides all but the
    outputs and takes buffers for gradients. It knows no pipelines; ranks that hold copies hold what one does."""
    if run.pipeline > 1:
        return None
    tokens, head = run.length * run.micro_batch, run.width * run.vocabulary
    body = run.parameters * run.tensor - head * (2 if run.untied else 1)
    values = head + body
    half, full, moments = (_in_pages(values * size) for size in (2, 4, 8))
    outputs = _in_pages(2 * (2 + run.layers) * tokens * run.width)
    shifted = _in_pages(4 * run.micro_batch * (run.length - 1) * run.vocabulary)
    logits = _in_pages(4 * tokens * run.vocabulary) + 2 * shifted + 2 * head
    shards = run.data if run.is_sharded else 1
    if run.tensor == 1:
        return half + (full + moments) // shards + outputs + logits
    gathered = _in_pages(2 * run.layers * tokens * run.width * (run.tensor - 1) / run.tensor)
    states = half // run.tensor + (full + moments) // (run.tensor * shards)
    return states + outputs + logits + gathered


def _in_pages(size: float) -> int:
    return math.ceil(size / _PAGE) * _PAGE


FORMULAS: Mapping[str, Callable[[Transformer], int | None]] = {
    "megatron-report": megatron_report,
    "ultra-scale": ultra_scale,
    "deepspeed-zero2": deepspeed_zero2,
    "deepspeed-zero3": deepspeed_zero3,
    "llmem": llmem,
}
