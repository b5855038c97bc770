"""A pretraining script over megatron-core, as Megatron-LM's own loop uses it; run by oomcast, not imported.

`torchrun … pretrain.py JSON`, where JSON holds arguments of Megatron-LM by name, and `padded_vocab_size`. What of
them decides memory is the library's own: models, contiguous gradient buffers, optimizers, schedules. This file puts
them together in the order of Megatron-LM's `get_model`, `setup_model_and_optimizer` and `train_step` (read at d98e8a6).
"""

from __future__ import annotations

import dataclasses
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[3]))

from lab.accuracy.megatron.kernels import install_kernels

_FLAGS = {
    "no_bias_gelu_fusion": "bias_gelu_fusion",
    "no_masked_softmax_fusion": "masked_softmax_fusion",
    "no_persist_layer_norm": "persist_layer_norm",
    "no_gradient_accumulation_fusion": "gradient_accumulation_fusion",
    "no_rope_fusion": "apply_rope_fusion",
    "no_create_attention_mask_in_dataloader": "create_attention_mask_in_dataloader",
    "disable_bias_linear": "add_bias_linear",
}
"""Arguments that switch something off, and its name in the library's configurations; all of them are on by default."""
_STEPS = 3
_MIXED = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Arguments(dict[str, Any]):
    """As Megatron-LM understands them: defaults of its own, and what follows from others."""

    @classmethod
    def read(cls, text: str) -> Arguments:
        given = json.loads(text)
        values = cls({on: not given.pop(off, False) for off, on in _FLAGS.items()})
        values.update({"tensor_model_parallel_size": 1, **given})
        values["params_dtype"] = next((kind for name, kind in _MIXED.items() if values.get(name)), torch.float32)
        # As in validate_args: bf16 gradients are summed in fp32, fp16 ones are not.
        in_fp32 = values.get("bf16", False) and not values.get("grad_reduce_in_bf16", False)
        values.setdefault("accumulate_allreduce_grads_in_fp32", in_fp32)
        values["sequence_parallel"] = bool(values.get("sequence_parallel")) and values.tensor_model_parallel_size > 1
        values["pipeline_dtype"] = values["params_dtype"]
        values.setdefault("num_layers", values.get("decoder_num_layers"))
        values.setdefault("seq_length", values.get("encoder_seq_length"))
        return values

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    @property
    def stages(self) -> int:
        return int(self.pipeline_model_parallel_size or 1)

    @property
    def chunks(self) -> int:
        """Pieces of the model on one rank of the pipeline."""
        if self.num_virtual_stages_per_pipeline_rank:
            return int(self.num_virtual_stages_per_pipeline_rank)
        if self.pipeline_model_parallel_layout:
            return len(_layout_stages(self.pipeline_model_parallel_layout)) // self.stages
        layers = self.num_layers_per_virtual_pipeline_stage
        return 1 if not layers or self.stages == 1 else int(self.num_layers) // self.stages // int(layers)

    def fields_of(self, description: type, **more: Any) -> dict[str, Any]:
        """Those that a configuration of the library has under the same name."""
        names = {field.name for field in dataclasses.fields(description)}
        return {**{name: value for name, value in self.items() if name in names}, **more}


def _layout_stages(layout: str) -> list[str]:
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout

    return list(PipelineParallelLayerLayout.parse_str_to_list(layout))


