"""Published formulas for transformers on several GPUs, for the same table: they look at sizes, not at a Trace.

They answer where a case tells its sizes as arguments of Megatron-LM, and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .cases import Case

__all__ = ["FORMULAS", "Transformer", "deepspeed_zero2", "megatron_report", "transformer_of", "ultra_scale"]


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
        """Bytes of the fullest rank: bf16 weights, fp32 gradients, and fp32 weights with Adam's two states."""
        return self.parameters * (6 + 12 / self.data if self.shares_optimizer else 18)


def transformer_of(case: Case) -> Transformer | None:
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


def megatron_report(run: Transformer) -> int:
    """What Megatron-LM prints before training (NVIDIA/Megatron-LM at 00caa53, training/theoretical_memory_usage.py)."""
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
    many micro-batches as it has stages, so that all layers count."""
    scores = 0.0 if run.recomputes_attention else 5 * run.heads * run.length / run.width
    parts = 34 + scores
    shared = parts / run.tensor if run.divides_tokens or run.tensor == 1 else 10 + (parts - 10) / run.tensor
    return round(run.states + run.length * run.micro_batch * run.width * run.layers * shared)


def deepspeed_zero2(run: Transformer) -> int:
    """`estimate_zero2_model_states_mem_needs` without offload (DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py): 16-bit
    weights, and 18 bytes of gradients, weights and states shared by the data-parallel GPUs; no activations."""
    return round(run.parameters * (2 + 18 / run.data))


FORMULAS: Mapping[str, Callable[[Transformer], int]] = {
    "megatron-report": megatron_report,
    "ultra-scale": ultra_scale,
    "deepspeed-zero2": deepspeed_zero2,
}