def transformer_config(arguments: Arguments) -> Any:
    from megatron.core.activations import squared_relu
    from megatron.core.transformer import MLATransformerConfig, TransformerConfig
    from megatron.core.transformer.enums import AttnBackend

    description = MLATransformerConfig if arguments.multi_latent_attention else TransformerConfig
    more: dict[str, Any] = {
        "deallocate_pipeline_outputs": True,
        "batch_p2p_comm": arguments.chunks == 1,
        "overlap_p2p_comm": arguments.chunks > 1,
        "num_moe_experts": arguments.num_experts,
        "bias_activation_fusion": arguments.bias_gelu_fusion and arguments.add_bias_linear,
        "num_query_groups": arguments.num_query_groups if arguments.group_query_attention else None,
        "num_layers_in_first_pipeline_stage": arguments.decoder_first_pipeline_num_layers,
        "num_layers_in_last_pipeline_stage": arguments.decoder_last_pipeline_num_layers,
        "layernorm_zero_centered_gamma": bool(arguments.apply_layernorm_1p),
        "virtual_pipeline_model_parallel_size": arguments.chunks if arguments.chunks > 1 else None,
        "layernorm_epsilon": float(arguments.norm_epsilon or 1e-5),
    }
    if arguments.swiglu:
        more |= {"activation_func": functional.silu, "gated_linear_unit": True, "bias_activation_fusion": True}
    elif arguments.squared_relu:
        more |= {"activation_func": squared_relu, "bias_activation_fusion": False}
    if arguments.microbatch_group_size_per_virtual_pipeline_stage:
        more["microbatch_group_size_per_vp_stage"] = int(arguments.microbatch_group_size_per_virtual_pipeline_stage)
    if arguments.attention_backend:
        more["attention_backend"] = AttnBackend[arguments.attention_backend]
    if arguments.moe_layer_freq is not None:
        more["moe_layer_freq"] = _layer_frequency(str(arguments.moe_layer_freq))
    if arguments.position_embedding_type == "rope":
        more["rotary_interleaved"] = bool(arguments.rotary_interleaved)
    else:
        more["apply_rope_fusion"] = False
    return description(**arguments.fields_of(description, **more))


def _layer_frequency(text: str) -> Any:
    """A number, or a pattern such as `([0]*3+[1]*12)`: read, not evaluated."""
    import re

    parts = re.findall(r"\[(\d)\]\s*\*\s*(\d+)", text)
    return [int(kind) for kind, count in parts for _ in range(int(count))] if parts else int(text)


def build_gpt(arguments: Arguments, config: Any, first: bool, last: bool, number: int | None) -> Any:
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt import gpt_layer_specs as specs

    engine = arguments.transformer_impl == "transformer_engine"
    if config.num_moe_experts:
        layers = specs.get_gpt_decoder_block_spec(
            config, use_transformer_engine=engine, normalization=config.normalization, vp_stage=number
        )
    elif engine:
        layers = specs.get_gpt_layer_with_transformer_engine_spec(
            None, config.moe_grouped_gemm, config.qk_layernorm, config.multi_latent_attention
        )
    else:
        layers = specs.get_gpt_layer_local_spec(
            None, config.moe_grouped_gemm, config.qk_layernorm, config.multi_latent_attention,
            normalization=config.normalization,
        )  # fmt: skip
    predicts_more = None
    if config.mtp_num_layers:
        of_last = specs.get_gpt_decoder_layer_specs(config, engine, config.normalization)[-1]
        predicts_more = specs.get_gpt_mtp_block_spec(config, of_last, use_transformer_engine=engine, vp_stage=number)
    return GPTModel(
        config=config,
        transformer_layer_spec=layers,
        vocab_size=arguments.padded_vocab_size,
        max_sequence_length=arguments.max_position_embeddings,
        pre_process=first,
        post_process=last,
        parallel_output=True,
        share_embeddings_and_output_weights=not arguments.untie_embeddings_and_output_weights,
        position_embedding_type=arguments.position_embedding_type or "learned_absolute",
        rotary_percent=float(arguments.rotary_percent or 1.0),
        rotary_base=int(arguments.rotary_base or 10000),
        mtp_block_spec=predicts_more,
        vp_stage=number,
    )


def build_bert(arguments: Arguments, config: Any, first: bool, last: bool, number: int | None) -> Any:
    from megatron.core.models.bert import bert_layer_specs as specs
    from megatron.core.models.bert.bert_model import BertModel

    engine = arguments.transformer_impl == "transformer_engine"
    return BertModel(
        config=config,
        transformer_layer_spec=specs.get_bert_layer_with_transformer_engine_spec()
        if engine
        else specs.bert_layer_local_spec,
        vocab_size=arguments.padded_vocab_size,
        max_sequence_length=arguments.max_position_embeddings,
        num_tokentypes=2,
        add_binary_head=True,
        share_embeddings_and_output_weights=not arguments.untie_embeddings_and_output_weights,
        parallel_output=True,
        pre_process=first,
        post_process=last,
        vp_stage=number,
    )


def build_t5(arguments: Arguments, config: Any, first: bool, last: bool, number: int | None) -> Any:
    import copy

    from megatron.core.models.T5 import T5Model
    from megatron.core.models.T5 import t5_spec as specs

    of_encoder = copy.deepcopy(config)
    of_encoder.num_layers = arguments.encoder_num_layers
    kind = "transformer_engine" if arguments.transformer_impl == "transformer_engine" else "local"
    return T5Model(
        config=config,
        encoder_config=of_encoder,
        transformer_encoder_layer_spec=getattr(specs, f"get_t5_encoder_with_{kind}_block_spec")(of_encoder.num_layers),
        transformer_decoder_layer_spec=getattr(specs, f"get_t5_decoder_with_{kind}_block_spec")(config.num_layers),
        vocab_size=arguments.padded_vocab_size,
        max_sequence_length=arguments.max_position_embeddings,
        pre_process=first,
        post_process=last,
        parallel_output=True,
        share_embeddings_and_output_weights=not arguments.untie_embeddings_and_output_weights,
        position_embedding_type=arguments.position_embedding_type or "learned_absolute",
    )


_BUILDERS = {"bert": build_bert, "t5": build_t5}


def build_model(arguments: Arguments, config: Any) -> list[Any]:
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.tensor_parallel import set_defaults_if_not_set_tensor_model_parallel_attributes
    from megatron.core.transformer.module import Float16Module

    chunks = []
    for number in range(arguments.chunks):
        own = number if arguments.chunks > 1 else None
        first = parallel_state.is_pipeline_first_stage(ignore_virtual=True) and number == 0
        last = parallel_state.is_pipeline_last_stage(ignore_virtual=True) and number == arguments.chunks - 1
        chunk = _BUILDERS.get(arguments.family, build_gpt)(arguments, config, first, last, own)
        chunk.vp_stage = own
        chunks.append(chunk)
    for chunk in chunks:
        for parameter in chunk.parameters():
            set_defaults_if_not_set_tensor_model_parallel_attributes(parameter)
        chunk.cuda(torch.cuda.current_device())
    if config.fp16 or config.bf16:
        chunks = [Float16Module(config, chunk) for chunk in chunks]
    buckets = None
    if arguments.overlap_grad_reduce:
        size = parallel_state.get_data_parallel_world_size(with_context_parallel=True)
        buckets = max(40_000_000, 1_000_000 * size)
    described = DistributedDataParallelConfig(
        **arguments.fields_of(
            DistributedDataParallelConfig,
            grad_reduce_in_fp32=arguments.accumulate_allreduce_grads_in_fp32,
            check_for_nan_in_grad=not arguments.no_check_for_nan_in_loss_and_grad,
            bucket_size=buckets,
            overlap_grad_reduce=bool(arguments.overlap_grad_reduce),
            overlap_param_gather=bool(arguments.overlap_param_gather),
            use_distributed_optimizer=bool(arguments.use_distributed_optimizer),
        )
    )
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        wrapped = [
            DistributedDataParallel(config=config, ddp_config=described, module=chunk, disable_bucketing=number > 0)
            for number, chunk in enumerate(chunks)
        ]
    torch.cuda.current_stream().wait_stream(stream)
    return wrapped


def build_optimizer(arguments: Arguments, config: Any, chunks: list[Any]) -> Any:
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    described = OptimizerConfig(
        **arguments.fields_of(
            OptimizerConfig,
            optimizer=arguments.optimizer or "adam",
            lr=1e-4,
            min_lr=1e-5,
            clip_grad=float(arguments.clip_grad or 1.0),
            use_distributed_optimizer=bool(arguments.use_distributed_optimizer),
            # In training the scale falls until the steps are not skipped any more; here it starts there.
            initial_loss_scale=1.0,
        )
    )
    optimizer = get_megatron_optimizer(described, chunks)
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    if arguments.overlap_grad_reduce:
        config.no_sync_func = [chunk.no_sync for chunk in chunks]
        if arguments.chunks > 1:
            config.grad_sync_func = [chunk.start_grad_sync for chunk in chunks]
        else:
            config.no_sync_func = config.no_sync_func[0]
    if arguments.overlap_param_gather and arguments.chunks > 1:
        config.param_sync_func = [chunk.start_param_sync for chunk in chunks]
    return optimizer


def _integers(*shape: int, value: int = 0) -> torch.Tensor:
    return torch.full(shape, value, dtype=torch.int64).cuda(non_blocking=True)


def loss_of(loss_mask: torch.Tensor, output: torch.Tensor, **_: Any) -> Any:
    losses = output.view(-1).float()
    weights = loss_mask.view(-1).float()
    loss = torch.sum(losses * weights)
    count = weights.sum().clone().detach().to(torch.int)
    return loss, count, {"lm loss": torch.cat([loss.clone().detach().view(1), count.view(1)])}


def loss_of_bert(loss_mask: torch.Tensor, order: torch.Tensor, output: Any, **_: Any) -> Any:
    """Of the masked words and of the order of two sentences."""
    losses, logits = output
    weights = loss_mask.float()
    loss = torch.sum(losses.float().view(-1) * weights.reshape(-1)) / weights.sum()
    loss = loss + functional.cross_entropy(logits.view(-1, 2).float(), order.view(-1), ignore_index=-1)
    return loss, {"lm loss": loss.clone().detach().view(1)}


def step_of_gpt(arguments: Arguments, config: Any, batches: Any, model: Any) -> Any:
    """The loader builds an attention mask unless it is told not to."""
    size, length = int(arguments.micro_batch_size), int(arguments.seq_length)
    own = length // int(arguments.context_parallel_size or 1)
    tokens, labels, positions = (_integers(size, own) for _ in range(3))
    loss_mask = torch.ones(size, own).cuda(non_blocking=True)
    mask = None
    if arguments.create_attention_mask_in_dataloader:
        mask = torch.zeros(size, 1, own, length, dtype=torch.bool).cuda(non_blocking=True)
    more = {"loss_mask": loss_mask} if config.mtp_num_layers else {}
    return model(tokens, positions, mask, labels=labels, **more), partial(loss_of, loss_mask)


def step_of_bert(arguments: Arguments, config: Any, batches: Any, model: Any) -> Any:
    size, length = int(arguments.micro_batch_size), int(arguments.seq_length)
    tokens, types, labels = (_integers(size, length) for _ in range(3))
    order, loss_mask = _integers(size), _integers(size, length, value=1).float()
    output = model(tokens, _integers(size, length, value=1), tokentype_ids=types, lm_labels=labels)
    return output, partial(loss_of_bert, loss_mask, order)


def step_of_t5(arguments: Arguments, config: Any, batches: Any, model: Any) -> Any:
    from megatron.core.datasets.t5_dataset import T5MaskedWordPieceDataset

    size = int(arguments.micro_batch_size)
    encoder, decoder = int(arguments.encoder_seq_length), int(arguments.decoder_seq_length)
    read, written, labels = _integers(size, encoder), _integers(size, decoder), _integers(size, decoder)
    loss_mask = _integers(size, decoder, value=1).float()
    of_read, of_written = _integers(size, encoder, value=1) < 0.5, _integers(size, decoder, value=1) < 0.5
    masks = T5MaskedWordPieceDataset.config_attention_mask(
        read, written, of_read, of_written, arguments.transformer_impl == "local"
    )
    return model(read, written, *masks, lm_labels=labels), partial(loss_of, loss_mask)


_STEPS_OF = {"bert": step_of_bert, "t5": step_of_t5}


def route_evenly() -> None:
    """Which expert a token goes to depends on data; balanced, as the routers' losses strive for, is what is taken.

    The map of tokens and experts is made on the host, so that the sizes of all that follows from it are known.
    """
    from megatron.core.transformer.moe.router import TopKRouter

    routing = TopKRouter.routing

    def routed(self: Any, *args: Any, **options: Any) -> Any:
        weights, chosen = routing(self, *args, **options)
        tokens, experts = chosen.shape
        first = torch.arange(tokens).unsqueeze(1) * self.topk
        even = torch.zeros(tokens, experts, dtype=torch.bool)
        even.scatter_(1, (first + torch.arange(self.topk)) % experts, True)
        return weights, even.cuda()

    TopKRouter.routing = routed


def compile_large_functions_only() -> None:
    """megatron-core compiles its pointwise functions. Fused or not, most of them make one output; those of the loss
    work in place on fp32 logits, of which a compiled kernel that also reads them needs a second copy."""
    compiled = torch.compile

    def compile_some(function: Any = None, **options: Any) -> Any:
        if function is None:
            return lambda inner: compile_some(inner, **options)
        return compiled(function, **options) if function.__module__.endswith("fused_cross_entropy") else function

    torch.compile = compile_some  # type: ignore[assignment]


def main() -> None:
    arguments = Arguments.read(sys.argv[1])
    compile_large_functions_only()
    install_kernels(apex=True, engine=not arguments.uninstall_te)
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.pipeline_parallel import get_forward_backward_func

    torch.cuda.set_device(int(dist.get_node_local_rank(0)) if dist.is_initialized() else 0)
    dist.init_process_group("nccl")
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=int(arguments.tensor_model_parallel_size or 1),
        pipeline_model_parallel_size=arguments.stages,
        virtual_pipeline_model_parallel_size=arguments.chunks if arguments.chunks > 1 else None,
        context_parallel_size=int(arguments.context_parallel_size or 1),
        expert_model_parallel_size=int(arguments.expert_model_parallel_size or 1),
        expert_tensor_parallel_size=arguments.expert_tensor_parallel_size,
        num_distributed_optimizer_instances=int(arguments.num_distributed_optimizer_instances or 1),
        order="tp-cp-ep-pp-dp" if arguments.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp",
    )
    tensor_parallel.model_parallel_cuda_manual_seed(1234)
    config = transformer_config(arguments)
    if config.num_moe_experts:
        route_evenly()
    chunks = build_model(arguments, config)
    optimizer = build_optimizer(arguments, config, chunks)
    data = parallel_state.get_data_parallel_world_size()
    micro_batches = int(arguments.global_batch_size) // (int(arguments.micro_batch_size) * data)
    schedule = get_forward_backward_func()
    for chunk in chunks:
        chunk.train()
    for _ in range(_STEPS):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        schedule(
            forward_step_func=partial(_STEPS_OF.get(arguments.family, step_of_gpt), arguments, config),
            data_iterator=[None] * len(chunks) if len(chunks) > 1 else None,
            model=chunks,
            num_microbatches=micro_batches,
            seq_length=int(arguments.seq_length),
            micro_batch_size=int(arguments.micro_batch_size),
            decoder_seq_length=arguments.decoder_seq_length,
            forward_only=False,
        )
        optimizer.step()


if __name__ == "__main__":
    main()
